//! The example programs as people run them, each in a process of its own, and the README that shows
//! one.

mod chat;
mod demo;
mod doctor;
mod group;
mod readme;
mod recording;
