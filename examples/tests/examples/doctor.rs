//! Tests of the doctor: each symptom runs as a separate program, and the test examines it over the
//! control socket, as the console would.
//!
//! Some rules are left out, because no program here can cause them. `lost-wakeup` would be a bug in
//! Volt, and the runtime's own tests inject it (`scheduler::shared`). `steal-contention` needs more
//! processors than a test can rely on. Their other cases are covered in `volt_diagnosis::doctor`.
//! The test of `cgroup-throttled` is skipped where no control group can be created, unless
//! `VOLT_REQUIRE_CGROUP` is set.
//!
//! Findings about the machine are correct and not caused by the program, so the rules for it may
//! fire at any time ([`MACHINE`]).

use std::fs::DirBuilder;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::group::{Group, REQUIRED};
use volt_diagnosis::doctor::rule::examine;
use volt_telemetry::client::{Client, resolve};
use volt_telemetry::finding::{Figure, Finding, Place, Severity};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::Program;
use volt_telemetry::socket::Environment;

/// Time between two snapshots.
const APART: Duration = Duration::from_millis(300);
/// Time between two snapshots for rules that need a longer time.
const FAR_APART: Duration = Duration::from_millis(1_100);
/// The number of pairs of snapshots of a counterpart.
const HEALTHY_PAIRS: usize = 3;
/// How long a symptom may take to appear. Most appear immediately, and a leak after half a minute.
const TIMEOUT: Duration = Duration::from_secs(80);
/// How long a slow leak may take to appear: three minutes, and the time to start on a busy machine.
const SLOW_TIMEOUT: Duration = Duration::from_secs(220);
/// The number of pairs of snapshots of the leak's counterpart: longer than it takes to find a leak.
const LEAK_PAIRS: usize = 30;
/// The same for waits that are far longer than usual.
const FOREVER_PAIRS: usize = 45;
/// Rules that other programs on the machine may cause to fire at any time.
const MACHINE: [Rule; 3] = [Rule::CpuStarved, Rule::CgroupThrottled, Rule::ProgramPaused];

/// Lets only one program run at a time, because most use all processors, or depend on having them
/// alone. Programs that only wait ([`is_patient`]) share it.
static ALONE: RwLock<()> = RwLock::new(());

/// Returns whether this rule needs a minute, in which the symptom and its counterpart use hardly
/// any processor time.
fn is_patient(rule: Rule) -> bool {
    matches!(rule, Rule::TaskLeak | Rule::WaitingForever)
}

/// Returns the command that runs a symptom, or its counterpart.
fn symptom(name: &str, healthy: bool) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symptoms"));
    command.args([name, "--seconds", "240"]).args(healthy.then_some("--healthy"));
    command
}

/// A running program; killed when dropped.
struct Patient {
    child: Child,
    folder: PathBuf,
    client: Client,
    /// Time between two snapshots.
    apart: Duration,
}

impl Patient {
    fn with_symptom(rule: Rule, healthy: bool, groups: &[PathBuf]) -> Self {
        let mut command = symptom(rule.name(), healthy);
        command.args(groups.iter().flat_map(|folder| [Path::new("--group"), folder]));
        let mut patient = Self::start(command);
        if is_patient(rule) || rule == Rule::RestartStorm {
            patient.apart = FAR_APART;
        }
        patient
    }

    /// Starts the program, and waits until it has printed a line.
    fn start(mut command: Command) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // ORDERING: Relaxed; only the number matters, it publishes no other data.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Not `TMPDIR`, whose path may be too long for a socket.
        let folder = PathBuf::from(format!("/tmp/volt-doctor-test-{}-{number}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder).expect("a new folder in /tmp");
        command.env("VOLT_SOCKET_DIR", &folder).env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        assert!(lines.read_line(&mut String::new()).unwrap() > 0, "{command:?} prints nothing");
        // Later output is discarded, so that it does not block the program.
        thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let environment = Environment { socket_dir: Some(folder.clone()), ..Environment::of_program() };
        let path = resolve(&child.id().to_string(), &environment).expect("its control socket");
        let client = Client::connect(&path).expect("it accepts connections");
        Self { child, folder, client, apart: APART }
    }

    fn snapshot(&mut self) -> Program {
        self.client.snapshot().expect("a snapshot")
    }

    /// Returns the findings from `before` to the snapshot after it, which replaces `before`.
    fn examine_from(&mut self, before: &mut Program) -> Vec<Finding> {
        // Not a synchronization: the time over which the program is observed.
        thread::sleep(self.apart);
        let after = self.snapshot();
        let pairs = before.runtimes.iter().zip(&after.runtimes);
        let mut findings: Vec<_> = pairs.flat_map(|(before, after)| examine(before, after)).collect();
        findings.extend(own_leaks(&after));
        *before = after;
        findings
    }
}

/// Returns the program's own findings of leaks, for which two snapshots are not enough.
fn own_leaks(program: &Program) -> Vec<Finding> {
    let own = program.runtimes.iter().flat_map(|runtime| runtime.findings.iter().flatten());
    own.filter(|finding| finding.rule == Rule::TaskLeak && finding.seen.is_current).cloned().collect()
}

impl Drop for Patient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Asserts that the doctor finds `rule` in its symptom and nothing else except the rules in
/// `beside`, and that it does not find `rule` in the counterpart. Returns the findings.
fn check(rule: Rule, beside: &[Rule]) -> Vec<Finding> {
    check_until(rule, beside, &[], |finding| finding.rule == rule)
}

/// Like [`check`], in control groups, and with a stricter condition on the finding.
fn check_until(rule: Rule, beside: &[Rule], groups: &[PathBuf], is_it: impl Fn(&Finding) -> bool) -> Vec<Finding> {
    let healthy = || findings_of_healthy(rule, groups);
    let (found, healthy) = if is_patient(rule) {
        let _shared = ALONE.read().unwrap_or_else(PoisonError::into_inner);
        thread::scope(|scope| {
            let healthy = scope.spawn(healthy);
            (find(rule, groups, is_it), healthy.join().expect("it panicked"))
        })
    } else {
        let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
        (find(rule, groups, is_it), healthy())
    };
    for finding in &found {
        let is_expected = finding.rule == rule || beside.contains(&finding.rule) || is_of_the_machine(finding, &found);
        // A stray stall on a busy machine is only an info.
        let is_expected = is_expected || finding.severity == Severity::Info;
        assert!(is_expected, "{rule} comes with {finding:#?}");
    }
    let least = found.iter().filter(|finding| finding.rule == rule).map(|finding| finding.severity).max();
    let least = least.min(Some(Severity::Warning));
    let mistaken: Vec<_> = healthy.iter().filter(|finding| Some(finding.severity) >= least).collect();
    assert!(mistaken.is_empty(), "the healthy counterpart of {rule} is taken for it: {mistaken:#?}");
    found
}

/// Returns the findings of this rule in its counterpart.
fn findings_of_healthy(rule: Rule, groups: &[PathBuf]) -> Vec<Finding> {
    let mut patient = Patient::with_symptom(rule, true, groups);
    let mut before = patient.snapshot();
    // The start of the program does not count: threads start, and pages are loaded. In a control
    // group, the start can use up the quota for some periods.
    let began = Instant::now();
    while patient.examine_from(&mut before).iter().any(|finding| finding.rule == rule) && !groups.is_empty() {
        assert!(began.elapsed() < TIMEOUT, "the healthy counterpart of {rule} is taken for it all the time");
    }
    let pairs = match rule {
        Rule::TaskLeak => LEAK_PAIRS,
        Rule::WaitingForever => FOREVER_PAIRS,
        _ => HEALTHY_PAIRS,
    };
    let findings = (0..pairs).flat_map(|_| patient.examine_from(&mut before));
    findings.filter(|finding| finding.rule == rule).collect()
}

/// Returns whether the machine causes the finding. This includes a poll that becomes a stall
/// because of the machine, for example while it waits for a lock whose holder is not scheduled. It
/// also includes a stall without a cause that the kernel reports: on a host of virtual machines,
/// time passes while this one is not running. (`.ci/causes` tests that causes are reported.)
fn is_of_the_machine(finding: &Finding, beside: &[Finding]) -> bool {
    let is_short_of_time = beside.iter().any(|finding| MACHINE.contains(&finding.rule));
    let has_no_cause = finding.evidence.iter().any(|evidence| evidence.text == "cause: unknown");
    MACHINE.contains(&finding.rule) || finding.rule == Rule::StalledPoll && (is_short_of_time || has_no_cause)
}

/// Observes the symptom until a finding meets the condition, and returns all findings of that time.
fn find(rule: Rule, groups: &[PathBuf], is_it: impl Fn(&Finding) -> bool) -> Vec<Finding> {
    let mut patient = Patient::with_symptom(rule, false, groups);
    let (mut before, began) = (patient.snapshot(), Instant::now());
    loop {
        let found = patient.examine_from(&mut before);
        if found.iter().any(&is_it) {
            return found;
        }
        assert!(began.elapsed() < TIMEOUT, "{rule} is not found: {found:#?} in {before:#?}");
    }
}

#[test]
fn the_doctor_finds_a_task_that_sleeps_with_its_line_and_cause() {
    // Capturing the first stack takes a while. Until then, the finding has no line of code.
    let is_guilty = |finding: &Finding| matches!(finding.locations.first(), Some(Place::Guilty { .. }));
    let found = check_until(Rule::StalledPoll, &[], &[], is_guilty);
    let stall = found.iter().find(|finding| is_guilty(finding)).expect("the finding was awaited above");
    assert_eq!(stall.tasks[0].name.as_deref(), Some("sleeper"), "{stall:#?}");
    let word = |key| stall.evidence.iter().find(|evidence| evidence.key == key).map(|evidence| evidence.text.as_str());
    assert_eq!(word("cause"), Some("cause: sleep, the thread sleeps in the kernel"), "{stall:#?}");
    let places: Vec<_> = stall.locations.iter().map(Place::at).collect();
    assert_eq!(places.len(), 2, "{stall:#?}");
    assert!(places.iter().all(|at| at.contains("symptoms/stalls.rs")), "{stall:#?}");
}

/// A task that computes for milliseconds may occasionally do so for long enough to be a stall.
#[test]
fn the_doctor_finds_tasks_that_compute_while_others_wait() {
    check(Rule::NoYield, &[Rule::StalledPoll]);
}

/// The poll that blocks the driver is itself stuck.
#[test]
fn the_doctor_finds_workers_that_are_all_stuck_and_delay_timers() {
    check(Rule::DriverHeld, &[Rule::StalledPoll]);
}

/// The polls of its tasks are short, except while other programs use the processors.
#[test]
fn the_doctor_finds_a_worker_that_sleeps_despite_a_backlog() {
    check(Rule::ParkedWhileBacklog, &[Rule::NoYield]);
}

/// The polls that keep the workers from checking the global queue are long.
#[test]
fn the_doctor_finds_tasks_that_wait_long_in_the_global_queue() {
    check(Rule::GlobalStarved, &[Rule::NoYield, Rule::StalledPoll]);
}

/// A stuck poll blocks the LIFO slot, and the ring behind it too. The sentinel is off, so it
/// records no incident and sends no other worker to the driver.
#[test]
fn the_doctor_finds_a_task_that_is_stuck_in_a_lifo_slot() {
    check(Rule::LifoHeld, &[Rule::NoYield, Rule::ParkedWhileBacklog, Rule::DriverHeld]);
}

#[test]
fn the_doctor_finds_tasks_that_monopolize_their_worker() {
    check(Rule::LifoMonopoly, &[]);
}

#[test]
fn the_doctor_finds_workers_with_uneven_work() {
    check(Rule::Imbalance, &[]);
}

#[test]
fn the_doctor_finds_workers_that_are_woken_for_almost_no_work() {
    check(Rule::WakeStorm, &[]);
}

#[test]
fn the_doctor_finds_a_task_that_wakes_itself() {
    check(Rule::SelfWakeLoop, &[]);
}

#[test]
fn the_doctor_finds_workers_without_a_processor() {
    check(Rule::CpuStarved, &[]);
}

/// A worker that waits long for a processor delays the tasks in its queues.
#[test]
fn the_doctor_finds_more_busy_workers_than_processors() {
    check(Rule::Oversubscribed, &[Rule::StalledPoll]);
}

#[test]
fn the_doctor_finds_workers_whose_quota_is_spent() {
    // Dropped last, when no program is in the group any more.
    let group = match Group::make() {
        Ok(group) => group,
        Err(reasons) => {
            assert!(std::env::var_os(REQUIRED).is_none(), "no control group with a quota: {reasons:?}");
            eprintln!("SKIPPED: no control group with a quota can be made here: {reasons:?}");
            return;
        }
    };
    let counts = |finding: &Finding| finding.rule == Rule::CgroupThrottled && finding.severity == Severity::Critical;
    check_until(Rule::CgroupThrottled, &[], group.folders(), counts);
}

/// Usually the task that waits behind a lost waker is the other end of a channel; here there is
/// none.
#[test]
fn the_doctor_finds_tasks_that_nothing_can_wake() {
    let found = check(Rule::LostWaker, &[]);
    let lost = found.iter().find(|finding| finding.rule == Rule::LostWaker).expect("the finding was awaited above");
    assert!(lost.locations[0].at().contains("symptoms/piles.rs"), "{lost:#?}");
    assert_eq!(lost.evidence[0].value, Figure::Count(3), "{lost:#?}");
}

#[test]
fn the_doctor_finds_tasks_that_wait_for_each_other() {
    let found = check(Rule::Deadlock, &[]);
    let deadlock = found.iter().find(|finding| finding.rule == Rule::Deadlock).expect("the finding was awaited above");
    assert_eq!(deadlock.severity, Severity::Critical, "{deadlock:#?}");
    assert!(deadlock.locations.iter().all(|place| place.at().contains("symptoms/piles.rs")), "{deadlock:#?}");
    let names: Vec<_> = deadlock.tasks.iter().filter_map(|task| task.name.as_deref()).collect();
    assert!(names.contains(&"settlement") && names.contains(&"pricing"), "{deadlock:#?}");
}

/// Beside the other tests: the two programs use hardly any processor time.
#[test]
fn the_doctor_finds_tasks_with_full_channels_to_each_other() {
    let starts = |is_healthy| Patient::start(symptom("deadlock-channels", is_healthy));
    let [mut stuck, mut healthy] = [false, true].map(starts);
    let (mut before, mut before_healthy, began) = (stuck.snapshot(), healthy.snapshot(), Instant::now());
    let is_it = |finding: &Finding| finding.rule == Rule::Deadlock;
    let found = loop {
        let mistaken: Vec<_> = healthy.examine_from(&mut before_healthy).into_iter().filter(is_it).collect();
        assert!(mistaken.is_empty(), "{mistaken:#?}");
        if let Some(found) = stuck.examine_from(&mut before).into_iter().find(is_it) {
            break found;
        }
        assert!(began.elapsed() < TIMEOUT, "the deadlock is not found: {before:#?}");
    };
    assert_eq!(found.severity, Severity::Warning, "{found:#?}");
    assert!(found.title.contains("room in a channel"), "{found:#?}");
    assert!(found.locations.iter().all(|place| place.at().contains("symptoms/channels.rs")), "{found:#?}");
    let names: Vec<_> = found.tasks.iter().filter_map(|task| task.name.as_deref()).collect();
    assert!(names.contains(&"kitchen") && names.contains(&"till"), "{found:#?}");
}

#[test]
fn the_doctor_finds_a_lock_that_is_held_while_others_wait() {
    let found = check(Rule::LockHeld, &[]);
    let held = found.iter().find(|finding| finding.rule == Rule::LockHeld).expect("the finding was awaited above");
    assert!(held.locations.iter().all(|place| place.at().contains("symptoms/piles.rs")), "{held:#?}");
    assert_eq!(held.tasks[0].name.as_deref(), Some("settlement"), "{held:#?}");
    assert!(held.title.contains("4 others wait"), "{held:#?}");
}

#[test]
fn the_doctor_finds_tasks_that_never_get_an_answer() {
    let found = check(Rule::WaitingForever, &[]);
    let forever =
        found.iter().find(|finding| finding.rule == Rule::WaitingForever).expect("the finding was awaited above");
    assert!(forever.locations[0].at().contains("symptoms/answers.rs"), "{forever:#?}");
    assert_eq!((forever.locations.len(), forever.tasks[0].name.as_deref()), (1, Some("client")), "{forever:#?}");
    assert!(forever.title.contains("a value"), "{forever:#?}");
}

#[test]
fn the_doctor_finds_a_blocking_pool_that_is_full() {
    check(Rule::BlockingPoolSaturated, &[]);
}

#[test]
fn the_doctor_finds_tasks_that_never_end() {
    let found = check(Rule::TaskLeak, &[]);
    let leak = found.iter().find(|finding| finding.rule == Rule::TaskLeak).expect("the finding was awaited above");
    assert!(leak.locations[0].at().contains("symptoms/piles.rs"), "the place is known: {leak:#?}");
}

/// Beside the other tests: the two programs use hardly any processor time, and do not depend on it.
#[test]
fn the_doctor_finds_28_leaked_tasks_per_second() {
    let [mut leak, mut healthy] = [false, true].map(|is_healthy| Patient::start(symptom("task-leak-slow", is_healthy)));
    let began = Instant::now();
    let found = loop {
        // Not a synchronization: the time over which the programs are observed.
        thread::sleep(FAR_APART);
        let leaks = own_leaks(&leak.snapshot());
        let mistaken = own_leaks(&healthy.snapshot());
        assert!(mistaken.is_empty(), "{mistaken:#?}");
        if let Some(found) = leaks.into_iter().find(|finding| finding.severity >= Severity::Warning) {
            break found;
        }
        assert!(began.elapsed() < SLOW_TIMEOUT, "the slow leak is not found");
    };
    assert!(found.locations[0].at().contains("symptoms/leaks.rs"), "the place is known: {found:#?}");
    let awaits = "; at least half await a message at examples/src/bin/symptoms/leaks.rs:";
    assert!(found.title.contains(awaits) && found.advice.contains("senders"), "and the await: {found:#?}");
}

#[test]
fn the_doctor_finds_a_process_that_falls_behind_its_messages() {
    let found = check(Rule::MailboxGrowing, &[]);
    let growing =
        found.iter().find(|finding| finding.rule == Rule::MailboxGrowing).expect("the finding was awaited above");
    assert!(growing.title.contains("\"slow\"") && growing.title.contains("local:"), "{growing:#?}");
    assert!(growing.locations[0].at().contains("symptoms/processes.rs"), "{growing:#?}");
}

#[test]
fn the_doctor_finds_a_process_that_is_restarted_again_and_again() {
    let found = check(Rule::RestartStorm, &[]);
    let storm = found.iter().find(|finding| finding.rule == Rule::RestartStorm).expect("the finding was awaited above");
    let last = storm.evidence.iter().find(|evidence| evidence.key == "last_failure").expect("one has failed");
    assert!(last.text.contains("failed: the database does not respond"), "{storm:#?}");
    assert!(storm.locations[0].at().contains("symptoms/processes.rs"), "{storm:#?}");
}

#[test]
fn the_doctor_finds_a_program_that_is_stopped_now_and_then() {
    check(Rule::ProgramPaused, &[]);
}

/// A service, a load generator, and an exporter without clients.
#[test]
fn the_doctor_finds_nothing_in_busy_and_idle_healthy_runtimes() {
    let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.args(["--headless", "--no-block", "--seconds", "60", "--metrics", "127.0.0.1:0"]);
    let mut patient = Patient::start(command);
    let mut before = patient.snapshot();
    patient.examine_from(&mut before);
    assert!(before.runtimes.len() >= 3, "{before:#?}");
    for _ in 0..HEALTHY_PAIRS {
        let found = patient.examine_from(&mut before);
        for finding in found.iter().filter(|finding| finding.severity >= Severity::Warning) {
            assert!(is_of_the_machine(finding, &found), "{finding:#?}");
        }
    }
}
