//! Tests of the verdict above every screen.

use volt_telemetry::finding::{Place, Severity};
use volt_telemetry::rule::Rule;

use super::*;

#[test]
fn every_screen_has_the_verdict_and_a_badge() {
    let place = Place::Guilty { at: "/home/shop/src/very/long/path/of/the/settlement.rs:33:21".into(), function: None };
    let deadlock = fixture::finding(Rule::Deadlock, Severity::Critical, &[7], &[place]);
    let leak = fixture::finding(Rule::TaskLeak, Severity::Warning, &[], &[]);
    let idle = fixture::finding(Rule::Imbalance, Severity::Info, &[], &[]);
    let mut unwell = fixture::found_model(vec![deadlock, leak, idle.clone()]);
    let mut well = fixture::found_model(Vec::new());
    let mut minor = fixture::found_model(vec![idle]);
    for chosen in Screen::ALL {
        [&mut unwell, &mut well, &mut minor].into_iter().for_each(|model| show(model, chosen));
        for size in [(80, 24), (120, 40), (200, 50)] {
            let drawn = screen(&unwell, size);
            let lines: Vec<&str> = drawn.lines().collect();
            assert!(lines[1].starts_with(" 1 critical: deadlock at "), "{drawn}");
            assert!(lines[1].contains("/settlement.rs:33; 1 warning"), "{drawn}");
            let tabs = tabs_of(&drawn, size.0);
            for screen in Screen::ALL {
                let [before, after] = if screen == chosen { ["[", "]"] } else { ["", " "] };
                let tab = format!("{} {before}{}{after}", screen.key(), screen.name());
                assert!(tabs.contains(&tab), "{tab:?} is missing:\n{drawn}");
            }
            assert!(tabs.contains("doctor 2!!") || tabs.contains("[doctor] 2!!"), "{drawn}");
            let drawn = screen(&well, size);
            assert_eq!(drawn.lines().nth(1), Some(" OK: no findings for 12 min"), "{drawn}");
            assert!(!tabs_of(&drawn, size.0).contains('!'), "{drawn}");
            let drawn = screen(&minor, size);
            assert_eq!(drawn.lines().nth(1), Some(" OK: no warnings for 12 min; 1 info"), "{drawn}");
        }
    }
    unwell.update(Message::Disconnected { reason: "the program has ended".into(), retry_in: fixture::STEP });
    assert!(screen(&unwell, (80, 24)).contains(" last known: 1 critical: deadlock at …"), "it is no longer current");
}

#[test]
fn the_verdict_names_a_warning_whose_line_is_known() {
    let place = Place::Guilty { at: "/home/shop/src/service.rs:151:9".into(), function: None };
    let starved = fixture::finding(Rule::CpuStarved, Severity::Critical, &[], &[]);
    let stalled = fixture::finding(Rule::StalledPoll, Severity::Warning, &[7], &[place]);
    let model = fixture::found_model(vec![starved, stalled]);
    let verdict = |columns| screen(&model, (columns, 24)).lines().nth(1).unwrap().to_owned();
    let whole = " 1 critical: cpu-starved; 1 warning: stalled-poll at /home/shop/src/service.rs:151";
    assert_eq!(verdict(200), whole);
    assert_eq!(verdict(80), " 1 critical: cpu-starved; 1 warning: stalled-poll at …me/shop/src/service.rs:151");
}

#[test]
fn a_small_screen_counts_the_findings_that_do_not_fit() {
    let model = fixture::found_model(vec![fixture::finding(Rule::TaskLeak, Severity::Warning, &[], &[]); 9]);
    for (height, shown) in [(6, 1), (7, 1), (8, 2), (20, 8), (21, 9), (23, 9)] {
        let drawn = screen(&model, (60, height));
        assert_eq!(drawn.matches("warning task-leak").count(), shown, "{drawn}");
        assert_eq!(drawn.contains(&format!("\nand {} more\n", 9 - shown)), shown < 9, "{drawn}");
    }
}

#[test]
fn a_stuck_worker_is_in_the_verdict_and_not_green() {
    let idle = fixture::finding(Rule::Imbalance, Severity::Info, &[], &[]);
    let mut program = fixture::program(2, 4);
    program.runtimes.iter_mut().for_each(|runtime| runtime.findings = Some(Vec::new()));
    program.runtimes[0].findings = Some(vec![idle]);
    let mut model = fixture::model(2, 2);
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    let mut terminal = terminal((80, 24));
    terminal.draw(|frame| draw(frame, &model, Theme::new(true), &mut Hits::default())).unwrap();
    let line = screen(&model, (80, 24)).lines().nth(1).unwrap().to_owned();
    assert_eq!(line, " 1 worker stuck for 230 ms, spawned at …les/src/bin/demo/handlers.rs:118; 1 info");
    let wanted = Theme::new(true).tone(crate::facts::Tone::Warn);
    assert_eq!(terminal.backend().buffer()[(1, 1)].fg, wanted.fg.unwrap());
}
