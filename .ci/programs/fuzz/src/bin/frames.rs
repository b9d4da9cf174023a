//! The frames between two nodes, and the texts of pids in messages.
#![no_main]

use bytes::Bytes;
use fuzz_targets::memory::bounded;
use libfuzzer_sys::fuzz_target;

// Private files of the product, which need nothing else of their crate.
#[allow(dead_code)]
#[path = "../../../../../runtime/process/src/messages"]
mod messages {
    pub mod failure;
    pub mod payload;
    pub mod pid;
}
#[allow(dead_code)]
#[path = "../../../../../runtime/process/src/nodes/frame/mod.rs"]
mod frame;

fuzz_target!(|bytes: &[u8]| {
    // A name or a reason is copied; payloads are parts of the frame. The second part of the bound
    // is for the names of nodes, of which a program keeps a limited number.
    bounded(8 * bytes.len() + (1 << 20), || {
        whole(bytes);
        if let Some(pid) = str::from_utf8(bytes).ok().and_then(|text| text.parse::<messages::pid::Pid>().ok()) {
            assert_eq!(pid.to_string().as_bytes(), bytes, "a pid has one text");
        }
    });
});

/// A frame has one form only: writing the decoded frame gives the same bytes.
fn whole(bytes: &[u8]) {
    let Ok((head, Ok(content))) = frame::Frame::decode(Bytes::copy_from_slice(bytes)) else { return };
    let mut written = content.encode();
    frame::put_head(&mut written, head);
    assert_eq!(written, bytes, "{content:?} has another form");
}
