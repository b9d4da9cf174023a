//! Tests that need a child process: one that is stopped and continued, and one without symbols.
//! Each test runs itself again there.

use std::env;
use std::path::Path;
use std::process::{Child, Command};

use super::*;

/// Set in the child process in which a test runs itself.
const IN_CHILD: &str = "VOLT_STACKS_CHILD";
/// How long such a process may take.
const CHILD_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs the calling test in a child process of `program`.
fn child(program: &Path) -> Child {
    let test = thread::current().name().expect("the test harness names its threads").to_owned();
    Command::new(program).args([&test, "--exact", "--nocapture"]).env(IN_CHILD, "1").spawn().unwrap()
}

fn is_child() -> bool {
    env::var_os(IN_CHILD).is_some()
}

/// Waits until the child exits, which must be successful. Calls `meanwhile` repeatedly.
fn expect_success(mut child: Child, meanwhile: impl Fn(i32)) {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return;
        }
        if began.elapsed() > CHILD_TIMEOUT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it hangs");
        }
        meanwhile(child.id().cast_signed());
    }
}

#[test]
fn a_program_that_is_stopped_and_continued_reads_its_stacks() {
    if !is_child() {
        let stop_and_go = |pid| {
            for signal in [libc::SIGSTOP, libc::SIGCONT] {
                // SAFETY: our child process, which was not waited for yet.
                assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
                thread::sleep(Duration::from_millis(2));
            }
        };
        return expect_success(child(&env::current_exe().unwrap()), stop_and_go);
    }
    let sampler = sampler();
    let victim = Victim::stuck(&sampler, || {});
    none(&faults(&sampler, &victim));
    // Stopped for longer than the timeout: some requests get no answer, and none gets the answer
    // to another.
    let mut given_up = 0;
    for _ in 0..STACKS {
        match sampler.capture(&victim.thread, Duration::from_micros(50)) {
            Ok(stack) => assert_eq!(fault(&resolve(&stack)), None),
            Err(CaptureError::NoAnswer { .. } | CaptureError::Busy) => given_up += 1,
            Err(error) => panic!("{error}"),
        }
    }
    println!("{given_up} of {STACKS} requests got no answer");
    none(&faults(&sampler, &victim));
    victim.end();
}

#[test]
fn without_symbols_a_stack_has_addresses_and_the_reason() {
    if !is_child() {
        let folder = env::temp_dir().join(format!("volt-stacks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("stripped");
        let strip =
            Command::new("strip").arg("--strip-all").arg("-o").arg(&program).arg(env::current_exe().unwrap()).status();
        assert!(strip.expect("binutils are installed wherever Rust links").success());
        let child = child(&program);
        expect_success(child, |_| thread::yield_now());
        std::fs::remove_dir_all(&folder).unwrap();
        return;
    }
    let sampler = sampler();
    let victim = Victim::stuck(&sampler, || {});
    let resolved = stack_of(&sampler, &victim);
    // The frames down to the marked function, which is found by the unwind tables alone. By its
    // name it could not be found.
    let own: Vec<_> = resolved.frames.iter().filter(|frame| frame.module.as_deref() == Some("stripped")).collect();
    assert!((3..20).contains(&own.len()), "{resolved:#?}");
    assert!(
        own.iter().all(|frame| frame.function.is_none() && frame.line.is_none() && !frame.is_user_code),
        "{resolved:#?}"
    );
    let address = own[own.len() - 1].address;
    let mut modules = super::super::modules::Modules::default();
    modules.refresh();
    let start = poll_frame as *const () as u64 - modules.find(poll_frame as *const () as u64).unwrap().bias;
    assert!((start..start + 200).contains(&address), "{address:x} is not in the marked function at {start:x}");
    assert!(
        resolved.error.as_ref().is_some_and(|error| error.contains("stripped is stripped: build it with")),
        "{resolved:#?}"
    );
    victim.end();
}
