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

/// Longer than anything here takes on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(20);

/// The sequences that give a terminal back: the normal screen, the cursor.
pub const LEAVE: &str = "\u{1b}[?1049l";
pub const ENTER: &str = "\u{1b}[?1049h";
pub const SHOW: &str = "\u{1b}[?25h";
/// The mouse's buttons, taken and given back.
const MOUSE_TAKEN: &str = "\u{1b}[?1000h";
const MOUSE_GIVEN_BACK: &str = "\u{1b}[?1000l";

#[derive(Default)]
struct Output {
    bytes: Mutex<(Vec<u8>, bool)>,
    changed: Condvar,
}

impl Output {
    /// A test that failed with the lock held must not hide why.
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
        // It ends when the program's end of the terminal is closed, or this one is to be.
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

    /// How much was printed so far.
    pub fn mark(&self) -> usize {
        self.output.lock().0.len()
    }

    /// Waits until `text` is printed, after `mark`: a single word, since blanks that are there
    /// already are jumped over.
    #[track_caller]
    pub fn wait_for(&self, text: &str, mark: usize) {
        let until = Instant::now() + PATIENCE;
        let mut output = self.output.lock();
        loop {
            let printed = String::from_utf8_lossy(&output.0[mark..]).into_owned();
            if printed.contains(text) {
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero() && !output.1, "{text:?} was not printed, but {printed}");
            output = self.output.changed.wait_timeout(output, left).unwrap().0;
        }
    }

    /// Types.
    pub fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Gives the terminal another size, and tells the program as the kernel tells the foreground of
    /// a terminal.
    pub fn resize(&self, columns: u16, rows: u16) {
        set_size(&self.terminal, columns, rows);
        self.signal(Signal::WINCH);
    }

    /// Whether the terminal hands over each key as it is typed.
    pub fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Closes the terminal under the program, which gets no signal; how it ended.
    #[track_caller]
    pub fn hang_up(self) -> ExitStatus {
        // ORDERING: Relaxed; the flag alone is the message, nothing is published with it.
        self.is_hung_up.store(true, Ordering::Relaxed);
        self.reader.join().unwrap();
        drop(self.keyboard);
        drop(self.terminal);
        wait_for_end(self.child)
    }

    /// Waits for the end of the program; how it ended, and everything that it printed.
    #[track_caller]
    pub fn finish(self) -> (ExitStatus, String) {
        let status = wait_for_end(self.child);
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        assert_eq!(modes, self.modes_before, "the terminal's modes are what they were");
        // With this end closed the reader sees the end of the output.
        drop(self.terminal);
        let mut output = self.output.lock();
        while !output.1 {
            let (next, timeout) = self.output.changed.wait_timeout(output, PATIENCE).unwrap();
            assert!(!timeout.timed_out(), "the output has no end");
            output = next;
        }
        (status, String::from_utf8_lossy(&output.0).into_owned())
    }
}

/// Whether the program took the mouse.
pub fn has_taken_mouse(printed: &str) -> bool {
    printed.contains(MOUSE_TAKEN)
}

/// Whether the last thing that happened to the screen was that it was given back, with its cursor.
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
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        kill_process(pid, Signal::KILL).unwrap();
        panic!("the program did not end");
    })
}

/// Waits for output; `false` when the terminal is to be hung up.
fn is_readable(keyboard: &File, is_hung_up: &AtomicBool) -> bool {
    let slice = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    loop {
        // ORDERING: Relaxed; as in `hang_up`.
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
