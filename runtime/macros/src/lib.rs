//! `#[volt::main]` and `#[volt::test]`: an `async fn` that a Volt runtime of its own runs.
//!
//! Programs reach these through `volt`; nothing here is used directly. The attributes are read in
//! `options`, the function is rewritten in `expand`; this file only names the entry points.
#![forbid(unsafe_code)]

mod expand;
mod options;

use proc_macro::TokenStream;

/// Runs an `async fn` on a Volt runtime that is built for it and shut down after it.
///
/// | option | default | meaning |
/// |---|---|---|
/// | `worker_threads = N` | one worker for each processor that the program may use | how many threads run tasks |
/// | `name = "…"` | the Builder's | what console, metrics and logs call this runtime |
/// | `start_paused = true` | `false` | the clock of tests, standing still: `Builder::start_paused` |
/// | `crate = path` | `::volt` | where Volt is, for a crate that re-exports it |
///
/// The function itself runs on the calling thread, inside `block_on`; what it spawns runs on the
/// workers. It takes no arguments and returns what a plain function of its place may return, so
/// `main` may return a `Result`.
///
/// # Panics
///
/// When the runtime cannot be built, with the error of `Builder::build`. A program that wants to
/// handle that error calls the Builder itself.
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(expand::Entry::Main, options.into(), item.into()).into()
}

/// Makes an `async fn` a test that runs on a Volt runtime of its own.
///
/// The options are those of [`macro@main`]. Two things differ: without `worker_threads` there are
/// **2** workers, so that tasks are stolen and woken across threads even on a machine with one
/// processor; and `#[test]` is added, so attributes such as `#[ignore]` and `#[should_panic]` work
/// as usual.
///
/// Every test has a runtime for itself; nothing that one test spawns outlives it.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(expand::Entry::Test, options.into(), item.into()).into()
}
