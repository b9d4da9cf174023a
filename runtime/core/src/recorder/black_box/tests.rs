//! Tests of black boxes: what is in the file while the runtime runs, after it ended, and in a
//! forked child; which files are kept; and the errors.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use rustix::fs::{CWD, Mode, mkfifoat};
use volt_recording::black_box::{BlackBox as Read, Ending, lives};
use volt_telemetry::recording::black_box::{FileName, HEAD_BYTES, Layout, kind, word};
use volt_telemetry::recording::event::Event;
use volt_telemetry::recording::flush::Track;
use volt_telemetry::snapshot::Snapshot;

use super::file::{BOXES, RUNS_MAX, lock};
use super::space::BlackBox;
use crate::builder::Builder;
use crate::recorder::lanes::Recorder;

const LAYOUT: Layout = Layout { workers: 1, spares: 1, ring_records: 1024 };

/// A directory that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("volt-box-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn only(&self) -> PathBuf {
        let files = self.files();
        let [file] = &files[..] else { panic!("{files:?}") };
        self.0.join(file)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.0);
    }
}

fn create(dir: &Path, runtime: &str) -> std::sync::Arc<BlackBox> {
    BlackBox::create(dir, "shop", runtime, LAYOUT).unwrap()
}

#[test]
fn a_poll_in_flight_can_be_read_from_outside() {
    let folder = Folder::new();
    let builder = Builder::new_multi_thread().worker_threads(1).name("api").control_socket(false).flight_recorder(true);
    let runtime = builder.black_box(&folder.0).build().unwrap();
    let (entered, has_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let task = runtime.spawn(async move {
        entered.send(()).unwrap();
        may_leave.recv().unwrap();
    });
    has_entered.recv().unwrap();
    let file = folder.only();
    // The sentinel adds the line at a check.
    let read = loop {
        let read = Read::open(&file).unwrap();
        let poll = read.workers.first().and_then(|worker| worker.poll.as_ref());
        if !read.samples.is_empty() && poll.is_some_and(|poll| poll.spawned_at.is_some()) {
            break read;
        }
        std::thread::yield_now();
    };
    let poll = read.workers[0].poll.as_ref().unwrap();
    assert_eq!(poll.task_id, task.id().as_u64());
    assert!(poll.spawned_at.as_ref().unwrap().contains("black_box/tests.rs"), "{poll:?}");
    assert!(read.workers[0].thread_id.is_some() && read.last_sign_ns() >= poll.began_at_ns);
    assert_eq!(
        (read.ending, read.identity.pid, read.identity.runtime.as_str()),
        (Ending::None, std::process::id(), "api")
    );
    let lane =
        read.chunks.iter().find(|chunk| read.tracks[chunk.track as usize] == Track::Worker { index: 0 }).unwrap();
    let last = lane.records.last().unwrap().event();
    let Event::PollBegin { task: id, location, .. } = last else { panic!("{last:?}") };
    assert_eq!(id, task.id().as_u64());
    assert!(read.texts.location(location).unwrap().contains("black_box/tests.rs"));
    assert_eq!(lives::is_locked(&file), Some(true));
    leave.send(()).unwrap();
    runtime.block_on(task).unwrap();
    drop(runtime);
    let read = Read::open(&file).unwrap();
    assert!(matches!(read.ending, Ending::ShutDown(at_ns) if at_ns >= read.checked_at_ns));
    assert_eq!(read.workers[0].poll, None);
}

#[test]
fn a_sample_is_written_before_an_idle_runtime_sleeps() {
    let folder = Folder::new();
    let builder = Builder::new_multi_thread().worker_threads(1).control_socket(false).doctor_events(false);
    let runtime = builder.black_box(&folder.0).build().unwrap();
    runtime.block_on(runtime.spawn(async {})).unwrap();
    let spawned = || Some(Read::open(&folder.only()).unwrap().samples.last()?.snapshot.tasks.spawned);
    while spawned() != Some(1) {
        std::thread::yield_now();
    }
    let sample = Read::open(&folder.only()).unwrap().samples.pop().unwrap();
    assert!(sample.memory.resident_bytes.is_some_and(|bytes| bytes > 0) && sample.snapshot.findings.is_some());
}

#[test]
fn a_program_that_exits_marks_its_black_box() {
    const IN_CHILD: &str = "VOLT_BLACK_BOX_TEST";
    if let Some(dir) = std::env::var_os(IN_CHILD) {
        let runtime = Builder::new_current_thread().control_socket(false).black_box(dir).build().unwrap();
        std::mem::forget(runtime);
        std::process::exit(0);
    }
    let folder = Folder::new();
    let name = std::thread::current().name().expect("the test harness names its threads").to_owned();
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args([&name, "--exact", "--nocapture"]).env(IN_CHILD, &folder.0).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let file = folder.only();
    assert!(matches!(Read::open(&file).unwrap().ending, Ending::Exited(_)));
    assert_eq!(lives::is_locked(&file), Some(false), "the kernel has released it");
}

#[test]
fn a_file_is_private_and_no_symbolic_link_is_followed() {
    let folder = Folder::new();
    let target = folder.0.join("target");
    fs::write(&target, "precious").unwrap();
    let black_box = create(&folder.0, "api");
    let mode = fs::metadata(black_box.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A link that has the name of an earlier run's file is not followed, and not deleted.
    for stamp in 1..=5 {
        symlink(&target, folder.0.join(FileName::new("shop", stamp, 1, 1, "api").to_string())).unwrap();
    }
    let _other = create(&folder.0, "db");
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    assert_eq!(folder.files().len(), 1 + 2 + 5);
}

#[test]
fn the_last_runs_of_a_program_are_kept() {
    let folder = Folder::new();
    let file = |program: &str, stamp: u64| folder.0.join(FileName::new(program, stamp, 1, stamp, "api").to_string());
    for stamp in 1..=5 {
        fs::write(file("shop", stamp), "").unwrap();
    }
    fs::write(file("other", 1), "").unwrap();
    let live = fs::File::open(file("shop", 1)).unwrap();
    live.lock().unwrap();
    let _own = create(&folder.0, "api");
    let kept: Vec<_> = (1..=5).filter(|stamp| file("shop", *stamp).exists()).collect();
    assert_eq!(kept, [1, 3, 4, 5], "the first one is in use");
    assert_eq!((kept.len(), file("other", 1).exists()), (RUNS_MAX + 1, true));
}

#[test]
fn a_restart_keeps_the_file_of_the_run_that_was_killed() {
    let (folder, scratch) = (Folder::new(), Folder::new());
    let head = fs::read(create(&scratch.0, "api").path()).unwrap()[..HEAD_BYTES].to_vec();
    let file = |stamp: u64| folder.0.join(FileName::new("shop", stamp, 1, stamp, "api").to_string());
    // The later a run began, the earlier it ended.
    for stamp in 1..=5 {
        let mut head = head.clone();
        let beat = word::BEAT_NS * 8..(word::BEAT_NS + 1) * 8;
        let last_ns = u64::from_ne_bytes(head[beat.clone()].try_into().unwrap()) + (10 - stamp) * 1_000_000_000;
        head[beat].copy_from_slice(&last_ns.to_ne_bytes());
        fs::write(file(stamp), head).unwrap();
    }
    let run = |stamp: u64| {
        fs::write(file(stamp), "").unwrap();
        let running = fs::File::open(file(stamp)).unwrap();
        running.lock().unwrap();
        running
    };
    let running: Vec<_> = (6..=10).map(run).collect();
    let _restarted = create(&folder.0, "api");
    let kept: Vec<_> = (1..=10).filter(|stamp| file(*stamp).exists()).collect();
    assert_eq!(kept, [1, 2, 3, 6, 7, 8, 9, 10], "{} of them run", running.len());
}

#[test]
fn the_box_of_a_container_that_started_together_is_kept() {
    let folder = Folder::new();
    // In containers, the process ids are equal, and programs may start in the same tick.
    let (pid, start_time) = (std::process::id(), volt_telemetry::socket::own_start_time());
    let other = folder.0.join(FileName::new("shop", 1, pid, start_time, "api").to_string());
    fs::write(&other, "").unwrap();
    let running = fs::File::open(&other).unwrap();
    running.lock().unwrap();
    let own = create(&folder.0, "api");
    assert!(other.exists() && own.path() != other.as_path(), "its program runs");
    assert_eq!(lives::lives_in(&folder.0).unwrap().len(), 2);
}

#[test]
fn a_pipe_takes_no_place_of_a_black_box() {
    let folder = Folder::new();
    let path = |stamp: u64| folder.0.join(FileName::new("shop", stamp, 1, stamp, "api").to_string());
    fs::write(path(1), "").unwrap();
    // The same rule covers files of other users, which only root can create.
    let pipes = 2..2 + RUNS_MAX as u64;
    for stamp in pipes.clone() {
        mkfifoat(CWD, path(stamp), Mode::RUSR | Mode::WUSR).unwrap();
    }
    let _own = create(&folder.0, "api");
    assert!(path(1).exists(), "it is the only one");
    assert!(pipes.map(path).all(|pipe| pipe.exists()), "they are not deleted");
}

#[test]
fn a_file_is_locked_although_others_test_its_lock() {
    let folder = Folder::new();
    let path = folder.0.join("box");
    let file = OwnedFd::from(fs::File::create(&path).unwrap());
    let tester = fs::File::open(&path).unwrap();
    tester.lock_shared().unwrap();
    assert!(!lock(&file, 3));
    std::thread::scope(|scope| {
        let locked = scope.spawn(|| lock(&file, usize::MAX));
        // Not by a drop: a child that another test forks at this moment keeps a copy.
        tester.unlock().unwrap();
        assert!(locked.join().unwrap());
    });
    assert_eq!(lives::is_locked(&path), Some(true));
}

#[test]
fn the_files_of_one_run_are_bounded() {
    let folder = Folder::new();
    let live = create(&folder.0, "live");
    for number in 0..2 * BOXES {
        create(&folder.0, &format!("job-{number}")).shut_down();
    }
    assert_eq!(folder.files().len(), BOXES);
    assert!(live.path().exists(), "its runtime runs");
    // A later runtime of the same name replaces the file, even if a handle of the former one is
    // left.
    let former = create(&folder.0, "job-15");
    let later = create(&folder.0, "job-15");
    assert_eq!((folder.files().len(), former.path()), (BOXES, later.path()));
    assert_eq!(lives::lives_in(&folder.0).unwrap().len(), 1, "all of one run");
}

#[test]
fn the_file_of_the_runtime_that_ended_first_is_deleted() {
    let folder = Folder::new();
    let boxes: Vec<_> = (0..BOXES).map(|number| create(&folder.0, &format!("job-{number}"))).collect();
    let files: Vec<_> = boxes.iter().map(|black_box| black_box.path().to_owned()).collect();
    // In another order than that of their names and of their creation.
    let order: Vec<_> = (0..BOXES).map(|number| number * 5 % BOXES).collect();
    order.iter().for_each(|&index| boxes[index].shut_down());
    drop(boxes);
    let in_use = fs::File::open(&files[order[0]]).unwrap();
    in_use.lock().unwrap();
    for number in 0..3 {
        let _own = create(&folder.0, &format!("later-{number}"));
    }
    let kept: Vec<_> = order.iter().map(|&index| files[index].exists()).collect();
    assert_eq!(kept, [true, false, false, false, true, true, true, true], "the first one is in use");
}

#[test]
fn a_directory_that_cannot_be_used_is_an_error_with_a_remedy() {
    let folder = Folder::new();
    let refused = |dir: &Path, layout: Layout| BlackBox::create(dir, "shop", "api", layout).unwrap_err();
    assert!(refused(&folder.0.join("none"), LAYOUT).ends_with("does not exist: create it"));
    fs::write(folder.0.join("file"), "").unwrap();
    assert!(refused(&folder.0.join("file"), LAYOUT).contains("is not a directory"));
    assert!(refused(Path::new("/proc"), LAYOUT).contains("no file can be created in /proc"));
    assert_eq!(folder.files(), ["file"], "no file is left behind");
}

#[test]
fn the_newest_texts_survive_when_the_logs_are_full() {
    let folder = Folder::new();
    let black_box = create(&folder.0, "api");
    let name = "n".repeat(400);
    (0..2_000).for_each(|number| black_box.add_text(kind::TASK, number, &name));
    assert!(black_box.generation() > 1);
    let texts = Read::open(black_box.path()).unwrap().texts;
    assert!((1_500..2_000).all(|number| texts.task(number) == Some(&name)));
    assert_eq!(texts.task(0), None);
}

#[test]
fn an_oversized_snapshot_is_cut_and_at_worst_left_out() {
    let folder = Folder::new();
    let black_box = create(&folder.0, "api");
    let huge = Snapshot { at_ns: 5, incomplete: vec!["x".repeat(1 << 20)], ..Snapshot::default() };
    black_box.write_sample(huge.clone(), |snapshot| !std::mem::take(&mut snapshot.incomplete).is_empty());
    assert_eq!(Read::open(black_box.path()).unwrap().samples[0].snapshot.at_ns, 5);
    black_box.write_sample(huge, |_| false);
    let samples = Read::open(black_box.path()).unwrap().samples;
    assert!(samples[1].memory.resident_bytes.is_some() && samples[1].snapshot.at_ns == 0);
}

#[test]
fn a_forked_child_does_not_write_to_the_file() {
    let folder = Folder::new();
    let black_box = create(&folder.0, "api");
    black_box.beat(111, [].into_iter());
    let recorder = Recorder::placed(LAYOUT, true, Some(black_box.clone()));
    let writer = recorder.claim(Track::Outside).unwrap();
    writer.note(1, Event::SearchBegin);
    let ((mut may_end, end), (mut is_done, mut done)) = (io::pipe().unwrap(), io::pipe().unwrap());
    // SAFETY: the child makes stores and system calls, and ends without returning.
    let child = unsafe { libc_fork() };
    if child == 0 {
        drop(end);
        writer.note(2, Event::SearchBegin);
        black_box.beat(222, [].into_iter());
        black_box.shut_down();
        let _written = done.write_all(&[1]);
        let _at_the_end = may_end.read(&mut [0]);
        // SAFETY: ends the child, without the handlers of its parent.
        unsafe { _exit(0) };
    }
    is_done.read_exact(&mut [0]).unwrap();
    let read = Read::open(black_box.path()).unwrap();
    assert_eq!((read.checked_at_ns, read.ending, read.chunks[0].records.len()), (111, Ending::None, 1));
    // The parent's memory is still the file.
    writer.note(3, Event::SearchBegin);
    let file = black_box.path().to_owned();
    assert_eq!(Read::open(&file).unwrap().chunks[0].records.len(), 2);
    assert_eq!(lives::is_locked(&file), Some(true));
    drop((writer, recorder, black_box));
    // The child does not keep the lock. Another test may be starting a program, which has a copy of
    // each open file until it calls `exec`.
    while lives::is_locked(&file) != Some(false) {
        std::thread::yield_now();
    }
    drop(end);
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
}

unsafe extern "C" {
    #[link_name = "fork"]
    fn libc_fork() -> i32;
    fn _exit(status: i32) -> !;
}
