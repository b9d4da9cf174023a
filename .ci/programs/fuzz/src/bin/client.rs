//! The behaviour of a client with a server that sends any bytes, in pieces, and then disconnects.
#![no_main]

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::sync::OnceLock;
use std::time::Duration;

use fuzz_targets::memory::bounded;
use libfuzzer_sys::fuzz_target;
use volt_telemetry::client::Client;

/// The memory that a client needs for one reply, as in the target `replies`, and for its buffers.
const CLIENT_BYTES_MAX: usize = 100 << 20;
/// Longer than any reply takes. The server disconnects after its last byte, so no wait is as long.
const PATIENCE: Duration = Duration::from_secs(20);

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    static LISTENER: OnceLock<(std::path::PathBuf, UnixListener)> = OnceLock::new();
    let (path, listener) = LISTENER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("volt-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the socket");
        let path = folder.join("s");
        let listener = UnixListener::bind(&path).expect("a socket");
        (path, listener)
    });
    bounded(CLIENT_BYTES_MAX, || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("the client connects");
                let size = 1 + usize::from(first >> 2) * 7;
                // Fails when the client has disconnected.
                let _sent = bytes.chunks(size).try_for_each(|piece| stream.write_all(piece));
            });
            let Ok(mut client) = Client::connect(path) else { return };
            match first & 3 {
                0 => while client.next(PATIENCE).is_ok() {},
                1 => drop(client.dump(None, &Default::default())),
                2 => {
                    if client.record(None, Duration::ZERO).is_ok() {
                        while client.next_flush(PATIENCE).is_ok() {}
                    }
                }
                _ => drop((client.tasks(None, &Default::default()), client.why(None, "1"), client.snapshot())),
            }
        });
    });
});
