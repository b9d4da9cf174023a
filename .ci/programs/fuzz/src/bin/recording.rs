//! Recordings: reading, searching a time, and the export as a trace.
#![no_main]

use std::io::{self, Cursor, Write};

use fuzz_targets::memory::bounded;
use fuzz_targets::sealed;
use libfuzzer_sys::fuzz_target;
use volt_recording::chrome_trace;
use volt_recording::reader::Reader;
use volt_telemetry::recording::record::RECORD_BYTES;

/// The memory that reading needs at most, apart from what is in proportion to the file. Most of it
/// is one snapshot, as in the target `replies`.
const FILE_BYTES_MAX: usize = 96 << 20;
/// The longest export that is parsed as a whole. A text of the recording is written once for each
/// event that has it, so an export may be much longer than its recording.
const TRACE_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let file = sealed::recording(input);
    bounded(FILE_BYTES_MAX + 64 * file.len(), || read(&file));
});

fn read(file: &[u8]) {
    let Ok(mut reader) = Reader::new(Cursor::new(file), "fuzz") else { return };
    let (mut records, mut flushes, mut times) = (0, 0, Vec::new());
    let mut error = None;
    loop {
        match reader.next_flush() {
            Ok(Some(flush)) => {
                records += flush.records();
                flushes += 1;
                times.push(flush.at_ns);
            }
            Ok(None) => break,
            Err(broken) => {
                assert!(error.is_none(), "one error ends the recording: {error:?}, then {broken}");
                error = Some(broken);
            }
        }
        assert!((0.0..=1.0).contains(&reader.progress_ratio()));
    }
    // Each event has its bytes in the file, and each flush has a frame.
    assert!(records as usize * RECORD_BYTES <= file.len(), "{records} events in {} bytes", file.len());
    assert!(flushes * 24 <= file.len(), "{flushes} flushes in {} bytes", file.len());
    assert!(reader.next_flush().is_ok_and(|flush| flush.is_none()), "the end is the end");
    drop(reader.span());
    for at_ns in times.iter().step_by(times.len() / 8 + 1).copied().chain([0, u64::MAX]) {
        drop(reader.snapshot_at(at_ns));
        if reader.seek(at_ns).is_ok() {
            let rest = reader.by_ref().filter(Result::is_ok).count();
            assert!(rest <= flushes, "{rest} flushes after {at_ns} ns, and {flushes} in all");
        }
    }
    if reader.rewind().is_err() {
        return;
    }
    let mut trace = Head::default();
    let exported = chrome_trace::export(&mut reader, &mut trace, |ratio| assert!((0.0..=1.0).contains(&ratio)));
    assert!(exported.is_ok(), "{:?}", exported.err());
    if trace.len <= TRACE_BYTES_MAX {
        let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(&trace.bytes);
        assert!(parsed.is_ok(), "{:?}: {}", parsed.err(), String::from_utf8_lossy(&trace.bytes));
    }
}

/// Keeps the beginning of what is written, and counts the rest.
#[derive(Default)]
struct Head {
    bytes: Vec<u8>,
    len: usize,
}

impl Write for Head {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = TRACE_BYTES_MAX.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.len += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
