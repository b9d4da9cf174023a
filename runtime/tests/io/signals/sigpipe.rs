//! Writing to a closed connection in a program that SIGPIPE may kill. Each test runs in a separate
//! program, since the signal's disposition applies to the whole program.

use std::io::{ErrorKind, IoSlice};

use crate::watchdog::{alone, with_workers};
use volt::io::AsyncWriteExt;
use volt::net::{TcpListener, TcpStream, UnixStream};

/// Undoes what Rust's start-up code does, which ignores the signal. A host program in another
/// language may not ignore it.
fn let_sigpipe_kill() {
    // SAFETY: a function of the C library, with a signal and a disposition that every Unix has. No
    // handler is installed.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

#[test]
fn a_write_to_a_closed_connection_fails_without_sigpipe() {
    alone(|| {
        let_sigpipe_kill();
        with_workers(|runtime| {
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                drop(listener.accept().await.unwrap());
                // The first write causes the peer's reset, and a later one finds the connection
                // closed.
                let mut kinds = Vec::new();
                while kinds.last() != Some(&ErrorKind::BrokenPipe) {
                    kinds.extend(client.write(b"x").await.err().map(|error| error.kind()));
                }
                let slices = [IoSlice::new(b"a"), IoSlice::new(b"b")];
                assert_eq!(client.write_vectored(&slices).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
                assert_eq!(client.try_write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);

                let (mut here, there) = UnixStream::pair().unwrap();
                drop(there);
                assert_eq!(here.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
                assert_eq!(here.write_vectored(&slices).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
                assert_eq!(here.try_write_vectored(&slices).unwrap_err().kind(), ErrorKind::BrokenPipe);
            });
        });
    });
}
