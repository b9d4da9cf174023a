//! A program that may make only the system calls of `docs/operations/seccomp.json` does everything:
//! any other call ends it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::folder::Folder;
use crate::signals::sigquit::sigquit;
use crate::watchdog::{alone_with, watched};
use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt_telemetry::client::Client;
use volt_telemetry::dump::Query;

const PROFILE: &str = include_str!("../../../../docs/operations/seccomp.json");
/// Set in the program that is restricted.
const RESTRICTED: &str = "VOLT_TEST_RESTRICTED";

/// Pairs each name with the number of the call.
macro_rules! numbers {
    ($($constant:ident)*) => { [$((stringify!($constant), libc::$constant)),*] };
}

/// Returns the numbers of the system calls that the profile may name.
fn numbers() -> BTreeMap<&'static str, i64> {
    let common = numbers! {
        SYS_accept4 SYS_bind SYS_brk SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_clone SYS_clone3
        SYS_close SYS_connect SYS_copy_file_range SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait
        SYS_epoll_pwait2 SYS_eventfd2 SYS_execve SYS_exit SYS_exit_group SYS_faccessat SYS_fallocate SYS_fchmod
        SYS_fcntl SYS_fdatasync SYS_flock SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_getdents64
        SYS_geteuid SYS_getpeername SYS_getpid SYS_getrandom SYS_getsockname SYS_getsockopt SYS_gettid SYS_ioctl
        SYS_kill SYS_listen SYS_lseek SYS_madvise SYS_mkdirat SYS_mmap SYS_mprotect SYS_mremap SYS_munmap
        SYS_newfstatat SYS_openat SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_ppoll SYS_prctl SYS_pread64
        SYS_prlimit64 SYS_pwrite64 SYS_read SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmsg SYS_renameat
        SYS_restart_syscall SYS_rseq SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_tgsigqueueinfo
        SYS_sched_getaffinity SYS_sched_yield SYS_sendmsg SYS_sendto SYS_set_robust_list SYS_set_tid_address
        SYS_setsockopt SYS_shutdown SYS_sigaltstack SYS_socket SYS_socketpair SYS_statx SYS_uname SYS_unlinkat
        SYS_wait4 SYS_waitid SYS_write SYS_writev
    };
    #[cfg(target_arch = "x86_64")]
    let others = numbers! {
        SYS_access SYS_arch_prctl SYS_dup2 SYS_epoll_wait SYS_mkdir SYS_open SYS_poll SYS_readlink SYS_rename SYS_rmdir
        SYS_unlink SYS_vfork
    };
    #[cfg(not(target_arch = "x86_64"))]
    let others: [(&str, i64); 0] = [];
    let all = common.into_iter().chain(others);
    all.map(|(constant, number)| (&constant["SYS_".len()..], number)).collect()
}

/// Returns the numbers of the calls that the profile allows on this processor.
fn allowed() -> Vec<u32> {
    let numbers = numbers();
    let profile: serde_json::Value = serde_json::from_str(PROFILE).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let mut allowed = Vec::new();
    for group in profile["syscalls"].as_array().unwrap() {
        assert_eq!(group["action"], "SCMP_ACT_ALLOW");
        for name in group["names"].as_array().unwrap() {
            match numbers.get(name.as_str().unwrap()) {
                Some(&number) => allowed.push(u32::try_from(number).unwrap()),
                None if cfg!(target_arch = "x86_64") => panic!("the test has no number for {name}"),
                // A call that only x86-64 has.
                None => {}
            }
        }
    }
    allowed
}

/// Returns a filter with one action for these calls, and another one for all others.
fn filter(calls: &[u32], action: u32, other: u32) -> Vec<libc::sock_filter> {
    #[cfg(target_arch = "x86_64")]
    const ARCHITECTURE: u32 = 0xC000_003E;
    #[cfg(target_arch = "aarch64")]
    const ARCHITECTURE: u32 = 0xC000_00B7;
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const IS_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    // In `seccomp_data`, the number of the call comes first, and then the architecture.
    let mut steps = vec![step(LOAD, 0, 0, 4), step(IS_EQUAL, 1, 0, ARCHITECTURE)];
    steps.push(step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS));
    steps.push(step(LOAD, 0, 0, 0));
    for &number in calls {
        steps.push(step(IS_EQUAL, 0, 1, number));
        steps.push(step(RETURN, 0, 0, action));
    }
    steps.push(step(RETURN, 0, 0, other));
    steps
}

/// Restricts this program, and all that it starts, to the filter. Async-signal-safe.
fn restrict(filter: &mut [libc::sock_filter]) -> std::io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: sets a flag of this process.
    let failed = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the kernel copies the filter, which is valid.
    let failed = failed | unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Prints the number of a forbidden call, and ends the program.
extern "C" fn on_sigsys(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // `si_syscall` follows three numbers and an address.
    let number = info.cast::<i32>().wrapping_add(6);
    // SAFETY: the kernel passes a valid `siginfo_t`, of 128 bytes.
    let number = unsafe { number.read() };
    let mut text = *b"forbidden system call 0000\n";
    let digits = [number / 1000, number / 100, number / 10, number].map(|digit| b'0' + (digit % 10) as u8);
    text[22..26].copy_from_slice(&digits);
    // SAFETY: writes from an array that is alive.
    let _written = unsafe { libc::write(libc::STDOUT_FILENO, text.as_ptr().cast(), text.len()) };
    // SAFETY: ends the program.
    unsafe { libc::_exit(1) };
}

fn report_forbidden_calls() {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zero is valid for all of its fields.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = on_sigsys as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the action is complete, and its handler is async-signal-safe.
    assert_eq!(unsafe { libc::sigaction(libc::SIGSYS, action, std::ptr::null_mut()) }, 0);
}

#[test]
fn the_calls_of_the_seccomp_profile_are_enough() {
    if std::env::var_os(RESTRICTED).is_some() {
        report_forbidden_calls();
        return watched(do_everything);
    }
    let folder = Folder::new();
    let boxes = folder.path("boxes");
    fs::create_dir(&boxes).unwrap();
    let mut filter = filter(&allowed(), libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_TRAP);
    let name = "operations::seccomp::the_calls_of_the_seccomp_profile_are_enough";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(RESTRICTED, "1");
    command.env("VOLT_SOCKET_DIR", folder.path("sockets")).env("VOLT_BLACK_BOX", &boxes);
    command.env("VOLT_METRICS", "0").env("VOLT_DUMP_ON_SIGQUIT", "1").env("TMPDIR", folder.path(""));
    // SAFETY: `restrict` is async-signal-safe.
    unsafe { command.pre_exec(move || restrict(&mut filter)) };
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The program waits until its dump was read.
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut stderr = String::new();
    while !stderr.contains("volt: end of the dump") && lines.read_line(&mut stderr).unwrap() > 0 {}
    drop(child.stdin.take());
    lines.read_to_string(&mut stderr).unwrap();
    let child = child.wait_with_output().unwrap();
    let stdout = String::from_utf8_lossy(&child.stdout);
    let has_run = stdout.contains("test result: ok. 1 passed") && stderr.contains("volt: end of the dump");
    assert!(child.status.success() && has_run, "{}\n{stdout}\n{stderr}", child.status);
    assert_eq!(fs::read_dir(boxes).unwrap().count(), 1, "a black box: {stderr}");
}

/// Calls that a container may refuse although Volt can do without them.
const DISPENSABLE: [&str; 8] = [
    "clock_getres",
    "epoll_pwait2",
    "fallocate",
    "flock",
    "fstatfs",
    "prctl",
    "rt_tgsigqueueinfo",
    "sched_getaffinity",
];

/// The error of the refused calls, in the program that is restricted.
const ERROR: &str = "VOLT_TEST_ERROR";

#[test]
fn a_runtime_works_without_calls_that_are_refused() {
    for error in [libc::EPERM, libc::ENOSYS] {
        let folder = Folder::new();
        let (sockets, boxes) = (folder.path("sockets"), folder.path("boxes"));
        fs::create_dir(&boxes).unwrap();
        let variables = [
            (ERROR, &*error.to_string()),
            ("VOLT_SOCKET_DIR", sockets.to_str().unwrap()),
            ("VOLT_BLACK_BOX", boxes.to_str().unwrap()),
        ];
        let stderr = alone_with(&variables, || watched(with_refused_calls));
        // In the program itself, one error is enough.
        let Some(stderr) = stderr else { return };
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

fn with_refused_calls() {
    let error: u32 = std::env::var(ERROR).unwrap().parse().unwrap();
    let numbers = numbers();
    let refused = DISPENSABLE.map(|name| u32::try_from(numbers[name]).unwrap());
    let mut filter = filter(&refused, libc::SECCOMP_RET_ERRNO | error, libc::SECCOMP_RET_ALLOW);
    restrict(&mut filter).unwrap();
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    // A poll that is stuck until another task runs on a spare worker.
    let (open, is_open) = mpsc::channel::<()>();
    let stuck = runtime.spawn(async move { _ = is_open.recv() });
    runtime.block_on(runtime.spawn(async {})).unwrap();
    let mut client = Client::connect(&volt::observe::socket_path().expect("a control socket")).unwrap();
    while client.snapshot().unwrap().runtimes[0].incidents.latest.is_empty() {}
    drop(open);
    runtime.block_on(stuck).unwrap();
    runtime.block_on(async { volt::time::sleep(Duration::from_millis(1)).await });
}

/// Uses every part of Volt that makes system calls.
fn do_everything() {
    let runtime = volt::Builder::new_multi_thread().worker_threads(2).tokio_compat(true).build().unwrap();
    runtime.block_on(async {
        for part in [volt::spawn(streams()), volt::spawn(files()), volt::spawn(children()), volt::spawn(signals())] {
            part.await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    });
    // A spare worker, and an incident with its stack.
    let (open, is_open) = mpsc::channel::<()>();
    let is_open = std::sync::Arc::new(std::sync::Mutex::new(is_open));
    for _ in 0..2 {
        let is_open = is_open.clone();
        runtime.spawn(async move { _ = is_open.lock().map(|open| open.recv()) });
    }
    runtime.block_on(runtime.spawn(async {})).unwrap();
    let is_named = |incident: &volt::telemetry::incident::Incident| {
        incident.stack.iter().any(|frame| frame.file.as_ref().is_some_and(|file| file.ends_with("seccomp.rs")))
    };
    let mut client = Client::connect(&volt::observe::socket_path().expect("a control socket")).unwrap();
    while !client.snapshot().unwrap().runtimes.iter().flat_map(|runtime| &runtime.incidents.latest).any(is_named) {}
    drop(open);
    // The console.
    client.recorder(None, Some(true)).unwrap();
    client.tasks(None, &volt_telemetry::tasks::Query::default()).unwrap();
    client.dump(None, &Query::default()).unwrap();
    sigquit();
    std::io::stdin().read_to_string(&mut String::new()).unwrap();
    // The page of metrics.
    let mut page = std::net::TcpStream::connect(volt::observe::metrics_addr().expect("a page")).unwrap();
    page.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    page.read_to_string(&mut text).unwrap();
    assert!(text.contains("volt_incidents_total"), "{text}");
    drop(runtime);
}

async fn streams() {
    let listener = volt::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = volt::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(b"hello").await.unwrap();
    });
    let mut stream = volt::net::TcpStream::connect(address).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    server.await.unwrap();
    assert_eq!(text, "hello");
    let (mut one, mut other) = volt::net::UnixStream::pair().unwrap();
    one.write_all(b"x").await.unwrap();
    other.read_exact(&mut [0]).await.unwrap();
    let socket = volt::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(b"x", socket.local_addr().unwrap()).await.unwrap();
    socket.recv_from(&mut [0]).await.unwrap();
    // Reads the configuration of the resolver, on a blocking thread.
    volt::net::lookup_host("localhost:80").await.unwrap().next().unwrap();
    volt::time::timeout(Duration::from_millis(1), std::future::pending::<()>()).await.unwrap_err();
}

async fn files() {
    let folder = std::env::temp_dir();
    let (first, second) = (folder.join("first"), folder.join("second"));
    volt::fs::write(&first, "hello").await.unwrap();
    volt::fs::rename(&first, &second).await.unwrap();
    volt::fs::copy(&second, &first).await.unwrap();
    assert_eq!(volt::fs::read_to_string(&first).await.unwrap(), "hello");
    assert_eq!(volt::fs::metadata(&first).await.unwrap().len(), 5);
    let mut entries = volt::fs::read_dir(&folder).await.unwrap();
    while entries.next_entry().await.unwrap().is_some() {}
    for file in [first, second] {
        volt::fs::File::open(&file).await.unwrap().sync_all().await.unwrap();
        volt::fs::remove_file(file).await.unwrap();
    }
}

async fn children() {
    let output = volt::process::Command::new("true").output().await.unwrap();
    assert!(output.status.success());
    let mut child = volt::process::Command::new("sleep").arg("60").spawn().unwrap();
    child.kill().await.unwrap();
}

async fn signals() {
    let mut listener = volt::signal::unix::signal(volt::signal::unix::SignalKind::hangup()).unwrap();
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP).unwrap();
    listener.recv().await.unwrap();
}
