//! What the kernel knows of a thread that another one watches: whether it ran, waited for a
//! processor or was blocked, and in what.
//!
//! Shape, bottom to top: `thread` (one thread's numbers, read from outside it), `cgroup` (how often
//! the quota of the process's control group held it up), `host` (what there is for the process),
//! `waits` (which system calls and kernel functions mean sleep, lock, I/O or memory), `cause` (two
//! samples become a [`Cause`](volt_telemetry::incident::Cause)).
//!
//! Knows nothing of tasks, workers or runtimes. Only Linux says these things; elsewhere there are
//! no samples, and every cause is unknown.
//!
//! Invariants. *Its own process only*: no privilege is needed, since the kernel lets a process read
//! its own threads whatever `ptrace_scope` and `perf_event_paranoid` say. *Absent is `None`*: what
//! the kernel does not tell, or not to this process, is never a 0.
//! *Nothing is stopped*: no signal is sent, and no thread waits because it is sampled.

pub mod cause;
pub mod cgroup;
pub mod host;
pub mod thread;
mod waits;

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;
