//! The builder for child processes.

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, ExitStatus, Output, Stdio};

use crate::process::Child;
use crate::process::orphans;
use volt_core::Handle;
use volt_core::context;

/// A builder for child processes: the program to run, its arguments, its environment and its
/// standard streams.
///
/// It corresponds to [`std::process::Command`], but waiting for the child does not block the
/// thread.
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

/// Defines methods that change a setting and return the command.
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
    /// Creates a command that runs the program `program`.
    ///
    /// If `program` contains no `/`, it is searched for in `PATH`. By default the child inherits
    /// the environment, the current directory and the standard streams of the calling program.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        process::Command::new(program).into()
    }

    settings! {
        /// Adds an argument. It is passed to the program as it is, without a shell.
        fn arg<S: AsRef<OsStr>>(argument: S);
        /// Sets the zeroth argument of the program: the name under which it was called.
        fn arg0<S: AsRef<OsStr>>(name: S);
        /// Sets an environment variable.
        fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(key: K, value: V);
        /// Removes an environment variable.
        fn env_remove<K: AsRef<OsStr>>(key: K);
        /// Clears the environment. The child sees only variables that are set after this call.
        fn env_clear();
        /// Sets the working directory of the child.
        fn current_dir<P: AsRef<Path>>(dir: P);
        /// Sets the child's standard input.
        fn stdin<T: Into<Stdio>>(stdio: T);
        /// Sets the child's standard output.
        fn stdout<T: Into<Stdio>>(stdio: T);
        /// Sets the child's standard error.
        fn stderr<T: Into<Stdio>>(stdio: T);
        /// Sets the user ID of the child.
        fn uid(id: u32);
        /// Sets the group ID of the child.
        fn gid(id: u32);
        /// Sets the process group of the child. With 0, the child becomes the leader of a new
        /// group.
        fn process_group(group: i32);
    }

    /// Adds several arguments.
    pub fn args<I, S>(&mut self, arguments: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.std.args(arguments);
        self
    }

    /// Sets several environment variables.
    pub fn envs<I, K, V>(&mut self, variables: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.std.envs(variables);
        self
    }

    /// Sets whether the child is killed with SIGKILL when its [`Child`] is dropped. Default false:
    /// the child continues to run.
    pub fn kill_on_drop(&mut self, kill_on_drop: bool) -> &mut Command {
        self.kills_on_drop = kill_on_drop;
        self
    }

    /// Returns whether the child is killed when its [`Child`] is dropped.
    pub fn get_kill_on_drop(&self) -> bool {
        self.kills_on_drop
    }

    /// Registers `f` to run in the child process before the program is loaded. If `f` returns an
    /// error, [`spawn`](Self::spawn) returns that error.
    ///
    /// # Safety
    /// `f` runs in a copy of this process that has one thread only. Locks that other threads held
    /// stay locked in the copy, including those of the allocator. So `f` may only do what is
    /// allowed in a signal handler.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller guarantees what `pre_exec` of the standard library requires.
        unsafe { self.std.pre_exec(f) };
        self
    }

    /// Returns the standard library's command, for reading.
    pub fn as_std(&self) -> &process::Command {
        &self.std
    }

    /// Returns the standard library's command, for changes.
    pub fn as_std_mut(&mut self) -> &mut process::Command {
        &mut self.std
    }

    /// Converts this command into the standard library's command. The setting
    /// [`kill_on_drop`](Self::kill_on_drop) is lost.
    pub fn into_std(self) -> process::Command {
        self.std
    }

    /// Starts the program as a child process.
    ///
    /// This blocks the current thread while the system starts the program, usually for at most a
    /// millisecond.
    ///
    /// # Errors
    /// Returns `NotFound` if the program does not exist. Returns an error if the calling program
    /// has run out of file descriptors; a child that was already started is killed in that case.
    /// Also returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime, or if the runtime's I/O is disabled.
    #[track_caller]
    pub fn spawn(&mut self) -> io::Result<Child> {
        self.spawn_with(process::Command::spawn)
    }

    /// Starts the program as [`spawn`](Self::spawn) does, by calling `start` instead of the
    /// standard library's `spawn`.
    ///
    /// # Errors
    /// Returns the same errors as [`spawn`](Self::spawn), and the error of `start`.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime, or if the runtime's I/O is disabled.
    #[track_caller]
    pub fn spawn_with(
        &mut self,
        start: impl FnOnce(&mut process::Command) -> io::Result<process::Child>,
    ) -> io::Result<Child> {
        // Panics if there is no driver, before the child is started.
        let (runtime, _driver) = (Handle::current(), context::driver());
        orphans::reap();
        Child::of(start(&mut self.std)?, runtime, self.kills_on_drop)
    }

    /// Starts the program, waits until it exits, and returns its status.
    ///
    /// The call itself starts the program, not the first poll of the future. If a standard stream
    /// of the child is a pipe, this end of the pipe is closed immediately.
    ///
    /// # Errors
    /// Returns the same errors as [`spawn`](Self::spawn) and [`Child::wait`].
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime, or if the runtime's I/O is disabled.
    ///
    /// # Cancel safety
    /// Dropping the future drops the child. The child continues to run, unless
    /// [`kill_on_drop`](Self::kill_on_drop) is set.
    ///
    /// ```
    /// use volt::process::Command;
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let status = Command::new("true").status().await?;
    /// assert!(status.success());
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn status(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + use<> {
        let child = self.spawn();
        async {
            let mut child = child?;
            drop((child.stdin.take(), child.stdout.take(), child.stderr.take()));
            child.wait().await
        }
    }

    /// Starts the program, waits until it exits, and collects its output.
    ///
    /// The call itself starts the program, not the first poll of the future. The child's standard
    /// output and standard error are set to pipes, even if they were set before, and read to the
    /// end. Its standard input is inherited unless it was set.
    ///
    /// # Errors
    /// Returns the same errors as [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime, or if the runtime's I/O is disabled.
    ///
    /// # Cancel safety
    /// The same as for [`status`](Self::status).
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
