//! The replies of a program to a client: the frames of the control socket from the program's side,
//! and what the console and the exporter derive from them.
#![no_main]

use fuzz_targets::memory::bounded;
use libfuzzer_sys::fuzz_target;
use volt_diagnosis::exposition::{self, Origin, Samples};
use volt_diagnosis::rates::Rates;
use volt_telemetry::snapshot::Program;
use volt_telemetry::wire::{self, MAX_REPLY_BYTES, Reply};

/// The memory that one reply may need. Most of it is for the default values of fields that are
/// missing in the message, as of 2,048 workers with their histograms.
const REPLY_BYTES_MAX: usize = 96 << 20;

fuzz_target!(|bytes: &[u8]| {
    let mut replies = Vec::new();
    bounded(REPLY_BYTES_MAX, || replies.extend(wire::decode::<Reply>(bytes)));
    let mut from = bytes;
    while let Ok(Some(reply)) = bounded(REPLY_BYTES_MAX, || wire::read_frame::<Reply>(&mut from, MAX_REPLY_BYTES)) {
        replies.push(reply);
    }
    replies.iter().for_each(check);
});

fn check(reply: &Reply) {
    // A message that was read is the same after it is written and read again. Bytes are compared,
    // because a number that is not one does not equal itself.
    let frame = wire::encode(reply, usize::MAX).expect("memory accepts every write");
    let again = wire::decode::<Reply>(&frame[4..]).expect("a message that was written can be read");
    assert!(wire::encode(&again, usize::MAX).is_ok_and(|other| other == frame), "{reply:?} changed");
    match reply {
        Reply::Snapshot { program, .. } => derive(program),
        Reply::Dump(dump) => drop(dump.text()),
        Reply::Flush { flush } => {
            let (records, lost) = (flush.records(), flush.lost());
            let pieces = flush.as_ref().clone().into_pieces(7);
            assert_eq!(pieces.iter().map(|piece| piece.records()).sum::<u64>(), records);
            assert_eq!(pieces.iter().map(|piece| piece.lost()).fold(0, u64::saturating_add), lost);
        }
        _ => {}
    }
}

/// Computes the console's view of a program, and the page of the exporter.
fn derive(program: &Program) {
    for (earlier, later) in program.runtimes.iter().zip(program.runtimes.iter().skip(1)) {
        drop(Rates::between(earlier, later));
    }
    let mut page = String::new();
    exposition::write(&Samples::default().read(&[(Origin::new(), Some(program))]), &mut page).expect("memory");
    for line in page.lines() {
        let is_comment = line.starts_with("# HELP ") || line.starts_with("# TYPE ");
        let is_sample = line.starts_with("volt_") && line.rsplit_once(' ').is_some_and(|(_, value)| is_value(value));
        assert!(line.is_empty() || is_comment || is_sample, "the page has the line {line:?}");
    }
}

fn is_value(text: &str) -> bool {
    matches!(text, "NaN" | "+Inf" | "-Inf") || text.parse::<f64>().is_ok()
}
