//! The attribute macros `#[volt::main]` and `#[volt::test]`, which run an `async fn` on a Volt
//! runtime.
//!
//! Programs use these macros through the `volt` crate, never through this one. `options` parses the
//! arguments of the attributes, and `expand` rewrites the function.
#![forbid(unsafe_code)]

mod options;

mod expand;

use proc_macro::TokenStream;

/// Marks an `async fn` to be executed by a new Volt runtime, which is shut down when the function
/// returns.
///
/// # Options
///
/// | option | default | meaning |
/// |---|---|---|
/// | `flavor = "current_thread"` | `"multi_thread"` | runs the tasks on this thread; see `Builder::new_current_thread` |
/// | `flavor = "local"` | `"multi_thread"` | the same, also for futures that are not `Send`; see `Builder::build_local` |
/// | `worker_threads = N` | the number of processors that the program may use | number of worker threads |
/// | `name = "…"` | the default of `Builder` | name of the runtime in the console, metrics and logs |
/// | `start_paused = true` | `false` | starts with a paused test clock; see `Builder::start_paused` |
/// | `crate = path` | `::volt` | path of the `volt` crate, for crates that re-export it |
///
/// `worker_threads` requires the flavor `"multi_thread"`. An unknown, repeated or contradictory
/// option is a compile error.
///
/// The function itself runs on the calling thread, inside `Runtime::block_on`. The tasks that it
/// spawns run on the worker threads; with the other two flavors, they run on the calling thread. To
/// run on a worker, spawn a task and await it. The function takes no arguments, and has the return
/// types of a plain function in its place: `main` may return a `Result`.
///
/// # Panics
///
/// Panics if the runtime cannot be built, with the error of `Builder::build`. To handle that error,
/// use `Builder` directly.
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(expand::Entry::Main, options.into(), item.into()).into()
}

/// Marks an `async fn` as a test that runs on a new Volt runtime.
///
/// # Options
///
/// The options are those of [`macro@main`], with one difference: the default of `worker_threads` is
/// **2**. Tasks are thus stolen and woken across threads even on a machine with one processor. The
/// default flavor is `"multi_thread"`, unlike that of Tokio's macro.
///
/// The macro adds `#[test]`, so attributes such as `#[ignore]` and `#[should_panic]` work as usual.
///
/// Each test has a separate runtime, which is shut down when the test returns. The shutdown cancels
/// the tasks that the test has spawned.
///
/// # Panics
///
/// Panics, so that the test fails, if the runtime cannot be built.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(expand::Entry::Test, options.into(), item.into()).into()
}
