//! Reads from the kernel what a thread is doing: whether it ran, waited for a processor or was
//! blocked, and in which system call or kernel function.
//!
//! A watcher is a thread that observes another thread of the same program. The runtime's
//! sentinel is one: it uses this module to explain why a poll does not complete.
//!
//! # Shape
//!
//! Modules, bottom to top:
//!
//! * `thread` reads one thread's counters from outside that thread.
//! * `cgroup` reads how often the processor quota of the program's control group stopped its
//!   threads.
//! * `host` reads what the machine provides: processors and their quota.
//! * `waits` classifies system calls and kernel functions as sleep, lock, I/O or memory.
//! * `cause` turns two samples into a [`Cause`](volt_telemetry::incident::Cause).
//!
//! This module does not depend on tasks, workers or runtimes. Only Linux provides these values. On
//! other systems there are no samples, and every cause is unknown.
//!
//! # Invariants
//!
//! * *Its own program only*: no privilege is needed, since the kernel lets a program read its own
//!   threads whatever `ptrace_scope` and `perf_event_paranoid` are set to.
//! * *Absent is `None`*: a value that the kernel does not report, or not to this program, is never
//!   0.
//! * *Nothing is stopped*: no signal is sent, and no thread waits because it is sampled.

pub mod cgroup;
pub mod thread;
mod waits;

pub mod cause;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod host;

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;
