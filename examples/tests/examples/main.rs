//! Tests of the example programs as users run them, each as a separate program, and of the README
//! that shows one.

mod chat;
mod demo;
mod doctor;
mod group;
mod post_mortem;
mod readme;
mod recording;
