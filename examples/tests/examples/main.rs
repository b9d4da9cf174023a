//! Tests of the example programs as users run them, each as a separate program, and of the README
//! that shows one.

#[path = "../../../console/tests/console/documents.rs"]
mod documents;
mod group;

mod book;
mod chat;
mod demo;
mod doctor;
#[cfg(target_os = "linux")]
mod embedded;
mod post_mortem;
mod race;
mod readme;
mod recording;
