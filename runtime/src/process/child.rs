//! Child processes that are running or have exited.

use std::future::poll_fn;
use std::io;
use std::process::{self, ExitStatus, Output};
use std::task::{Context, Poll, ready};

use futures_util::future::join3;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::process::orphans;
use crate::process::stdio::{ChildStderr, ChildStdin, ChildStdout};
use crate::process::watch::Watch;
use volt_core::Handle;
use volt_core::driver::readiness::ShutDownError;

/// A handle to a child process, created by [`Command::spawn`](crate::process::Command::spawn).
///
/// Dropping a `Child` does not terminate the child, unless
/// [`kill_on_drop`](crate::process::Command::kill_on_drop) is set. In both cases the runtime waits
/// for the child in the background, so that it does not remain a zombie.
#[derive(Debug)]
pub struct Child {
    state: State,
    runtime: Handle,
    kills_on_drop: bool,
    /// The pipe to the standard input of the child, if `Stdio::piped()` was requested for it.
    pub stdin: Option<ChildStdin>,
    /// The pipe from the standard output of the child, if `Stdio::piped()` was requested for it.
    pub stdout: Option<ChildStdout>,
    /// The pipe from the standard error of the child, if `Stdio::piped()` was requested for it.
    pub stderr: Option<ChildStderr>,
}

#[derive(Debug)]
enum State {
    Running(process::Child, Watch),
    Ended(ExitStatus),
    /// Moved out, to the task that waits for orphans.
    Moved,
}

impl Child {
    /// Wraps a child that has just been started. Kills it if it cannot be watched.
    pub(super) fn of(mut child: process::Child, runtime: Handle, kills_on_drop: bool) -> io::Result<Child> {
        let mut take = || -> io::Result<_> {
            let stdin = child.stdin.take().map(ChildStdin::from_std).transpose()?;
            let stdout = child.stdout.take().map(ChildStdout::from_std).transpose()?;
            let stderr = child.stderr.take().map(ChildStderr::from_std).transpose()?;
            Ok((Watch::new(&child)?, stdin, stdout, stderr))
        };
        match take() {
            Ok((watch, stdin, stdout, stderr)) => {
                let state = State::Running(child, watch);
                Ok(Child { state, runtime, kills_on_drop, stdin, stdout, stderr })
            }
            Err(error) => {
                // No other code has a handle to the child yet, so no other code could wait for it.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Returns the process ID of the child. Returns `None` after the exit of the child was seen,
    /// because the system may then give the ID to another process.
    pub fn id(&self) -> Option<u32> {
        match &self.state {
            State::Running(child, _) => Some(child.id()),
            _ => None,
        }
    }

    /// Waits until the child exits, and returns its status.
    ///
    /// Closes the child's standard input first. Otherwise a child that reads until the end of its
    /// input would wait for the calling program, while that program waits for the child.
    ///
    /// If the runtime that started the child has been shut down, the wait continues on the runtime
    /// in which the future is polled.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails, or if both runtimes have been shut
    /// down.
    ///
    /// # Cancel safety
    /// This method is cancel safe, except that the standard input is closed. The status is kept,
    /// and every later call returns it.
    ///
    /// ```
    /// use volt::process::Command;
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let mut child = Command::new("true").spawn()?;
    /// assert!(child.wait().await?.success());
    /// assert!(child.id().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        poll_fn(|cx| self.poll_exit(cx)).await
    }

    fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        match &mut self.state {
            State::Running(child, watch) => {
                let mut exit = ready!(watch.poll_exit(cx, child));
                if exit.as_ref().is_err_and(ShutDownError::is_in)
                    && let Ok(current) = Handle::try_current()
                {
                    // The runtime that started the child is shut down. The current one, if it is
                    // another, can wait as well.
                    *watch = Watch::new(child)?;
                    self.runtime = current;
                    exit = ready!(watch.poll_exit(cx, child));
                }
                let status = exit?;
                self.state = State::Ended(status);
                Poll::Ready(Ok(status))
            }
            State::Ended(status) => Poll::Ready(Ok(*status)),
            State::Moved => unreachable!("it is handed on when it is dropped"),
        }
    }

    /// Returns the status of the child if it has exited, or `None` if it is still running. Does not
    /// wait.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if let State::Running(child, _) = &mut self.state
            && let Some(status) = child.try_wait()?
        {
            self.state = State::Ended(status);
        }
        match &self.state {
            State::Ended(status) => Ok(Some(*status)),
            _ => Ok(None),
        }
    }

    /// Sends SIGKILL to the child without waiting for its exit. Does nothing if the child has
    /// already been waited for.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn start_kill(&mut self) -> io::Result<()> {
        match &mut self.state {
            State::Running(child, _) => child.kill(),
            _ => Ok(()),
        }
    }

    /// Sends SIGKILL to the child, and waits until it exits.
    ///
    /// # Errors
    /// Returns the same errors as [`start_kill`](Self::start_kill) and [`wait`](Self::wait).
    ///
    /// # Cancel safety
    /// The same as for [`wait`](Self::wait).
    ///
    /// ```
    /// use volt::process::Command;
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let mut child = Command::new("sleep").arg("3600").spawn()?;
    /// child.kill().await?;
    /// assert!(!child.wait().await?.success());
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn kill(&mut self) -> io::Result<()> {
        self.start_kill()?;
        self.wait().await.map(drop)
    }

    /// Waits until the child exits, and collects its remaining output.
    ///
    /// Reads the standard output and the standard error to the end if they are pipes. Closes the
    /// standard input first, as [`wait`](Self::wait) does.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails, or if the runtime has been shut down.
    ///
    /// # Cancel safety
    /// This method is not cancel safe. If the future is dropped, the `Child` and the output that
    /// was read are lost.
    pub async fn wait_with_output(mut self) -> io::Result<Output> {
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let (status, stdout, stderr) = join3(self.wait(), whole(stdout), whole(stderr)).await;
        Ok(Output { status: status?, stdout: stdout?, stderr: stderr? })
    }
}

/// Reads everything from `pipe` until the end of the stream.
async fn whole(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.kills_on_drop && self.runtime.shared().identity.home.is_here() {
            // An error means that the child has exited.
            let _ = self.start_kill();
        }
        if let State::Running(child, watch) = std::mem::replace(&mut self.state, State::Moved) {
            orphans::adopt(child, watch, &self.runtime);
        }
    }
}
