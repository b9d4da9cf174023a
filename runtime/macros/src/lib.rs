//! `#[volt::main]` and `#[volt::test]`: an `async fn` that a Volt runtime of its own runs.
//!
//! Programs reach these through `volt`; nothing here is used directly. The attributes are read in `options`, the function is
//! rewritten in `expand`; this file only names the entry points.
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
/// The function itself runs on the calling thread, inside `block_on`; what it spawns runs on the workers. It takes no
/// arguments and returns what a plain function of its place may return, so `main` may return a `Result`.
///
/// # Panics
///
/// When the runtime cannot be built, with the error of `Builder::build`. A program that wants to handle that error calls the
/// Builder itself.
///
/// # Examples
///
/// ```
/// #[volt::main(worker_threads = 2, name = "greeter")]
/// async fn main() -> Result<(), volt::task::JoinError> {
///     let answer = volt::spawn(async { 6 * 7 }).await?;
///     assert_eq!(answer, 42);
///     Ok(())
/// }
/// ```
///
/// It stands for:
///
/// ```
/// fn main() -> Result<(), volt::task::JoinError> {
///     async fn main() -> Result<(), volt::task::JoinError> {
///         let answer = volt::spawn(async { 6 * 7 }).await?;
///         assert_eq!(answer, 42);
///         Ok(())
///     }
///     match volt::Builder::new_multi_thread().worker_threads(2).name("greeter").build() {
///         Ok(runtime) => runtime.block_on(main()),
///         Err(error) => panic!("the Volt runtime of `main` could not be built: {error}"),
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(expand::Entry::Main, options.into(), item.into()).into()
}

/// Makes an `async fn` a test that runs on a Volt runtime of its own.
///
/// The options are those of [`macro@main`]. Two things differ: without `worker_threads` there are **2** workers, so that tasks
/// are stolen and woken across threads even on a machine with one processor; and `#[test]` is added, so attributes such as
/// `#[ignore]` and `#[should_panic]` work as usual.
///
/// Every test has a runtime for itself; nothing that one test spawns outlives it.
///
/// # Examples
///
/// ```
/// #[volt::test]
/// async fn a_task_gives_its_result() {
///     assert_eq!(volt::spawn(async { 42 }).await.unwrap(), 42);
/// }
///
/// #[volt::test(start_paused = true)]
/// async fn an_hour_passes_at_once_where_nothing_else_is_to_be_done() {
///     volt::time::sleep(std::time::Duration::from_secs(3600)).await;
/// }
///
/// #[volt::test(worker_threads = 1)]
/// async fn one_worker_is_enough() -> Result<(), volt::task::JoinError> {
///     volt::spawn(async {}).await
/// }
/// # fn main() {}
/// ```
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(expand::Entry::Test, options.into(), item.into()).into()
}
