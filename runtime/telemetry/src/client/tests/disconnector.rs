//! Tests of a connection that another thread ends.

use super::*;

#[test]
fn a_request_that_waits_ends_when_it_is_disconnected() {
    let scratch = Scratch::new();
    let (is_requested, waits) = mpsc::channel();
    let (path, server) = server(scratch.path(), "s", move |stream| {
        send_reply(&stream, &hello());
        assert!(matches!(requested(&stream), Some(Request::Dump { .. })));
        is_requested.send(()).unwrap();
        assert_eq!(requested(&stream), None, "the server notices it");
    });
    let mut client = Client::connect(&path).unwrap();
    let disconnector = client.disconnector().unwrap();
    let dump = std::thread::spawn(move || {
        let error = client.dump(None, &dump::Query::default()).unwrap_err();
        (error.is_closed(), client.snapshot().unwrap_err().is_closed())
    });
    waits.recv().unwrap();
    disconnector.disconnect();
    assert_eq!(dump.join().unwrap(), (true, true));
    server.join().unwrap();
    disconnector.disconnect();
}
