//! Files: the bytes that were written are read again, and a write to a full disk fails.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use volt::Handle;
use volt::fs;
use volt::io::AsyncWriteExt;

use crate::part::{Part, pause};
use crate::random::Random;

const WRITERS: u64 = 3;
const BYTES_MAX: u64 = 64 * 1024;
const PAUSE_MAX: Duration = Duration::from_millis(60);
/// A device on which every write fails because it has no room.
const FULL: &str = "/dev/full";

pub(super) fn start(runtime: &Handle, part: &Arc<Part>) {
    for writer in 0..WRITERS {
        drop(runtime.spawn(files(part.clone(), writer)));
    }
}

async fn files(part: Arc<Part>, seed: u64) {
    let mut random = Random::new(seed);
    let path = std::env::temp_dir().join(format!("volt-soak-{}-{seed}", std::process::id()));
    while !part.is_over() {
        if let Err(error) = written_and_read(&part, &path, &mut random).await {
            part.error(&error, "a file");
        }
        match full_disk().await {
            Ok(()) => part.verify(false, "a full disk accepts bytes"),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => part.count(),
            Err(error) => part.error(&error, FULL),
        }
        pause(&mut random, PAUSE_MAX).await;
    }
    remove(path);
}

async fn written_and_read(part: &Part, path: &Path, random: &mut Random) -> io::Result<()> {
    let first = random.next() as u8;
    let bytes: Vec<u8> = (0..random.below(BYTES_MAX)).map(|at| first.wrapping_mul(3).wrapping_add(at as u8)).collect();
    fs::write(path, &bytes).await?;
    let read = fs::read(path).await?;
    part.verify(read == bytes, format_args!("{} bytes were written, and other {} read", bytes.len(), read.len()));
    Ok(())
}

async fn full_disk() -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(FULL).await?;
    file.write_all(b"more").await?;
    file.flush().await
}

fn remove(path: PathBuf) {
    // It is missing if no write succeeded.
    let _ = std::fs::remove_file(path);
}
