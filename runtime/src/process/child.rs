//! A child that runs, or has ended.

use std::future::poll_fn;
use std::io;
use std::process::{self, ExitStatus, Output};
use std::task::{Context, Poll, ready};

use futures_util::future::join3;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::process::orphans;
use crate::process::stdio::{ChildStderr, ChildStdin, ChildStdout};
use crate::process::watch::Watch;
use volt_core::handle::Handle;

/// A child process; see [`Command`](crate::process::Command).
///
/// Dropping it leaves the process running, unless
/// [`kill_on_drop`](crate::process::Command::kill_on_drop) was asked for; in either case its end is
/// waited for in the background, and it becomes no zombie.
#[derive(Debug)]
pub struct Child {
    state: State,
    runtime: Handle,
    kills_on_drop: bool,
    /// The pipe to its standard input, if that was asked for.
    pub stdin: Option<ChildStdin>,
    /// The pipe from its standard output, if that was asked for.
    pub stdout: Option<ChildStdout>,
    /// The pipe from its standard error, if that was asked for.
    pub stderr: Option<ChildStderr>,
}

#[derive(Debug)]
enum State {
    Running(process::Child, Watch),
    Ended(ExitStatus),
    /// Handed on.
    Gone,
}

impl Child {
    /// Takes a child over that has just been started; where it cannot be watched, it is ended.
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
                // Nobody has heard of it yet, and nobody could wait for it.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// The number of the process; `None` once its end was seen, since the number may be another's
    /// then.
    pub fn id(&self) -> Option<u32> {
        match &self.state {
            State::Running(child, _) => Some(child.id()),
            _ => None,
        }
    }

    /// Waits for its end. Its standard input is closed first, so that a child that reads until the
    /// end does not wait for this one.
    ///
    /// # Errors
    /// What the system says; the runtime was shut down.
    ///
    /// # Cancel safety
    /// Nothing is lost but the pipe to its standard input: the status is kept, and every later call
    /// gives it.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        poll_fn(|cx| self.poll_exit(cx)).await
    }

    fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        match &mut self.state {
            State::Running(child, watch) => {
                let status = ready!(watch.poll_exit(cx, child))?;
                self.state = State::Ended(status);
                Poll::Ready(Ok(status))
            }
            State::Ended(status) => Poll::Ready(Ok(*status)),
            State::Gone => unreachable!("it is handed on when it is dropped"),
        }
    }

    /// Its status if it has ended, without waiting.
    ///
    /// # Errors
    /// What the system says.
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

    /// Sends it SIGKILL, and does not wait for its end.
    ///
    /// # Errors
    /// `InvalidInput` if its end was seen already; what the system says.
    pub fn start_kill(&mut self) -> io::Result<()> {
        match &mut self.state {
            State::Running(child, _) => child.kill(),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the process has ended")),
        }
    }

    /// Sends it SIGKILL, and waits for its end.
    ///
    /// # Errors
    /// As [`start_kill`](Self::start_kill) and [`wait`](Self::wait).
    ///
    /// # Cancel safety
    /// As [`wait`](Self::wait).
    pub async fn kill(&mut self) -> io::Result<()> {
        self.start_kill()?;
        self.wait().await.map(drop)
    }

    /// Waits for its end, and reads what it writes to those of its standard streams that are pipes.
    ///
    /// # Errors
    /// What the system says; the runtime was shut down.
    ///
    /// # Cancel safety
    /// None: what was read is lost, with the child.
    pub async fn wait_with_output(mut self) -> io::Result<Output> {
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let (status, stdout, stderr) = join3(self.wait(), whole(stdout), whole(stderr)).await;
        Ok(Output { status: status?, stdout: stdout?, stderr: stderr? })
    }
}

/// All that comes.
async fn whole(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.kills_on_drop && self.runtime.shared().home.is_here() {
            // An error means that it has ended.
            let _ = self.start_kill();
        }
        if let State::Running(child, watch) = std::mem::replace(&mut self.state, State::Gone) {
            orphans::adopt(child, watch, &self.runtime);
        }
    }
}
