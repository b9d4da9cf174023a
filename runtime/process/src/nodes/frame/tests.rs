//! Property tests of frames: round trips, arbitrary bytes, damaged frames, and other versions.

use proptest::prelude::*;

use super::*;

fn places() -> impl Strategy<Value = Place> {
    any::<(u32, u32)>().prop_map(|(index, generation)| Place { index, generation })
}

fn payloads() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..64))
}

fn payload_of(bytes: Option<Vec<u8>>) -> Payload {
    bytes.map_or_else(Payload::empty, Payload::bytes)
}

fn reasons() -> impl Strategy<Value = ExitReason> {
    (0..7_u8, any::<String>()).prop_map(|(tag, text)| match tag {
        0 => ExitReason::Normal,
        1 => ExitReason::Shutdown,
        2 => ExitReason::Killed,
        3 => ExitReason::Failed(Failure::new(text)),
        4 => ExitReason::Panicked(Failure::new(text)),
        5 => ExitReason::NoProcess,
        _ => ExitReason::NoConnection,
    })
}

fn frames() -> impl Strategy<Value = Frame> {
    let parts = (any::<u64>(), places(), places(), any::<bool>(), payloads(), reasons(), any::<String>());
    (1..17_u8, 0..8_u8, parts).prop_map(|(kind, answer, (id, to, from, has_sender, bytes, reason, name))| {
        let (sender, payload) = (has_sender.then_some(from), payload_of(bytes));
        let outcome = |payload| match answer {
            0 => Outcome::Answer(payload),
            1 => Outcome::Found(sender),
            2 => Outcome::NoProcess,
            3 => Outcome::Ended,
            4 => Outcome::Full,
            5 => Outcome::NoReply,
            6 => Outcome::NotBytes,
            _ => Outcome::TooLarge,
        };
        match kind {
            1 => Frame::Hello,
            2 => Frame::Welcome,
            3 => Frame::Probe,
            4 => Frame::Echo,
            5 => Frame::Message { to, from: sender, payload },
            6 => Frame::Call { id, to, from: sender, payload },
            7 => Frame::Answer { id, outcome: outcome(payload) },
            8 => Frame::Monitor { id, to },
            9 => Frame::Demonitor { id },
            10 => Frame::Down { id, reason },
            11 => Frame::Link { to, from },
            12 => Frame::Unlink { to, from },
            13 => Frame::Exit { to, from, reason },
            14 => Frame::WhereIs { id, name },
            15 => Frame::Cancel { to },
            _ => Frame::Kill { to },
        }
    })
}

proptest! {
    #[test]
    fn every_frame_is_read_as_it_was_written(frame in frames(), head in (any::<u64>(), any::<u64>(), 0..=NUMBER_MAX)) {
        let head = Head { session: head.0, received_session: head.1, number: head.2 };
        let mut written = frame.encode();
        put_head(&mut written, head);
        let written = written.freeze();
        prop_assert!(written.len() <= FRAME_BYTES_MAX);
        let (read_head, read) = Frame::decode(written.clone()).unwrap();
        prop_assert_eq!(read_head, head);
        // `Frame` has no `PartialEq`: compare the encodings.
        let mut again = read.unwrap().encode();
        put_head(&mut again, head);
        prop_assert_eq!(again.freeze(), written);
    }

    #[test]
    fn any_bytes_are_a_frame_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(Frame::decode(bytes.into()));
    }

    #[test]
    fn a_frame_that_was_damaged_is_a_frame_or_is_refused(
        frame in frames(), at in any::<proptest::sample::Index>(), byte in any::<u8>(), len in any::<proptest::sample::Index>()
    ) {
        let mut bytes = frame.encode().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(len.index(bytes.len() + 1));
        drop(Frame::decode(bytes.into()));
    }
}

#[test]
fn other_versions_and_kinds_are_distinguished_from_garbage() {
    let frame = || Frame::Hello.encode().to_vec();
    let mut other_version = frame();
    other_version[0] = VERSION + 1;
    assert_eq!(Frame::decode(other_version.into()).unwrap_err(), Unread::Version);
    let mut other_kind = frame();
    other_kind[1] = 255;
    assert_eq!(Frame::decode(other_kind.into()).unwrap().1.unwrap_err(), Fault::UnknownKind);
    let mut longer = frame();
    longer.push(0);
    assert_eq!(Frame::decode(longer.into()).unwrap().1.unwrap_err(), Fault::Malformed);
    assert_eq!(Frame::decode(Bytes::new()).unwrap_err(), Unread::Malformed);
    assert_eq!(Frame::decode(vec![1; FRAME_BYTES_MAX + 1].into()).unwrap_err(), Unread::Malformed);
}

#[test]
fn only_bytes_and_empty_payloads_fit() {
    assert_eq!(fits(&Payload::empty()), Ok(()));
    assert_eq!(fits(&Payload::bytes(vec![0; PAYLOAD_BYTES_MAX])), Ok(()));
    assert_eq!(fits(&Payload::bytes(vec![0; PAYLOAD_BYTES_MAX + 1])), Err(Misfit::TooLarge));
    assert_eq!(fits(&Payload::new(7_u8)), Err(Misfit::NotBytes));
}
