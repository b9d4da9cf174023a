//! The mixed load: each part uses one area of the runtime, and verifies every result that it gets.
//!
//! A part is a few tasks that repeat an operation until the end of the run, and count the results
//! in a [`Part`].

mod blocking;
mod channels;
mod echo;
mod files;
mod locks;
mod polls;
mod processes;
mod timers;
mod tree;

pub(crate) use tree::INTENDED;

use std::sync::Arc;

use volt::Handle;

use crate::part::Part;

/// Starts the tasks of a part.
type Start = fn(&Handle, &Arc<Part>);

/// Starts all parts on a runtime.
pub(crate) fn start(runtime: &Handle) -> Vec<Arc<Part>> {
    let parts: [(&'static str, Start); 9] = [
        ("channels", channels::start),
        ("locks", locks::start),
        ("timers", timers::start),
        ("tree", tree::start),
        ("echo", echo::start),
        ("files", files::start),
        ("blocking", blocking::start),
        ("polls", polls::start),
        ("processes", processes::start),
    ];
    let start = |(name, start): (&'static str, Start)| {
        let part = Part::new(name);
        start(runtime, &part);
        part
    };
    parts.into_iter().map(start).collect()
}
