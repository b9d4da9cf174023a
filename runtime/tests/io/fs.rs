//! Files and the standard streams, through the public API.

use crate::watchdog;
use std::collections::BTreeSet;
use std::io::{ErrorKind, IoSlice, SeekFrom};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};

use crate::folder::Folder;
use crate::watchdog::{watched, with_workers};
use volt::fs::{self, DirBuilder, File, OpenOptions};
use volt::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWrite, AsyncWriteExt, BufReader};

#[test]
fn a_file_reads_back_its_writes_and_seeks_correctly() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("file");
            let mut file = File::create_new(&path).await.unwrap();
            assert_eq!(File::create_new(&path).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
            file.set_max_buf_size(1000);
            let bytes: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
            file.write_all(&bytes).await.unwrap();
            file.flush().await.unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "after a flush others see it");
            assert_eq!(file.seek(SeekFrom::Start(500)).await.unwrap(), 500);
            let mut part = [0; 300];
            file.read_exact(&mut part).await.unwrap();
            assert_eq!(part, bytes[500..800]);
            assert_eq!(file.seek(SeekFrom::Current(-100)).await.unwrap(), 700);
            assert_eq!(file.seek(SeekFrom::End(-10)).await.unwrap(), bytes.len() as u64 - 10);
            let mut rest = Vec::new();
            file.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, bytes[bytes.len() - 10..]);
            assert!(file.is_write_vectored());
            let slices = [IoSlice::new(b"one "), IoSlice::new(b"two")];
            assert_eq!(file.write_vectored(&slices).await.unwrap(), 7);
            file.sync_all().await.unwrap();
            assert_eq!(file.metadata().await.unwrap().len(), bytes.len() as u64 + 7);
            file.set_len(3).await.unwrap();
            assert_eq!(fs::read(&path).await.unwrap(), bytes[..3]);
            assert_eq!(file.seek(SeekFrom::Current(i64::MIN)).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        });
    });
}

#[test]
fn a_file_keeps_its_buffer_size_in_clones_and_its_time() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("file");
            let mut file = File::create_new(&path).await.unwrap();
            assert_eq!(file.max_buf_size(), 2 << 20);
            file.set_max_buf_size(3);
            let mut clone = file.try_clone().await.unwrap();
            assert_eq!((file.max_buf_size(), clone.max_buf_size()), (3, 3));
            assert_eq!(clone.write(b"12345").await.unwrap(), 3);
            clone.flush().await.unwrap();

            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
            file.set_modified(time).await.unwrap();
            assert_eq!(file.metadata().await.unwrap().modified().unwrap(), time);
            assert!(format!("{file:?}").starts_with("tokio::fs::File { std: File { fd: "), "{file:?}");

            let refused = catch_unwind(AssertUnwindSafe(|| file.set_max_buf_size(0))).unwrap_err();
            assert_eq!(refused.downcast_ref(), Some(&"`max_buf_size` must be greater than 0"));
            assert_eq!(file.max_buf_size(), 3);
        });
    });
}

/// Returns a new file of ten digits, of which two were read and two more were read ahead.
async fn read_ahead(path: &Path) -> File {
    fs::write(path, "0123456789").await.unwrap();
    loop {
        let mut file = OpenOptions::new().read(true).write(true).open(path).await.unwrap();
        let mut buffer = [0; 4];
        // Polled once, which begins the read, and dropped, unless it has completed already.
        let is_pending = {
            let mut read = std::pin::pin!(file.read(&mut buffer));
            read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
        };
        if is_pending {
            let mut two = [0; 2];
            file.read_exact(&mut two).await.unwrap();
            assert_eq!(&two, b"01");
            return file;
        }
    }
}

#[test]
fn a_cancelled_read_loses_no_bytes_and_keeps_the_file_position() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("file");
            let mut file = read_ahead(&path).await;
            file.write_all(b"XY").await.unwrap();
            file.flush().await.unwrap();
            assert_eq!(fs::read_to_string(&path).await.unwrap(), "01XY456789");

            let mut file = read_ahead(&path).await;
            file.set_len(3).await.unwrap();
            let mut rest = String::new();
            file.read_to_string(&mut rest).await.unwrap();
            assert_eq!(rest, "2", "what was cut off is not read");
        });
    });
}

#[test]
fn a_seek_that_fails_keeps_the_bytes_read_ahead() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let mut file = read_ahead(&folder.path("file")).await;
            let before_the_start = file.seek(SeekFrom::Current(-100)).await.unwrap_err();
            assert_eq!(before_the_start.kind(), ErrorKind::InvalidInput);
            let mut rest = String::new();
            file.read_to_string(&mut rest).await.unwrap();
            assert_eq!(rest, "23456789");
            assert_eq!(file.seek(SeekFrom::Current(-1)).await.unwrap(), 9);
        });
    });
}

#[test]
fn a_cancelled_set_len_does_not_truncate_later_writes() {
    watched(|| {
        let runtime = watchdog::builder(1).max_blocking_threads(1).build().unwrap();
        let folder = Folder::new();
        let (release, released) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            let path = folder.path("file");
            let mut file = File::create_new(&path).await.unwrap();
            let holds_the_thread = volt::task::spawn_blocking(move || released.recv());
            let mut cx = Context::from_waker(Waker::noop());
            let mut cut = Box::pin(file.set_len(0));
            assert!(cut.as_mut().poll(&mut cx).is_pending());
            drop(cut);
            // With one more thread it would be written immediately, and then truncated.
            assert!(Pin::new(&mut file).poll_write(&mut cx, b"kept").is_pending(), "the cut is on its way");
            drop(release);
            assert!(holds_the_thread.await.unwrap().is_err());
            file.write_all(b"kept").await.unwrap();
            file.flush().await.unwrap();
            assert_eq!(fs::read_to_string(&path).await.unwrap(), "kept");
        });
    });
}

#[test]
fn a_write_error_is_returned_once_by_the_next_write_or_flush() {
    with_workers(|runtime| {
        runtime.block_on(async {
            // Every write to it fails.
            let full = || async { OpenOptions::new().write(true).open("/dev/full").await.unwrap() };
            let mut file = full().await;
            assert_eq!(file.write(b"x").await.unwrap(), 1, "it is only begun");
            assert_eq!(file.flush().await.unwrap_err().kind(), ErrorKind::StorageFull);
            file.flush().await.unwrap();
            file.write_all(b"x").await.unwrap();
            assert_eq!(file.write(b"y").await.unwrap_err().kind(), ErrorKind::StorageFull);
            file.write_all(b"x").await.unwrap();
            assert_eq!(file.sync_all().await.unwrap_err().kind(), ErrorKind::StorageFull);
            file.write_all(b"x").await.unwrap();
            assert_eq!(file.shutdown().await.unwrap_err().kind(), ErrorKind::StorageFull);
        });
    });
}

#[test]
fn shutdown_completes_file_writes_in_flight() {
    const FILES: usize = 40;
    watched(|| {
        let folder = Folder::new();
        // One thread, which is busy: the writes are in the queue when the runtime is shut down.
        let runtime = watchdog::builder(1).max_blocking_threads(1).build().unwrap();
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let files = runtime.block_on(async {
            let mut files = Vec::new();
            for n in 0..FILES {
                files.push(File::create(folder.path(&n.to_string())).await.unwrap());
            }
            files
        });
        let busy = runtime.spawn_blocking(move || gate.recv());
        runtime.block_on(async {
            for mut file in files {
                file.write_all(b"written").await.unwrap();
            }
        });
        let plain = runtime.spawn_blocking(|| ());
        assert!(runtime.handle().snapshot().blocking.queue_len > FILES as u64);
        let handle = runtime.handle().clone();
        let ends = std::thread::spawn(move || drop(runtime));
        while handle.snapshot().blocking.queue_len > FILES as u64 {
            std::thread::yield_now();
        }
        drop(go);
        ends.join().unwrap();
        assert!(busy.is_finished() && plain.is_finished());
        for n in 0..FILES {
            assert_eq!(std::fs::read(folder.path(&n.to_string())).unwrap(), b"written");
        }
    });
}

#[test]
fn a_write_after_the_shutdown_fails_immediately() {
    watched(|| {
        let folder = Folder::new();
        let runtime = watchdog::runtime(1);
        let handle = runtime.handle().clone();
        let mut file = runtime.block_on(File::create(folder.path("file"))).unwrap();
        drop(runtime);
        handle.block_on(async {
            let mut stdout = volt::io::stdout();
            for error in [file.write(b"x").await.unwrap_err(), stdout.write(b"x").await.unwrap_err()] {
                assert!(volt::runtime::is_rt_shutdown_err(&error), "{error:?}");
            }
        });
        assert_eq!(std::fs::read(folder.path("file")).unwrap(), b"");
    });
}

#[test]
fn into_std_waits_for_writes_in_flight() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("file");
            let mut file = File::create(&path).await.unwrap();
            file.write_all(b"a").await.unwrap();
            let mut copy = file.try_clone().await.unwrap();
            copy.write_all(b"b").await.unwrap();
            copy.flush().await.unwrap();
            file.write_all(b"c").await.unwrap();
            let std = file.into_std().await;
            assert_eq!(fs::read_to_string(&path).await.unwrap(), "abc");
            File::from_std(std).try_into_std().unwrap();
        });
    });
}

#[test]
fn a_read_takes_no_more_from_the_file_than_requested() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let mut file = File::create_new(folder.path("file")).await.unwrap();
            file.write_all(&[7; 1000]).await.unwrap();
            file.rewind().await.unwrap();
            file.read_exact(&mut [0; 10]).await.unwrap();
            let mut file = file.into_std().await;
            assert_eq!(std::io::Seek::stream_position(&mut file).unwrap(), 10, "the buffer has room for more");
        });
    });
}

#[test]
fn into_std_works_while_a_cancelled_call_is_still_queued() {
    watched(|| {
        let runtime = watchdog::builder(1).max_blocking_threads(1).build().unwrap();
        let folder = Folder::new();
        let (release, released) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            let file = File::create_new(folder.path("file")).await.unwrap();
            let holds_the_thread = volt::task::spawn_blocking(move || released.recv());
            let mut metadata = Box::pin(file.metadata());
            assert!(metadata.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(metadata);
            let file = file.try_into_std().unwrap_err();
            let mut std = file.into_std().await;
            std::io::Write::write_all(&mut std, b"mine").unwrap();
            drop(release);
            assert!(holds_the_thread.await.unwrap().is_err());
            assert_eq!(fs::read(folder.path("file")).await.unwrap(), b"mine");
        });
    });
}

#[test]
fn folders_are_made_read_and_removed() {
    const FILES: usize = 100;
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let deep = folder.path("a/b/c");
            assert_eq!(fs::create_dir(&deep).await.unwrap_err().kind(), ErrorKind::NotFound);
            fs::create_dir_all(&deep).await.unwrap();
            let private = deep.join("private");
            DirBuilder::new().mode(0o700).create(&private).await.unwrap();
            assert_eq!(fs::metadata(&private).await.unwrap().mode() & 0o777, 0o700);
            fs::remove_dir(&private).await.unwrap();
            for n in 0..FILES {
                fs::write(deep.join(n.to_string()), n.to_string()).await.unwrap();
            }
            let mut entries = fs::read_dir(&deep).await.unwrap();
            let mut names = BTreeSet::new();
            while let Some(entry) = entries.next_entry().await.unwrap() {
                assert!(entry.file_type().await.unwrap().is_file());
                assert_eq!(entry.metadata().await.unwrap().ino(), entry.ino());
                assert_eq!(entry.path(), deep.join(entry.file_name()));
                names.insert(entry.file_name().into_string().unwrap().parse::<usize>().unwrap());
            }
            assert_eq!(names, (0..FILES).collect());
            assert!(entries.next_entry().await.unwrap().is_none(), "again and again");
            assert_eq!(fs::read_dir(folder.path("nowhere")).await.unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!(fs::remove_dir(&deep).await.unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
            fs::remove_dir_all(folder.path("a")).await.unwrap();
            assert!(!fs::try_exists(&deep).await.unwrap());
        });
    });
}

#[test]
fn names_links_and_permissions_are_changed() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let [one, other, link, hard] = ["one", "other", "link", "hard"].map(|name| folder.path(name));
            fs::write(&one, "text").await.unwrap();
            assert_eq!(fs::copy(&one, &other).await.unwrap(), 4);
            fs::remove_file(&other).await.unwrap();
            fs::rename(&one, &other).await.unwrap();
            assert!(!fs::try_exists(&one).await.unwrap() && fs::try_exists(&other).await.unwrap());
            fs::symlink(&other, &link).await.unwrap();
            assert_eq!(fs::read_link(&link).await.unwrap(), other);
            assert_eq!(fs::canonicalize(&link).await.unwrap(), std::fs::canonicalize(&other).unwrap());
            assert!(fs::symlink_metadata(&link).await.unwrap().is_symlink());
            assert!(fs::metadata(&link).await.unwrap().is_file());
            fs::hard_link(&other, &hard).await.unwrap();
            assert_eq!(fs::metadata(&hard).await.unwrap().nlink(), 2);
            fs::set_permissions(&hard, std::fs::Permissions::from_mode(0o600)).await.unwrap();
            assert_eq!(fs::metadata(&other).await.unwrap().mode() & 0o777, 0o600);
            fs::write(&hard, [0xff]).await.unwrap();
            assert_eq!(fs::read_to_string(&hard).await.unwrap_err().kind(), ErrorKind::InvalidData);
            assert_eq!(File::open(&one).await.unwrap_err().kind(), ErrorKind::NotFound);
        });
    });
}

/// Set in the child process whose standard streams are tested.
const CHILD: &str = "VOLT_TEST_STDIO";

#[test]
fn standard_input_is_copied_to_standard_output() {
    if std::env::var_os(CHILD).is_some() {
        let runtime = watchdog::runtime(2);
        runtime.block_on(async {
            let mut lines = BufReader::new(volt::io::stdin()).lines();
            let (mut stdout, mut stderr) = (volt::io::stdout(), volt::io::stderr());
            while let Some(line) = lines.next_line().await.unwrap() {
                stdout.write_all(format!("out {line}\n").as_bytes()).await.unwrap();
                stderr.write_all(format!("err {line}").as_bytes()).await.unwrap();
            }
            stdout.flush().await.unwrap();
            stderr.flush().await.unwrap();
        });
        return;
    }
    watched(|| {
        let runtime = watchdog::runtime(1);
        runtime.block_on(async {
            let mut child = volt::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "fs::standard_input_is_copied_to_standard_output", "--nocapture"])
                .env(CHILD, "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = child.stdin.take().unwrap();
            let long = "x".repeat(200_000);
            stdin.write_all(format!("first\n{long}\n").as_bytes()).await.unwrap();
            drop(stdin);
            let output = child.wait_with_output().await.unwrap();
            assert!(output.status.success());
            let stdout = String::from_utf8(output.stdout).unwrap();
            assert!(stdout.contains("out first\n") && stdout.contains(&format!("out {long}\n")));
            assert!(String::from_utf8(output.stderr).unwrap().contains("err first"));
        });
    });
}
