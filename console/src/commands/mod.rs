//! The commands of `volt-console`, each in a file or directory.

pub mod progress;

pub mod top;

pub mod attach;
pub mod picker;
pub mod replay;

pub mod record;

pub mod check;
pub mod doctor;
pub mod dump;
pub mod list;
pub mod listing;
pub mod stacks;
pub mod why;

pub mod export;
pub mod post_mortem;
