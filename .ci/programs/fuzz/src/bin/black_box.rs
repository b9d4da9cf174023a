//! Black boxes: the file that a killed program leaves.
#![no_main]

use std::io::Cursor;

use fuzz_targets::memory::bounded;
use fuzz_targets::sealed;
use libfuzzer_sys::fuzz_target;
use volt_recording::black_box::BlackBox;
use volt_telemetry::recording::black_box::FileName;
use volt_telemetry::recording::record::RECORD_BYTES;

/// The memory that a file may need, apart from what is in proportion to it: the cells of 2,048
/// workers, a ring, which counts as zeros where the file ends, and two samples, as in the target
/// `replies`.
const FILE_BYTES_MAX: usize = 256 << 20;

fuzz_target!(|input: &[u8]| {
    if let Ok(name) = str::from_utf8(input)
        && let Some(parsed) = FileName::parse(name)
    {
        assert_eq!(parsed.to_string(), name);
    }
    let file = sealed::black_box(input);
    bounded(FILE_BYTES_MAX + 16 * file.len(), || {
        let Ok(read) = BlackBox::read(Cursor::new(&file), "fuzz") else { return };
        let last_ns = read.last_sign_ns();
        assert!(last_ns >= read.checked_at_ns);
        drop((read.unix_ns(last_ns), read.head()));
        let records: u64 = read.flushes().iter().map(|flush| flush.records()).sum();
        // A ring whose first byte is in the file counts as whole.
        let rings = 1 + file.len() / (read.ring_records * RECORD_BYTES).max(1);
        assert!(records as usize <= rings * read.ring_records, "{records} events in {} bytes", file.len());
        assert!(read.workers.len() <= read.tracks.len() && read.samples.len() <= 2);
    });
});
