//! Tests of all rules: each fires on its problem and not on what looks similar, and none fires on
//! healthy programs.

mod cases;
mod programs;

use std::collections::BTreeSet;

use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::incident::{Cause, CauseTime, Frame, Incident};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::{Phase, Snapshot, Worker};

use self::cases::all;
use self::cases::edges::EDGES;
use self::cases::processes::{mailbox, restarting};
use self::cases::stalls::in_flight;
use self::programs::{MS, Pair, busy, idle, saturated};
use super::describe::Describe;
use super::rule::{RULES, count_of, examine, markdown_table};

fn rules(findings: &[Finding]) -> BTreeSet<Rule> {
    findings.iter().map(|finding| finding.rule).collect()
}

/// Returns the frame of the program at this line of `src/pay.rs`.
fn at_line(line: u32) -> Frame {
    Frame { file: Some("src/pay.rs".into()), line: Some(line), is_user_code: true, ..Frame::default() }
}

#[test]
fn each_rule_fires_alone_on_its_case_not_on_the_healthy_one() {
    for case in all() {
        let (before, after) = case.sick();
        let findings = examine(&before, &after);
        let mut expected: BTreeSet<_> = case.beside.iter().copied().collect();
        expected.insert(case.rule);
        assert_eq!(rules(&findings), expected, "{}: {findings:#?}", case.what);
        let worst = findings.iter().filter(|finding| finding.rule == case.rule).map(|finding| finding.severity).max();
        assert_eq!(worst, Some(case.severity), "{}: {findings:#?}", case.what);
        let (before, after) = case.healthy();
        let findings = examine(&before, &after);
        assert!(!rules(&findings).contains(&case.rule), "{}: {findings:#?}", case.but);
    }
}

#[test]
fn each_threshold_is_near_its_documented_value() {
    for edge in EDGES {
        let worst = |(before, after): Pair| {
            let findings = examine(&before, &after);
            findings.iter().filter(|finding| finding.rule == edge.rule).map(|finding| finding.severity).max()
        };
        let (over, under) = (worst((edge.over.1)()), worst((edge.under.1)()));
        assert_eq!((over, under), (Some(edge.over.0), edge.under.0), "{}: {}", edge.rule, edge.what);
    }
}

#[test]
fn numbers_at_the_end_of_their_range_are_judged_as_any_others() {
    let with = |(before, mut after): Pair, change: fn(&mut Snapshot)| {
        change(&mut after);
        (before, after)
    };
    let programs = [
        (Rule::MailboxGrowing, mailbox(u64::MAX - 1, u64::MAX, 5)),
        (Rule::RestartStorm, with(restarting(100, 0), |now| now.processes.as_mut().unwrap().restarts = u64::MAX)),
        (
            Rule::CpuStarved,
            with(busy(), |now| {
                in_flight(now, 150);
                now.workers[1].run_delay_ns = Some(u64::MAX);
            }),
        ),
    ];
    for (rule, (before, after)) in programs {
        let findings = examine(&before, &after);
        assert!(rules(&findings).contains(&rule), "{findings:#?}");
    }
}

#[test]
fn every_rule_has_a_case() {
    let covered: BTreeSet<_> = all().map(|case| case.rule).collect();
    for entry in &RULES {
        // Problems that grow over minutes have their tests in `growth` and `history`.
        assert!(covered.contains(&entry.rule) || entry.rule == Rule::TaskLeak, "{}", entry.name);
    }
}

/// Between two calls of `block_on`, nothing polls the driver or takes tasks from the global queue.
#[test]
fn a_current_thread_runtime_that_no_thread_runs_is_no_finding() {
    let problems: [fn(&mut Snapshot); 2] = [
        |snapshot| {
            snapshot.parked_bitmap = vec![0];
            snapshot.timers.armed = 1;
            snapshot.driver.idle_ns = 1_500_000_000;
        },
        |snapshot| snapshot.global_queue.oldest_age_ns = Some(1_500_000_000),
    ];
    let expected = [Rule::DriverHeld, Rule::ParkedWhileBacklog];
    for (problem, rule) in problems.into_iter().zip(expected) {
        let (mut before, mut after) = idle();
        for snapshot in [&mut before, &mut after] {
            problem(snapshot);
            snapshot.searching = 0;
        }
        assert!(rules(&examine(&before, &after)).contains(&rule), "{rule} fires for workers that run");
        for snapshot in [&mut before, &mut after] {
            snapshot.config.flavor = "current_thread".into();
            snapshot.workers[0].phase = Phase::Stopped;
        }
        assert!(!rules(&examine(&before, &after)).contains(&rule), "{rule}");
    }
}

#[test]
fn no_rule_fires_on_healthy_programs() {
    for (what, (before, after)) in [("idle", idle()), ("busy", busy()), ("saturated", saturated())] {
        assert_eq!(examine(&before, &after), [], "{what}");
    }
}

#[test]
fn every_finding_has_a_title_evidence_and_advice() {
    for case in all() {
        let (before, after) = case.sick();
        for finding in examine(&before, &after) {
            let what = case.what;
            assert!(!finding.title.is_empty() && !finding.title.contains('\n'), "{what}: {:?}", finding.title);
            assert!(finding.advice.ends_with('.'), "{what}: {:?}", finding.advice);
            assert!(!finding.evidence.is_empty(), "{what}");
            for evidence in &finding.evidence {
                assert!(evidence.text.contains(": "), "{what}: {evidence:?}");
                let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
                assert!(evidence.key.bytes().all(is_name), "{what}: {evidence:?}");
            }
        }
    }
}

#[test]
fn the_worst_finding_is_first() {
    let (before, mut after) = busy();
    after.workers[0].lost_wakeup_rescues += 1;
    after.sentinel.pauses += 1;
    after.host.as_mut().unwrap().throttled_ns = Some(100_000_000);
    let severities: Vec<_> = examine(&before, &after).iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Severity::Critical, Severity::Warning, Severity::Info]);
}

#[test]
fn one_snapshot_shows_only_problems_of_this_moment() {
    for case in all() {
        let (_, after) = case.sick();
        for finding in examine(&after, &after) {
            let may = [
                Rule::StalledPoll,
                Rule::LifoHeld,
                Rule::LostWakeup,
                Rule::Deadlock,
                Rule::LockHeld,
                Rule::WaitingForever,
                Rule::MailboxGrowing,
            ]
            .contains(&finding.rule);
            assert!(may, "{}: {finding:#?}", case.what);
        }
    }
}

#[test]
fn two_runtimes_of_one_name_are_not_compared() {
    for case in all() {
        let (before, mut after) = case.sick();
        after.started_at_ns = before.at_ns + 1;
        let alone = examine(&after, &after);
        assert_eq!(examine(&before, &after), alone, "{}", case.what);
    }
}

#[test]
fn snapshots_too_close_together_count_as_one() {
    let (before, mut after) = busy();
    after.at_ns = before.at_ns + 50_000_000;
    after.workers[0].lost_wakeup_rescues += 1;
    assert_eq!(examine(&before, &after), examine(&after, &after));
}

#[test]
fn the_metric_counts_findings_by_severity() {
    let (before, mut after) = busy();
    after.sentinel.pauses += 1;
    let findings = examine(&before, &after);
    let count = |severity| count_of(&findings, Rule::ProgramPaused, severity);
    assert_eq!((findings.len(), Severity::ALL.map(count)), (1, [1, 0, 0]));
    let (before, after) = all().find(|case| case.rule == Rule::DriverHeld).unwrap().sick();
    let findings = examine(&before, &after);
    assert_eq!(Severity::ALL.map(|severity| count_of(&findings, Rule::DriverHeld, severity)), [0, 1, 0]);
}

#[test]
fn an_unrecorded_poll_has_its_cause_and_no_line_of_another() {
    let case = all().find(|case| case.what == "a poll of a place that was stuck a moment ago").unwrap();
    let (before, after) = case.sick();
    let findings = examine(&before, &after);
    assert_eq!(findings.len(), 2, "the one before is another: {findings:#?}");
    let (stuck, before) = (&findings[0], &findings[1]);
    assert_eq!((stuck.workers.clone(), stuck.tasks[0].id), (vec![1], 9), "the one that goes on");
    let title = "has blocked worker 1 for 140 ms (probable cause: io, as in an earlier poll)";
    assert!(stuck.title.contains(title) && !stuck.title.contains("pay.rs"), "{stuck:#?}");
    assert_eq!((stuck.locations.len(), before.locations[0].at()), (1, "src/pay.rs:40"), "{findings:#?}");
    let has = |key: &str| stuck.evidence.iter().any(|evidence| evidence.key == key);
    assert!(has("known_from") && has("line"), "{stuck:#?}");
    let known_from = stuck.evidence.iter().find(|evidence| evidence.key == "known_from").unwrap();
    assert!(known_from.text.ends_with(": incident 1 (io at src/pay.rs:40)"), "{known_from:?}");
}

#[test]
fn stalls_that_were_only_counted_belong_to_the_spawn_location() {
    let (before, mut after) = busy();
    let ended = |id: u64, line: u32, suppressed: u64| Incident {
        id,
        spawned_at: "src/main.rs:1:1".into(),
        began_at_ns: after.at_ns - 500_000_000,
        for_ns: 30_000_000,
        is_over: true,
        cause: Cause::Sleep,
        stack: vec![at_line(line)],
        suppressed,
        ..Incident::default()
    };
    after.incidents.latest = vec![ended(1, 22, 0), ended(2, 67, 40), ended(3, 22, 2)];
    let findings = examine(&before, &after);
    assert_eq!(findings.len(), 2, "{findings:#?}");
    for finding in &findings {
        let figure = |key| finding.figure(key).unwrap();
        let own = if finding.locations[0].at().ends_with(":22") { 2 } else { 1 };
        assert_eq!((figure("seen_count"), figure("suppressed_count")), (own, 42), "{finding:#?}");
    }
}

#[test]
fn a_wait_for_a_lock_names_a_possible_holder() {
    let (before, mut after) = busy();
    let at_ns = after.at_ns;
    let stuck = |task_id: u64, cause: Cause, ago_ms: u64, for_ms: u64| Incident {
        id: task_id,
        spawned_at: format!("src/main.rs:{task_id}:1"),
        task_id,
        cause,
        is_over: true,
        began_at_ns: at_ns - ago_ms * 1_000_000,
        for_ns: for_ms * 1_000_000,
        ..Incident::default()
    };
    let at_lock = Frame { function: Some("std::sys::sync::mutex::futex::Mutex::lock".into()), ..Frame::default() };
    let waiter = Incident { stack: vec![at_lock], ..stuck(4, Cause::Lock, 300, 200) };
    let holder = stuck(9, Cause::Sleep, 400, 300);
    after.incidents.latest = vec![stuck(5, Cause::Lock, 300, 200), stuck(6, Cause::Io, 90, 50), waiter.clone()];
    let text = |after: &Snapshot, key: &str| {
        let findings = examine(&before, after);
        let finding = findings.iter().find(|finding| finding.tasks[0].id == 4).unwrap().clone();
        finding.evidence.into_iter().find(|evidence| evidence.key == key).map(|evidence| evidence.text)
    };
    assert!(text(&after, "holder").unwrap().contains("unknown, because"));
    assert_eq!(text(&after, "possible_holder"), None, "one waits too, the other was stuck later");
    after.incidents.latest.push(holder);
    let named = text(&after, "possible_holder").unwrap();
    assert!(named.contains("task 9 spawned at src/main.rs:9:1 (cause: sleep)"), "{named}");
}

#[test]
fn a_wait_is_for_a_lock_only_if_its_stack_shows_one() {
    let (before, mut after) = busy();
    let named = |function: &str| Frame { function: Some(function.into()), ..Frame::default() };
    let in_user_code = Frame { is_user_code: true, ..named("shop::Mutex::of_its_own") };
    let mut shown = |functions: &[&str]| {
        let stack = functions.iter().copied().map(named).chain([in_user_code.clone()]).collect();
        let holder = Incident { task_id: 86, cause: Cause::Sleep, causes: vec![], ..waited_and_slept(&after) };
        after.incidents.latest = vec![holder, Incident { causes: vec![], stack, ..waited_and_slept(&after) }];
        let findings = examine(&before, &after);
        let of_waiter = findings.iter().find(|finding| finding.tasks[0].id == 85).unwrap();
        let has = |key: &str| of_waiter.evidence.iter().any(|evidence| evidence.key == key);
        (of_waiter.advice.starts_with("Hold the lock"), has("holder"), has("possible_holder"))
    };
    let at_lock = (true, true, true);
    assert_eq!(shown(&["syscall", "std::sys::sync::mutex::futex::Mutex::lock_contended"]), at_lock);
    assert_eq!(shown(&["__lll_lock_wait", "pthread_mutex_lock"]), at_lock);
    assert_eq!(shown(&["<parking_lot::raw_rwlock::RawRwLock as lock_api::RwLock<()>>::lock_shared"]), at_lock);
    let elsewhere = (false, false, false);
    assert_eq!(shown(&["syscall", "std::thread::park", "std::sync::mpsc::Receiver<T>::recv"]), elsewhere);
    assert_eq!(shown(&["std::sync::poison::condvar::Condvar::wait<std::sync::MutexGuard<()>>"]), elsewhere);
    assert_eq!(shown(&["syscall"]), (false, false, true), "nothing is known");
    assert_eq!(shown(&[]), (false, false, true));
}

/// A poll that waited for a lock at line 19 for 1.3 s, and then slept at line 26 for 300 ms.
fn waited_and_slept(now: &Snapshot) -> Incident {
    let frame = Frame { file: Some("main.rs".into()), line: Some(19), is_user_code: true, ..Frame::default() };
    let part = |cause, ms: u64, line: u32| CauseTime { cause, for_ns: ms * MS, at: Some(format!("main.rs:{line}")) };
    Incident {
        id: 16,
        task_id: 85,
        worker: 1,
        began_at_ns: now.at_ns - 1_600 * MS,
        for_ns: 1_600 * MS,
        spawned_at: "src/feed.rs:8:9".into(),
        cause: Cause::Lock,
        causes: vec![part(Cause::Lock, 1_300, 19), part(Cause::Sleep, 290, 26), part(Cause::Cpu, 10, 30)],
        stack: vec![frame],
        ..Incident::default()
    }
}

#[test]
fn a_poll_with_two_causes_has_the_time_and_line_of_each() {
    let (before, mut after) = busy();
    after.incidents.latest = vec![waited_and_slept(&after)];
    let findings = examine(&before, &after);
    let finding = findings.iter().find(|finding| finding.rule == Rule::StalledPoll).unwrap();
    let title = "task 85 has blocked worker 1 for 1.6 s (causes: lock 1.3 s at main.rs:19, sleep 290 ms at main.rs:26)";
    assert_eq!(finding.title, title);
    assert_eq!(finding.locations[0].at(), "main.rs:19", "{finding:#?}");
    assert!(finding.advice.contains("lock"), "{finding:#?}");
    let texts: Vec<_> = finding.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    assert!(texts.contains(&"time by cause: lock 1.3 s at main.rs:19, sleep 290 ms at main.rs:26"), "{texts:#?}");
    assert!(texts.contains(&"longest time of this cause (lock) in one of them: 1.3 s"), "{texts:#?}");
}

#[test]
fn a_block_behind_the_machine_is_judged_by_its_own_time() {
    let (before, after) = busy();
    let part = |cause, ms: u64, at: Option<&str>| CauseTime { cause, for_ns: ms * MS, at: at.map(str::to_owned) };
    let found = |slept_ms: u64| {
        let mut after = after.clone();
        let sleep = part(Cause::Sleep, slept_ms, Some("main.rs:26"));
        let causes = vec![sleep, part(Cause::NotScheduled, 1_600 - slept_ms, None)];
        after.incidents.latest = vec![Incident { cause: Cause::Sleep, causes, ..waited_and_slept(&after) }];
        let mut findings = examine(&before, &after);
        findings.retain(|finding| finding.rule == Rule::StalledPoll);
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings.remove(0)
    };
    let long = found(150);
    let title = "task 85 has blocked worker 1 for 1.6 s (causes: sleep 150 ms at main.rs:26, not_scheduled 1.4 s)";
    assert_eq!(long.title, title);
    assert!(long.severity == Severity::Critical && long.advice.contains("time::sleep"), "{long:#?}");
    assert_eq!(found(30).severity, Severity::Info);
}

#[test]
fn a_poll_that_slept_after_its_wait_may_hold_the_lock() {
    let (before, mut after) = busy();
    let waits = Incident { id: 17, task_id: 86, causes: vec![], ..waited_and_slept(&after) };
    after.incidents.latest = vec![waited_and_slept(&after), waits];
    let findings = examine(&before, &after);
    let of_waiter = findings.iter().find(|finding| finding.tasks[0].id == 86).unwrap();
    let holder = of_waiter.evidence.iter().find(|evidence| evidence.key == "possible_holder").unwrap();
    assert!(holder.text.ends_with("task 85 at main.rs:26 (cause: sleep)"), "{holder:?}");
}

#[test]
fn an_unrecorded_poll_has_all_causes_of_earlier_polls() {
    let (before, mut after) = busy();
    let ended = Incident { is_over: true, began_at_ns: after.at_ns - 3_000 * MS, ..waited_and_slept(&after) };
    after.incidents.latest = vec![ended];
    in_flight(&mut after, 140);
    let findings = examine(&before, &after);
    let stuck = findings.iter().find(|finding| finding.tasks[0].id == 9).unwrap();
    let title = "has blocked worker 1 for 140 ms (probable cause: lock or sleep, as in earlier polls)";
    assert!(stuck.title.ends_with(title), "{stuck:#?}");
    let text = |key: &str| stuck.evidence.iter().find(|evidence| evidence.key == key).unwrap().text.as_str();
    assert_eq!(text("cause"), "cause: unknown");
    let known =
        "earlier polls of the same spawn location: incident 16 (lock at main.rs:19), incident 16 (sleep at main.rs:26)";
    assert_eq!(text("known_from"), known);
    assert_eq!(stuck.locations.len(), 1, "it is at no line of another poll: {stuck:#?}");
}

#[test]
fn an_unrecorded_poll_beside_an_outage_is_no_second_finding() {
    let outage = |at_ns: u64, for_ms: u64, line: u32| Incident {
        task_id: 7,
        spawned_at: "src/feed.rs:8:9".into(),
        began_at_ns: at_ns - 1_000 * MS,
        for_ns: for_ms * MS,
        is_over: true,
        cause: Cause::Sleep,
        stack: vec![at_line(line)],
        ..Incident::default()
    };
    let (before, mut after) = busy();
    in_flight(&mut after, 140);
    after.incidents.latest = vec![outage(after.at_ns, 300, 40)];
    let findings = examine(&before, &after);
    assert_eq!(findings.len(), 1, "it is one problem: {findings:#?}");
    assert_eq!((findings[0].severity, findings[0].locations[0].at()), (Severity::Critical, "src/pay.rs:40"));
    assert_eq!((findings[0].tasks[0].id, findings[0].seen.last_at_ns), (7, after.at_ns), "{findings:#?}");
    let similar = findings[0].evidence.iter().find(|evidence| evidence.key == "similar_polls").unwrap();
    assert!(similar.text.ends_with("task 9 blocked worker 1 for 140 ms"), "{similar:?}");
    // Their list is bounded.
    let (mut crowd, poll) = (after.clone(), after.workers[1].in_flight.clone());
    let stuck = |index: u32| Worker { index, in_flight: poll.clone(), ..crowd.workers[1].clone() };
    crowd.workers = (0..20).map(stuck).collect();
    let findings = examine(&before, &crowd);
    let evidence = findings.iter().flat_map(|finding| &finding.evidence);
    let similar: Vec<_> = evidence.filter(|evidence| evidence.key == "similar_polls").collect();
    assert!(similar.len() == 1 && similar[0].text.ends_with(", and 12 more"), "{findings:#?}");
    // Otherwise the line of the poll is too uncertain.
    let short = vec![outage(after.at_ns, 30, 40)];
    let two_lines = vec![outage(after.at_ns, 300, 40), outage(after.at_ns, 300, 50)];
    let mut old = vec![outage(after.at_ns, 300, 40)];
    old[0].began_at_ns -= 30_000 * MS;
    let mut unknown = vec![outage(after.at_ns, 300, 40)];
    (unknown[0].stack, unknown[0].stack_error) = (Vec::new(), Some("stacks are off".into()));
    for others in [short, two_lines, old, unknown] {
        let count = others.len();
        after.incidents.latest = others;
        let findings = examine(&before, &after);
        assert_eq!(findings.len(), count + 1, "{findings:#?}");
        assert_eq!((findings[0].severity, findings[0].tasks[0].id), (Severity::Critical, 9), "{findings:#?}");
        assert_eq!(findings[0].locations[0].at(), "src/feed.rs:8:9", "{findings:#?}");
    }
}

#[test]
fn an_old_incident_does_not_explain_a_current_poll() {
    let case = all().find(|case| case.what == "a poll of a place that was stuck a moment ago").unwrap();
    let (before, mut after) = case.sick();
    after.incidents.latest[0].began_at_ns -= 30_000_000_000;
    let findings = examine(&before, &after);
    let severities: Vec<_> = findings.iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Severity::Critical, Severity::Info], "{findings:#?}");
    assert!(findings[0].title.contains("cause unknown"), "{findings:#?}");
}

#[test]
fn of_many_stuck_locations_a_few_are_reported() {
    let (before, mut after) = busy();
    let stuck = |line: u32| Incident { spawned_at: format!("src/main.rs:{line}:1"), for_ns: 1, ..Incident::default() };
    after.incidents.latest = (0..64).map(stuck).collect();
    assert_eq!(examine(&before, &after).len(), 16);
}

#[test]
fn a_finding_is_an_object_with_its_numbers_by_name() {
    let (before, after): Pair = all().find(|case| case.rule == Rule::StalledPoll).unwrap().sick();
    let json = serde_json::to_value(&examine(&before, &after)[0]).unwrap();
    assert_eq!((&json["rule"], &json["severity"]), (&"stalled-poll".into(), &"critical".into()));
    let number =
        |key: &str| json["evidence"].as_array().unwrap().iter().find(|evidence| evidence["key"] == key).cloned();
    assert_eq!(number("for_ns").unwrap()["value"], 300_000_000_u64);
    assert_eq!(number("for_ns").unwrap()["text"], "duration so far: 300 ms");
    assert_eq!(number("cause").unwrap()["value"], "sleep");
    assert_eq!(json["tasks"], serde_json::json!([{ "id": 7, "name": "checkout" }]));
    let guilty = serde_json::json!({ "kind": "guilty", "at": "src/pay.rs:40", "function": "shop::pay" });
    let spawned = serde_json::json!({ "kind": "spawned", "at": "src/main.rs:12:5" });
    assert_eq!(json["locations"], serde_json::json!([guilty, spawned]));
}

#[test]
fn names_are_unique_and_found_again() {
    let names: BTreeSet<_> = RULES.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), RULES.len());
    for entry in &RULES {
        assert_eq!(Rule::by_name(entry.name), Some(entry.rule));
        assert!(entry.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", entry.name);
    }
    assert_eq!(Rule::by_name("all-is-well"), None);
}

#[test]
fn the_table_in_the_documentation_is_this_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dashboards/README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let table = markdown_table();
    // The lines of the list are wrapped in the file.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&readme).contains(&words(&table)), "{path} must contain this:\n{table}");
}
