//! Every public item of `super::{fs, io, process, signal}`, except the items of `io` that are
//! Tokio's own, and Volt's readers, writers and copies in memory (`io/memory`). Nothing here runs,
//! but all of it has to compile with Volt's types and with Tokio's.

use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::fs::{FileType, Metadata, Permissions};
use std::future::Future;
use std::hash::Hash;
use std::hint::black_box;
use std::io::Result;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::task::{Context, Poll};
use std::time::SystemTime;

use super::fs::{self, DirBuilder, DirEntry, File, FileTimes, OpenOptions, ReadDir};
use super::io::{self, AsyncRead, AsyncSeek, AsyncWrite, Interest, Ready};
use super::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use super::signal::unix::{Signal, SignalKind, signal};

fn is_shared<T: Debug + Send + Sync>() {}
fn is_descriptor<T: AsFd + AsRawFd + Debug + Send + Sync>() {}
fn is_file<T: AsyncRead + AsyncWrite + AsyncSeek + From<OwnedFd> + FromRawFd + From<std::fs::File>>() {}
fn is_value<T: Copy + Debug + Eq>() {}
fn is_kind<T: Copy + Debug + Eq + Hash + From<i32> + Into<i32>>() {}
fn is_default<T: Default + Debug>() {}
fn is_clone<T: Clone>() {}
fn is_ordered<T: Ord>() {}
fn reads<T: AsyncRead>() {}
fn writes<T: AsyncWrite>() {}
fn becomes_stdio<T: TryInto<Stdio, Error = std::io::Error>>() {}

/// Refers to all that follows.
pub fn all() {
    interest();
    ready();
    black_box((traits, files, file, options, directories, standard_streams));
    black_box((command_settings, command_starts, child, pipes, kinds, signals));
}

fn traits() {
    is_file::<File>();
    is_descriptor::<File>();
    is_descriptor::<io::Stdin>();
    is_descriptor::<io::Stdout>();
    is_descriptor::<io::Stderr>();
    is_descriptor::<ChildStdin>();
    is_descriptor::<ChildStdout>();
    is_descriptor::<ChildStderr>();
    is_shared::<ReadDir>();
    is_shared::<DirEntry>();
    is_shared::<Command>();
    is_shared::<Child>();
    is_shared::<Signal>();
    is_default::<DirBuilder>();
    is_default::<OpenOptions>();
    is_clone::<OpenOptions>();
    is_default::<FileTimes>();
    is_clone::<FileTimes>();
    is_value::<Interest>();
    is_value::<Ready>();
    is_ordered::<Ready>();
    is_kind::<SignalKind>();
    reads::<io::Stdin>();
    reads::<ChildStdout>();
    reads::<ChildStderr>();
    writes::<io::Stdout>();
    writes::<io::Stderr>();
    writes::<ChildStdin>();
    becomes_stdio::<ChildStdin>();
    becomes_stdio::<ChildStdout>();
    becomes_stdio::<ChildStderr>();
}

async fn files(permissions: Permissions) -> Result<()> {
    let _: (Vec<u8>, String) = (fs::read("").await?, fs::read_to_string("").await?);
    let _: () = fs::write("", "").await?;
    let _: (Metadata, Metadata) = (fs::metadata("").await?, fs::symlink_metadata("").await?);
    let _: (PathBuf, PathBuf) = (fs::canonicalize("").await?, fs::read_link("").await?);
    let _: (u64, bool) = (fs::copy("", "").await?, fs::try_exists("").await?);
    let _: () = fs::rename("", "").await?;
    let _: () = fs::hard_link("", "").await?;
    let _: () = fs::symlink("", "").await?;
    let _: () = fs::remove_file("").await?;
    let _: () = fs::set_permissions("", permissions).await?;
    Ok(())
}

async fn file(std: std::fs::File, permissions: Permissions) -> Result<()> {
    let _: (File, File) = (File::open("").await?, File::create("").await?);
    let _: (File, OpenOptions) = (File::create_new::<&str>("").await?, File::options());
    let mut file: File = File::from_std(std);
    let _: ((), ()) = (file.sync_all().await?, file.sync_data().await?);
    let _: () = file.set_len(1).await?;
    let _: (Metadata, File) = (file.metadata().await?, file.try_clone().await?);
    let _: () = file.set_permissions(permissions).await?;
    let time = SystemTime::UNIX_EPOCH;
    let _: () = file.set_times(FileTimes::new().set_accessed(time).set_modified(time)).await?;
    let _: () = file.set_modified(time).await?;
    file.set_max_buf_size(1);
    let shared = &file;
    let _: usize = shared.max_buf_size();
    let std: std::fs::File = file.into_std().await;
    let _: std::result::Result<std::fs::File, File> = File::from_std(std).try_into_std();
    Ok(())
}

async fn options(std: std::fs::OpenOptions) -> Result<()> {
    let mut options: OpenOptions = OpenOptions::new();
    let options: &mut OpenOptions = options.read(true).write(true).append(true).truncate(true).create(true);
    let options: &mut OpenOptions = options.create_new(true).mode(0o600).custom_flags(0);
    let _: File = options.open("").await?;
    let _: OpenOptions = OpenOptions::from(std);
    Ok(())
}

async fn directories(cx: &mut Context<'_>) -> Result<()> {
    let _: [(); 2] = [fs::create_dir("").await?, fs::create_dir_all("").await?];
    let _: [(); 2] = [fs::remove_dir("").await?, fs::remove_dir_all("").await?];
    let mut builder: DirBuilder = DirBuilder::new();
    let builder: &mut DirBuilder = builder.recursive(true).mode(0o700);
    let _: () = builder.create("").await?;
    let mut entries: ReadDir = fs::read_dir("").await?;
    let _: Poll<Result<Option<DirEntry>>> = entries.poll_next_entry(cx);
    let entry: DirEntry = entries.next_entry().await?.unwrap();
    let _: (PathBuf, OsString, u64) = (entry.path(), entry.file_name(), entry.ino());
    let _: (Metadata, FileType) = (entry.metadata().await?, entry.file_type().await?);
    Ok(())
}

fn interest() {
    const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);
    const IS_READABLE: bool = BOTH.is_readable() && BOTH.is_writable() && !BOTH.is_priority() && !BOTH.is_error();
    let mut sum: Interest = Interest::PRIORITY | Interest::ERROR;
    sum |= BOTH;
    let _: (Option<Interest>, bool) = (sum.remove(BOTH), IS_READABLE);
    assert_eq!(format!("{sum:?}"), "READABLE | WRITABLE | PRIORITY | ERROR");
}

fn ready() {
    let mut all: Ready = Ready::READABLE | Ready::WRITABLE | Ready::READ_CLOSED | Ready::WRITE_CLOSED;
    all |= Ready::PRIORITY | Ready::ERROR;
    assert_eq!((all, all & Ready::ERROR, Ready::ALL - all), (Ready::ALL, Ready::ERROR, Ready::EMPTY));
    assert!(all.is_readable() && all.is_writable() && all.is_read_closed() && all.is_write_closed());
    assert!(all.is_priority() && all.is_error() && !all.is_empty());
}

fn standard_streams() {
    let _: (io::Stdin, io::Stdout, io::Stderr) = (io::stdin(), io::stdout(), io::stderr());
}

fn command_settings(command: &mut Command, std: std::process::Command) {
    let command: &mut Command = command.arg::<&str>("").args::<[&str; 1], &str>([""]).env::<&str, &str>("", "");
    let command: &mut Command = command.envs::<[(&str, &str); 1], &str, &str>([("", "")]).env_remove::<&str>("");
    let command: &mut Command = command.env_clear().current_dir::<&Path>(Path::new("")).stdin::<Stdio>(Stdio::null());
    let command: &mut Command = command.stdout::<Stdio>(Stdio::null()).stderr::<Stdio>(Stdio::null());
    let command: &mut Command = command.kill_on_drop(true).uid(1).gid(1).arg0::<&OsStr>(OsStr::new(""));
    // SAFETY: nothing here runs.
    let command: &mut Command = unsafe { command.process_group(0).pre_exec::<fn() -> Result<()>>(|| Ok(())) };
    let _: (bool, String) = (command.get_kill_on_drop(), format!("{:?}", command.as_std()));
    let _: &mut std::process::Command = command.as_std_mut();
    let _: std::process::Command = Command::from(std).into_std();
}

async fn command_starts() -> Result<()> {
    fn is_future<T>(_: &(impl Future<Output = Result<T>> + Send)) {}

    let mut command: Command = Command::new::<&str>("");
    let _: Child = command.spawn()?;
    let (status, output) = (command.status(), command.output());
    is_future::<ExitStatus>(&status);
    is_future::<Output>(&output);
    let _: (ExitStatus, Output) = (status.await?, output.await?);
    Ok(())
}

async fn child(mut child: Child) -> Result<()> {
    let _: (Option<u32>, Option<ExitStatus>) = (child.id(), child.try_wait()?);
    let _: (Option<ChildStdin>, Option<ChildStdout>) = (child.stdin.take(), child.stdout.take());
    let _: Option<ChildStderr> = child.stderr.take();
    let _: ((), ()) = (child.start_kill()?, child.kill().await?);
    let _: ExitStatus = child.wait().await?;
    let _: Output = child.wait_with_output().await?;
    Ok(())
}

fn pipes(mut std: std::process::Child) -> Result<()> {
    let _: OwnedFd = ChildStdin::from_std(std.stdin.take().unwrap())?.into_owned_fd()?;
    let _: OwnedFd = ChildStdout::from_std(std.stdout.take().unwrap())?.into_owned_fd()?;
    let _: OwnedFd = ChildStderr::from_std(std.stderr.take().unwrap())?.into_owned_fd()?;
    Ok(())
}

fn kinds() -> [SignalKind; 11] {
    const KIND: SignalKind = SignalKind::from_raw(SignalKind::alarm().as_raw_value());
    let _: SignalKind = KIND;
    [
        SignalKind::alarm(),
        SignalKind::child(),
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::io(),
        SignalKind::pipe(),
        SignalKind::quit(),
        SignalKind::terminate(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
        SignalKind::window_change(),
    ]
}

async fn signals(cx: &mut Context<'_>) -> Result<()> {
    let mut signals: Signal = signal(SignalKind::hangup())?;
    let _: Option<()> = signals.recv().await;
    let _: Poll<Option<()>> = signals.poll_recv(cx);
    super::signal::ctrl_c().await
}
