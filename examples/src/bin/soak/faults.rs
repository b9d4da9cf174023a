//! The faults that are injected into the program under test, from outside.
//!
//! Each fault lasts for a moment and is taken back. Which comes next, when, and for how long, is
//! chosen by the seed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::{dump, tasks};

use crate::random::Random;

/// The longest time of a fault.
const FAULT_MAX: Duration = Duration::from_millis(1_500);
/// The part of a processor that the program has left under the small quota: 20 of 100 ms.
const SMALL_QUOTA: &str = "20000";
/// No limit, in a control group of version 1.
const NO_QUOTA: &str = "-1";
/// Where the control groups of version 1 are mounted, and the program's own group in each.
const CPU_GROUPS: &str = "/sys/fs/cgroup/cpu";
const PID_GROUPS: &str = "/sys/fs/cgroup/pids";

/// A fault that is injected into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// All its threads stop (SIGSTOP), and continue.
    Stop,
    /// It can open no further descriptor.
    Descriptors,
    /// It has a fifth of a processor.
    Quota,
    /// It can start no further thread.
    Threads,
    /// A client dumps all tasks, which polls each of them.
    Dump,
    /// A client lists tasks, and takes snapshots.
    Questions,
    /// A client records every event, and disconnects.
    Recording,
    /// A client subscribes, and does not read what it is sent.
    Stalled,
}

impl Fault {
    pub(crate) const ALL: [Self; 8] = [
        Self::Stop,
        Self::Descriptors,
        Self::Quota,
        Self::Threads,
        Self::Dump,
        Self::Questions,
        Self::Recording,
        Self::Stalled,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Descriptors => "descriptors",
            Self::Quota => "quota",
            Self::Threads => "threads",
            Self::Dump => "dump",
            Self::Questions => "questions",
            Self::Recording => "recording",
            Self::Stalled => "stalled client",
        }
    }
}

/// The program under test, as the faults reach it.
pub(crate) struct Victim {
    pid: u32,
    socket: PathBuf,
    cpu: Result<Group, String>,
    pids: Result<Group, String>,
}

impl Victim {
    /// Prepares the faults. Where there are no control groups that this user may change, the faults
    /// that need them are left out; see [`missing`](Self::missing).
    pub(crate) fn new(pid: u32, socket: PathBuf) -> Self {
        let group = |root| {
            let needs = "needs root, and control groups of version 1";
            Group::with(root, pid).map_err(|error| format!("no control group in {root}: {error}; {needs}"))
        };
        Self { pid, socket, cpu: group(CPU_GROUPS), pids: group(PID_GROUPS) }
    }

    /// Returns why a fault cannot be injected here, if so.
    pub(crate) fn missing(&self, fault: Fault) -> Option<String> {
        match fault {
            Fault::Quota => self.cpu.as_ref().err().cloned(),
            Fault::Threads => self.pids.as_ref().err().cloned(),
            _ => None,
        }
    }

    /// Injects a fault, and takes it back after a random time.
    ///
    /// # Errors
    /// If the fault cannot be injected or taken back, or a client gets no answer.
    pub(crate) fn inject(&self, fault: Fault, random: &mut Random) -> Result<(), String> {
        let time = FAULT_MAX.mul_f64(random.ratio());
        let said = |error: io::Error| format!("{}: {error}", fault.name());
        match fault {
            Fault::Stop => {
                self.signal(Signal::STOP).map_err(said)?;
                thread::sleep(time);
                self.signal(Signal::CONT).map_err(said)
            }
            Fault::Descriptors => {
                let before = self.limit_descriptors(self.descriptors().map_err(said)?).map_err(said)?;
                thread::sleep(time);
                self.set_limit(before).map_err(said)
            }
            Fault::Quota => self.in_group(&self.cpu, "cpu.cfs_quota_us", SMALL_QUOTA, NO_QUOTA, time).map_err(said),
            Fault::Threads => {
                let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).map_err(said)?.count().to_string();
                self.in_group(&self.pids, "pids.max", &threads, "max", time).map_err(said)
            }
            Fault::Dump => self
                .client()
                .and_then(|mut client| client.dump(None, &dump::Query::default()))
                .map(drop)
                .map_err(|error| self.no_answer(fault, error)),
            Fault::Questions => self.questions().map_err(|error| self.no_answer(fault, error)),
            Fault::Recording => self.recording(time).map_err(|error| self.no_answer(fault, error)),
            Fault::Stalled => self.stalled(time).map_err(|error| self.no_answer(fault, error)),
        }
    }

    /// Returns what every task waits for, as text: for a load that has stopped.
    pub(crate) fn dump(&self) -> String {
        let dumped = self.client().and_then(|mut client| client.dump(None, &dump::Query::default()));
        dumped.map_or_else(|error| format!("no dump: {error}"), |dump| dump.text())
    }

    fn no_answer(&self, fault: Fault, error: ConnectError) -> String {
        format!("{}: pid {}: {error}", fault.name(), self.pid)
    }

    fn client(&self) -> Result<Client, ConnectError> {
        Client::connect(&self.socket)
    }

    fn questions(&self) -> Result<(), ConnectError> {
        let mut client = self.client()?;
        let list = client.tasks(None, &tasks::Query { limit: 50, ..tasks::Query::default() })?;
        client.snapshot()?;
        if let Some(task) = list.rows.first() {
            match client.why(None, &task.id.to_string()) {
                // It may have ended meanwhile.
                Err(error) if !error.is_answer() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn recording(&self, time: Duration) -> Result<(), ConnectError> {
        let mut client = self.client()?;
        client.record(None, Duration::from_millis(100))?;
        let begun = std::time::Instant::now();
        while begun.elapsed() < time {
            client.next_flush(Duration::from_millis(200))?;
        }
        Ok(())
    }

    fn stalled(&self, time: Duration) -> Result<(), ConnectError> {
        let mut client = self.client()?;
        client.subscribe(Duration::from_millis(100))?;
        thread::sleep(time);
        Ok(())
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        kill_process(self.raw(), signal).map_err(io::Error::from)
    }

    fn raw(&self) -> Pid {
        Pid::from_raw(self.pid.cast_signed()).expect("the pid of a child is not zero")
    }

    /// Returns the number of open descriptors.
    pub(crate) fn descriptors(&self) -> io::Result<u64> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.pid))?.count() as u64)
    }

    /// Returns the memory in RAM, in bytes.
    pub(crate) fn resident_bytes(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        kib.map(|kib: u64| kib * 1024).ok_or_else(|| io::Error::other("no VmRSS in the status of the program"))
    }

    fn limit_descriptors(&self, max: u64) -> io::Result<Rlimit> {
        let before = rustix::process::getrlimit(Resource::Nofile);
        prlimit(Some(self.raw()), Resource::Nofile, Rlimit { current: Some(max), maximum: before.maximum })
            .map_err(io::Error::from)
    }

    fn set_limit(&self, limit: Rlimit) -> io::Result<()> {
        prlimit(Some(self.raw()), Resource::Nofile, limit).map(drop).map_err(io::Error::from)
    }

    fn in_group(
        &self,
        group: &Result<Group, String>,
        file: &str,
        small: &str,
        none: &str,
        time: Duration,
    ) -> io::Result<()> {
        let group = group.as_ref().map_err(|missing| io::Error::other(missing.clone()))?;
        group.set(file, small)?;
        thread::sleep(time);
        group.set(file, none)
    }
}

/// A control group that holds the program, and is removed with it.
struct Group(PathBuf);

impl Group {
    fn with(root: &str, pid: u32) -> io::Result<Self> {
        let group = Self(Path::new(root).join(format!("volt-soak-{pid}")));
        fs::create_dir(&group.0)?;
        group.set("cgroup.procs", &pid.to_string())?;
        Ok(group)
    }

    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.0.join(file), value)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group with a program that has not ended yet stays.
        let _ = fs::remove_dir(&self.0);
    }
}
