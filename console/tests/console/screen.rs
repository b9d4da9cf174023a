//! A pseudo-terminal with a program on it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Longer than any step of these tests takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The sequences that leave and enter the alternate screen, and show the cursor.
pub const LEAVE: &str = "\u{1b}[?1049l";
pub const ENTER: &str = "\u{1b}[?1049h";
pub const SHOW: &str = "\u{1b}[?25h";
/// The sequences that capture and release the mouse.
const MOUSE_TAKEN: &str = "\u{1b}[?1000h";
const MOUSE_GIVEN_BACK: &str = "\u{1b}[?1000l";

#[derive(Default)]
struct Output {
    bytes: Mutex<(Vec<u8>, bool)>,
    changed: Condvar,
}

impl Output {
    /// Ignores poisoning: a test that failed with the lock held must not hide the reason.
    fn lock(&self) -> MutexGuard<'_, (Vec<u8>, bool)> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A program on a terminal.
pub struct Screen {
    terminal: OwnedFd,
    keyboard: File,
    output: Arc<Output>,
    child: Child,
    modes_before: LocalModes,
    is_hung_up: Arc<AtomicBool>,
    reader: JoinHandle<()>,
}

impl Screen {
    /// Starts `command` on a terminal of this size.
    pub fn start(mut command: Command, columns: u16, rows: u16) -> Screen {
        let keyboard =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pseudo-terminal");
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let terminal = OwnedFd::from(terminal);
        set_size(&terminal, columns, rows);
        let modes_before = tcgetattr(&terminal).unwrap().local_modes;
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("the program starts");
        drop(command);
        let output = Arc::new(Output::default());
        let keyboard = File::from(keyboard);
        let is_hung_up = Arc::new(AtomicBool::new(false));
        let (mut reader, filled) = (keyboard.try_clone().unwrap(), output.clone());
        let over = is_hung_up.clone();
        // The thread exits when the program closes its end of the terminal, or when this end is to
        // be closed.
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while is_readable(&reader, &over)
                && let Ok(count @ 1..) = reader.read(&mut buffer)
            {
                filled.lock().0.extend_from_slice(&buffer[..count]);
                filled.changed.notify_all();
            }
            filled.lock().1 = true;
            filled.changed.notify_all();
        });
        Screen { terminal, keyboard, output, child, modes_before, is_hung_up, reader }
    }

    /// Returns how many bytes were printed so far.
    pub fn mark(&self) -> usize {
        self.output.lock().0.len()
    }

    /// Waits until `text` is printed after `mark`. The program prints only cells that change, so
    /// each character of `text`, also a space, must differ from the one that it replaces.
    #[track_caller]
    pub fn wait_for(&self, text: &str, mark: usize) {
        self.wait_until(text, mark, |printed| printed.contains(text));
    }

    /// Waits until `text` is printed on the screen that the program entered last, the `number`th.
    #[track_caller]
    pub fn wait_on_screen(&self, number: usize, text: &str) {
        self.wait_until(text, 0, |printed| {
            let mut screens = printed.split(ENTER).skip(number);
            screens.next().is_some_and(|screen| screen.contains(text))
        });
    }

    #[track_caller]
    fn wait_until(&self, text: &str, mark: usize, is_printed: impl Fn(&str) -> bool) {
        let until = Instant::now() + TIMEOUT;
        let mut output = self.output.lock();
        loop {
            let printed = String::from_utf8_lossy(&output.0[mark..]).into_owned();
            if is_printed(&printed) {
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !output.1, "{text:?} was not printed, but {printed}");
            output = self.output.changed.wait_timeout(output, left).unwrap().0;
        }
    }

    /// Sends keys to the program.
    pub fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Resizes the terminal, and sends the signal that the kernel sends to the foreground process.
    pub fn resize(&self, columns: u16, rows: u16) {
        set_size(&self.terminal, columns, rows);
        self.signal(Signal::WINCH);
    }

    /// Returns whether the terminal passes on each key immediately.
    pub fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Closes the terminal without sending a signal. Returns how the program exited.
    #[track_caller]
    pub fn hang_up(self) -> ExitStatus {
        // ORDERING: Relaxed; the flag alone is the message, no other data is published with it.
        self.is_hung_up.store(true, Ordering::Relaxed);
        self.reader.join().unwrap();
        drop(self.keyboard);
        drop(self.terminal);
        wait_for_end(self.child)
    }

    /// Waits for the program to exit. Returns how it exited, and everything that it printed.
    #[track_caller]
    pub fn finish(self) -> (ExitStatus, String) {
        let status = wait_for_end(self.child);
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        assert_eq!(modes, self.modes_before, "the terminal's modes are what they were");
        // After this end is closed, the reader reaches the end of the output.
        drop(self.terminal);
        let mut output = self.output.lock();
        while !output.1 {
            let (next, timeout) = self.output.changed.wait_timeout(output, TIMEOUT).unwrap();
            assert!(!timeout.timed_out(), "the output has no end");
            output = next;
        }
        (status, String::from_utf8_lossy(&output.0).into_owned())
    }
}

/// Returns whether the program captured the mouse.
pub fn has_taken_mouse(printed: &str) -> bool {
    printed.contains(MOUSE_TAKEN)
}

/// Asserts that the program restored the screen and the cursor at the end.
#[track_caller]
pub fn assert_given_back(printed: &str) {
    let left = printed.rfind(LEAVE).expect("the alternate screen was left");
    assert!(printed.rfind(ENTER).expect("it was entered") < left);
    assert!(printed[left..].contains(SHOW), "the cursor is shown again");
    assert_eq!(printed.matches(LEAVE).count(), 1, "once is enough");
    assert_eq!(printed.matches(MOUSE_TAKEN).count(), printed.matches(MOUSE_GIVEN_BACK).count(), "the mouse too");
}

#[track_caller]
fn wait_for_end(mut child: Child) -> ExitStatus {
    let (sender, receiver) = std::sync::mpsc::channel();
    let pid = Pid::from_child(&child);
    std::thread::spawn(move || sender.send(child.wait().unwrap()));
    receiver.recv_timeout(TIMEOUT).unwrap_or_else(|_| {
        kill_process(pid, Signal::KILL).unwrap();
        panic!("the program did not end");
    })
}

/// Waits for output. Returns `false` if the terminal is to be hung up.
fn is_readable(keyboard: &File, is_hung_up: &AtomicBool) -> bool {
    let slice = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    loop {
        // ORDERING: Relaxed, as in `hang_up`.
        if is_hung_up.load(Ordering::Relaxed) {
            return false;
        }
        if poll(&mut [PollFd::new(keyboard, PollFlags::IN)], Some(&slice)).is_ok_and(|ready| ready > 0) {
            return true;
        }
    }
}

fn set_size(terminal: &OwnedFd, columns: u16, rows: u16) {
    tcsetwinsize(terminal, Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}
