//! Tests of how long a check watches.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use volt_telemetry::wire::{
    Hello, MAGIC, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Reply, Request, VERSION, read_frame, write_frame,
};

use super::*;

/// Serves one client. Unlike a program, it sends one snapshot per request, so after the first one
/// of a subscription it is silent.
fn serve(listener: &UnixListener) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    let hello = Hello { magic: MAGIC.into(), version: VERSION, ..Hello::default() };
    write_frame(&stream, &Reply::Hello(hello), MAX_REPLY_BYTES)?;
    while read_frame::<Request>(&stream, MAX_REQUEST_BYTES)?.is_some() {
        let reply = Reply::Snapshot { program: Box::new(Program::default()), lost: 0 };
        write_frame(&stream, &reply, MAX_REPLY_BYTES)?;
    }
    Ok(())
}

#[test]
fn a_check_watches_to_the_end_after_the_program_was_silent() {
    // Not in `TMPDIR`, whose path may be too long for a socket.
    let path = PathBuf::from(format!("/tmp/volt-check-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || serve(&listener));
    let client = Client::connect(&path);
    std::fs::remove_file(&path).unwrap();
    let (how_long, silence_max) = (Duration::from_millis(300), Duration::from_millis(1));
    let mut watch = Watch::begin();
    watch.watch(&mut client.unwrap(), how_long, silence_max).unwrap();
    assert!(watch.began.elapsed() >= how_long);
}
