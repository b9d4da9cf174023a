//! How a child is started.

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, ExitStatus, Output, Stdio};

use crate::process::Child;
use crate::process::orphans;
use volt_core::handle::Handle;

/// A program to be started as a child process, with its arguments, environment and standard
/// streams; the standard library's `Command`, whose child is waited for without blocking.
///
/// ```
/// use std::process::Stdio;
/// use volt::io::AsyncWriteExt;
/// use volt::process::Command;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let mut child = Command::new("tr").args(["a-z", "A-Z"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
/// let mut stdin = child.stdin.take().unwrap();
/// stdin.write_all(b"hello").await?;
/// drop(stdin);
/// assert_eq!(child.wait_with_output().await?.stdout, b"HELLO");
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Command {
    std: process::Command,
    kills_on_drop: bool,
}

/// Methods that set something and give the command back.
macro_rules! settings {
    ($($(#[doc = $doc:literal])+ fn $name:ident$(<$($generic:ident: $bound:path),+>)?($($argument:ident: $type:ty),*);)+) => {
        $(
            $(#[doc = $doc])+
            pub fn $name$(<$($generic: $bound),+>)?(&mut self, $($argument: $type),*) -> &mut Command {
                self.std.$name($($argument),*);
                self
            }
        )+
    };
}

impl Command {
    /// The program of that name, looked for in `PATH` if there is no `/` in it; with the
    /// environment, folder and, unless they are asked for as pipes, standard streams of this
    /// process.
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        process::Command::new(program).into()
    }

    settings! {
        /// One more argument. No shell sees it.
        fn arg<S: AsRef<OsStr>>(argument: S);
        /// The name that the program is told it has.
        fn arg0<S: AsRef<OsStr>>(name: S);
        /// A variable of its environment.
        fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(key: K, value: V);
        /// Without that variable.
        fn env_remove<K: AsRef<OsStr>>(key: K);
        /// Without any variable but those set from here on.
        fn env_clear();
        /// The folder that it starts in.
        fn current_dir<P: AsRef<Path>>(folder: P);
        /// Its standard input.
        fn stdin<T: Into<Stdio>>(stdio: T);
        /// Its standard output.
        fn stdout<T: Into<Stdio>>(stdio: T);
        /// Its standard error.
        fn stderr<T: Into<Stdio>>(stdio: T);
        /// The user that it runs as.
        fn uid(id: u32);
        /// The group that it runs as.
        fn gid(id: u32);
        /// The process group that it belongs to; 0 = a new one, its own.
        fn process_group(group: i32);
    }

    /// Further arguments.
    pub fn args<S: AsRef<OsStr>>(&mut self, arguments: impl IntoIterator<Item = S>) -> &mut Command {
        self.std.args(arguments);
        self
    }

    /// Further variables of its environment.
    pub fn envs<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        &mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> &mut Command {
        self.std.envs(variables);
        self
    }

    /// Whether dropping the [`Child`] ends the process, by SIGKILL. Default false: it goes on by
    /// itself.
    pub fn kill_on_drop(&mut self, kill_on_drop: bool) -> &mut Command {
        self.kills_on_drop = kill_on_drop;
        self
    }

    /// Whether dropping the [`Child`] ends the process.
    pub fn get_kill_on_drop(&self) -> bool {
        self.kills_on_drop
    }

    /// Has `f` run in the child, before the program is loaded.
    ///
    /// # Safety
    /// `f` runs in a copy of this process that has one thread: locks that other threads held stay
    /// locked there, the allocator's included. Only what may be done in a signal handler may be
    /// done in it.
    pub unsafe fn pre_exec(&mut self, f: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> &mut Command {
        // SAFETY: the caller has promised the same.
        unsafe { self.std.pre_exec(f) };
        self
    }

    /// The standard library's command.
    pub fn as_std(&self) -> &process::Command {
        &self.std
    }

    /// The standard library's command.
    pub fn as_std_mut(&mut self) -> &mut process::Command {
        &mut self.std
    }

    /// The standard library's command.
    pub fn into_std(self) -> process::Command {
        self.std
    }

    /// Starts the program. This blocks the worker for as long as the system takes to start it, a
    /// millisecond or less as a rule.
    ///
    /// # Errors
    /// `NotFound` if there is no such program; what the system says. If the process is out of
    /// descriptors, the child is ended again.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn spawn(&mut self) -> io::Result<Child> {
        let runtime = Handle::current();
        runtime.shared().home.expect_here();
        orphans::reap();
        Child::of(self.std.spawn()?, runtime, self.kills_on_drop)
    }

    /// Starts the program, and waits for its end; pipes that were asked for are closed.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn) and [`Child::wait`].
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future drops the child: it goes on, unless [`kill_on_drop`](Self::kill_on_drop)
    /// was asked for.
    #[track_caller]
    pub fn status(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + use<> {
        let child = self.spawn();
        async {
            let mut child = child?;
            drop((child.stdin.take(), child.stdout.take(), child.stderr.take()));
            child.wait().await
        }
    }

    /// Starts the program with pipes for its standard output and error, reads all that comes and
    /// waits for its end.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// As [`status`](Self::status).
    #[track_caller]
    pub fn output(&mut self) -> impl Future<Output = io::Result<Output>> + use<> {
        let child = self.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        async { child?.wait_with_output().await }
    }
}

impl From<process::Command> for Command {
    fn from(std: process::Command) -> Command {
        Command { std, kills_on_drop: false }
    }
}
