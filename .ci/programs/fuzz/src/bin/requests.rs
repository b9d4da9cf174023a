//! The requests of a client to a program: the frames of the control socket, from the client's side.
#![no_main]

use fuzz_targets::memory::bounded;
use libfuzzer_sys::fuzz_target;
use volt_telemetry::wire::{self, MAX_REQUEST_BYTES, Request};

/// A request is a map with its kind in it, so serde keeps the fields that it reads before the kind.
/// For a list it reserves up to 1 MiB by the declared length, at each of 24 depths, and writes to
/// no more of it than there are elements.
const RESERVED_BYTES_MAX: usize = 25 << 20;

fuzz_target!(|bytes: &[u8]| {
    bounded(RESERVED_BYTES_MAX + 64 * bytes.len(), || {
        // The bytes as the body of one frame, which the observer's thread reads in this way.
        if let Ok(request) = Request::from_body(bytes) {
            check(&request);
        }
        // The bytes as a stream of frames.
        let mut from = bytes;
        while let Ok(Some(request)) = wire::read_frame::<Request>(&mut from, MAX_REQUEST_BYTES) {
            check(&request);
        }
    });
});

/// A request that was read is the same after it is written and read again.
fn check(request: &Request) {
    let frame = wire::encode(request, usize::MAX).expect("memory accepts every write");
    assert_eq!(wire::decode::<Request>(&frame[4..]).ok().as_ref(), Some(request));
}
