//! Child processes, through the public API.

use crate::watchdog;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::watchdog::{watched, with_workers};
use volt::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use volt::process::{ChildStdout, Command};
use volt::time::timeout;

const SOON: Duration = Duration::from_millis(5);

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Returns whether the process exists, even as a zombie.
fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_wait_for_a_child_returns_its_status_again_and_again() {
    with_workers(|runtime| {
        runtime.block_on(async {
            assert_eq!(sh("exit 7").status().await.unwrap().code(), Some(7));
            let mut child = sh("read line; exit 3").stdin(Stdio::piped()).spawn().unwrap();
            assert!(exists(child.id().unwrap()));
            assert_eq!(child.try_wait().unwrap(), None);
            assert!(child.stdin.is_some());
            // Closes its standard input, without which it would not end.
            assert_eq!(child.wait().await.unwrap().code(), Some(3));
            assert_eq!(child.wait().await.unwrap().code(), Some(3));
            assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(3));
            assert_eq!(child.id(), None);
            child.start_kill().unwrap();
            child.kill().await.unwrap();
            assert_eq!(Command::new("no-such-program").spawn().unwrap_err().kind(), ErrorKind::NotFound);
        });
        assert_eq!(runtime.handle().snapshot().driver.registrations, 0);
    });
}

#[test]
fn a_runtime_waits_for_the_child_of_another_runtime() {
    watched(|| {
        let spawn = |command: &mut Command| watchdog::runtime(1).block_on(async { command.spawn().unwrap() });
        let mut child = spawn(sh("read line; exit 5").stdin(Stdio::piped()));
        let orphan = spawn(sh("read line").stdin(Stdio::piped()));
        let (runtime, pid) = (watchdog::runtime(1), orphan.id().unwrap());
        runtime.block_on(async {
            assert_eq!(child.wait().await.unwrap().code(), Some(5));
            drop(orphan);
            while exists(pid) {
                // A start of another child checks those that their runtime has left.
                sh("exit 0").status().await.unwrap();
            }
        });
        assert_eq!(runtime.handle().snapshot().driver.registrations, 0);
    });
}

#[test]
fn spawn_with_starts_the_child_by_the_given_function() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut command = sh("exit 3");
            let error = command.spawn_with(|_| Err(ErrorKind::Deadlock.into())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Deadlock);
            let mut child = command.spawn_with(|command| command.args(["ignored"]).spawn()).unwrap();
            assert_eq!(child.wait().await.unwrap().code(), Some(3));
            let arguments: Vec<_> = command.as_std().get_args().collect();
            assert_eq!(arguments, ["-c", "exit 3", "ignored"]);
        });
    });
}

#[test]
fn many_children_are_awaited_concurrently() {
    const CHILDREN: i32 = 40;
    with_workers(|runtime| {
        runtime.block_on(async {
            let waits = (0..CHILDREN)
                .map(|n| volt::spawn(async move { sh(&format!("exit {n}")).status().await.unwrap().code() }));
            for (n, wait) in (0..).zip(waits.collect::<Vec<_>>()) {
                assert_eq!(wait.await.unwrap(), Some(n));
            }
        });
    });
}

#[test]
fn wait_reports_the_kill_after_an_earlier_wait_was_cancelled() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut child = sh("exec sleep 1000").spawn().unwrap();
            assert!(timeout(SOON, child.wait()).await.is_err());
            child.kill().await.unwrap();
            assert_eq!(child.wait().await.unwrap().signal(), Some(9));
        });
    });
}

#[test]
fn pipes_transfer_more_than_their_capacity_both_ways() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            let text = "to and fro ".repeat(100_000);
            let sent = text.clone();
            let writes = volt::spawn(async move { stdin.write_all(sent.as_bytes()).await.unwrap() });
            let output = child.wait_with_output().await.unwrap();
            writes.await.unwrap();
            assert!(output.status.success() && output.stdout == text.as_bytes());
            let output = sh("echo out; echo err >&2").output().await.unwrap();
            assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        });
        assert_eq!(runtime.handle().snapshot().driver.registrations, 0);
    });
}

#[test]
fn writing_to_an_exited_child_is_a_broken_pipe() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut child = sh("exit 0").stdin(Stdio::piped()).spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            child.wait().await.unwrap();
            // Another test's child may have a copy of the other end until it has executed its
            // program.
            let error = loop {
                if let Err(error) = stdin.write_all(b"x").await {
                    break error;
                }
            };
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        });
    });
}

#[test]
fn one_childs_output_can_be_anothers_input() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut first = sh("echo hello").stdout(Stdio::piped()).spawn().unwrap();
            let pipe: Stdio = first.stdout.take().unwrap().try_into().unwrap();
            let output = Command::new("tr").args(["a-z", "A-Z"]).stdin(pipe).output().await.unwrap();
            assert_eq!(output.stdout, b"HELLO\n");
            first.wait().await.unwrap();
        });
    });
}

/// Returns the number that the script writes in its first line.
async fn pid(stdout: ChildStdout) -> u32 {
    BufReader::new(stdout).lines().next_line().await.unwrap().unwrap().parse().unwrap()
}

#[test]
fn a_dropped_child_continues_and_becomes_no_zombie() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut child = sh("echo $$; read line").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let (stdin, pid) = (child.stdin.take(), pid(child.stdout.take().unwrap()).await);
            assert_eq!(child.id(), Some(pid));
            drop(child);
            volt::time::sleep(SOON).await;
            assert!(exists(pid), "it goes on");
            drop(stdin);
            while exists(pid) {
                volt::task::yield_now().await;
            }
        });
    });
}

#[test]
fn kill_on_drop_kills_and_reaps_the_child() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut child = sh("echo $$; exec sleep 1000").stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
            let pid = pid(child.stdout.take().unwrap()).await;
            drop(child);
            while exists(pid) {
                volt::task::yield_now().await;
            }
            // The same when a future that owns the child is dropped.
            let mut command = sh("exec sleep 1000");
            let waits = command.kill_on_drop(true).status();
            assert!(timeout(SOON, waits).await.is_err());
        });
    });
}

#[test]
fn an_orphaned_child_is_reaped_by_the_next_runtime() {
    watched(|| {
        let first = watchdog::runtime(1);
        let (stdin, pid) = first.block_on(async {
            let mut child = sh("echo $$; read line").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let pid = pid(child.stdout.take().unwrap()).await;
            (child.stdin.take().unwrap().into_owned_fd().unwrap(), pid)
        });
        drop(first);
        assert!(exists(pid));
        drop(stdin);
        let second = watchdog::runtime(1);
        while exists(pid) {
            second.block_on(async { sh("exit 0").status().await }).unwrap();
        }
    });
}

#[test]
fn a_child_gets_its_environment_folder_and_group() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut command = sh("echo $A $B $HOME; pwd; cat /proc/self/stat | cut -d' ' -f5");
            command.env_clear().env("PATH", "/usr/bin:/bin").envs([("A", "1"), ("B", "2")]).env_remove("B");
            let output = command.current_dir("/").process_group(0).output().await.unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let lines = text.lines().collect::<Vec<_>>();
            assert_eq!(lines[..2], ["1", "/"]);
            assert_ne!(lines[2], rustix::process::getpgrp().as_raw_nonzero().to_string());
        });
    });
}

#[test]
fn a_pipe_of_a_child_is_read_as_it_comes() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut child = sh("while read line; do echo got $line; done")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            for text in ["a", "b"] {
                stdin.write_all(format!("{text}\n").as_bytes()).await.unwrap();
                let mut answer = [0; 6];
                stdout.read_exact(&mut answer).await.unwrap();
                assert_eq!(answer, *format!("got {text}\n").as_bytes());
            }
            drop(stdin);
            assert_eq!(stdout.read(&mut [0]).await.unwrap(), 0);
            assert!(child.wait().await.unwrap().success());
        });
    });
}
