//! Runs code in a forked child, which has a copy of this program's memory and none of its threads
//! except the one that forked.

use std::any::Any;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::{Pid, WaitOptions, waitpid};

/// The maximum duration of a child before the kernel ends it, seconds.
const CHILD_LIMIT: u32 = 8;

unsafe extern "C" {
    fn fork() -> i32;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: i32) -> !;
}

/// Runs `child` in a forked child. Panics with its message if it panics, or if it hangs.
pub fn in_child(child: impl FnOnce()) {
    let (mut report, mut writer) = std::io::pipe().unwrap();
    // SAFETY: a function of the C library. The child below does only what a copy of one thread can
    // do; that is what is tested.
    let pid = unsafe { fork() };
    if pid == 0 {
        // SAFETY: a function of the C library; the signal's default is to end the program.
        unsafe { alarm(CHILD_LIMIT) };
        // The parent reports panics, and each child would read the symbols anew for its backtraces.
        std::panic::set_hook(Box::new(|_| ()));
        let message = match catch_unwind(AssertUnwindSafe(child)) {
            Ok(()) => "well".to_owned(),
            Err(panic) => message_of(&*panic).to_owned(),
        };
        let _ = writer.write_all(message.as_bytes());
        // SAFETY: a function of the C library; nothing of the parent's may be torn down here.
        unsafe { _exit(0) };
    }
    drop(writer);
    let pid = Pid::from_raw(pid).expect("fork");
    let mut message = String::new();
    report.read_to_string(&mut message).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().expect("`waitpid` returns its status");
    assert_eq!(status.exit_status(), Some(0), "the child hangs or was killed: {status:?}");
    assert_eq!(message, "well", "in the child");
}

/// Returns the message of a panic.
pub fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}
