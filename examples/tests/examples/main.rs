//! Tests of the example programs as users run them, each as a separate program, and of the README
//! that shows one.

mod book;
mod chat;
mod demo;
mod doctor;
#[path = "../../../console/tests/console/documents.rs"]
mod documents;
#[cfg(target_os = "linux")]
mod embedded;
mod group;
mod post_mortem;
mod race;
mod readme;
mod recording;
