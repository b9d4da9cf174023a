//! The traits of the `futures` crate on Volt's sockets, and Volt's traits on that crate's types.

use crate::watchdog::with_workers;
use futures_util::{AsyncReadExt as _, AsyncWriteExt as _};
use volt::futures_io::{FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};
use volt::io::AsyncBufReadExt;
use volt::net::TcpListener;

#[test]
fn sockets_implement_the_futures_io_traits_in_both_directions() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let server = volt::spawn(async move {
                let (reader, mut writer) = listener.accept().await.unwrap().0.compat().split();
                futures_util::io::copy(reader, &mut writer).await.unwrap();
                writer.close().await.unwrap();
            });
            let mut client = volt::net::TcpStream::connect(addr).await.unwrap().compat();
            client.write_all(b"there and back\nagain").await.unwrap();
            client.close().await.unwrap();
            let mut echo = Vec::new();
            client.read_to_end(&mut echo).await.unwrap();
            server.await.unwrap();
            // And the other way round.
            let mut lines = volt::io::BufReader::new(futures_util::io::Cursor::new(echo).compat()).lines();
            assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("there and back"));
            assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("again"));
        });
    });
}
