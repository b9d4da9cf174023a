//! Tasks through the public API: how they are spawned, joined, cancelled, grouped and released.

#[path = "../folder/mod.rs"]
mod folder;
#[path = "../watchdog/mod.rs"]
mod watchdog;

mod attributes;
mod budget;
mod deadlocks;
mod dump;
mod ids;
mod items;
mod join_set;
mod leaks;
mod lifecycle;
mod listing;
mod local_runtime;
mod local_set;
mod panics;
mod released;
mod structured;
mod sync;
mod try_spawn;
