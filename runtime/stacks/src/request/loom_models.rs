//! loom models of a stack request: a requester that stops waiting runs beside threads that answer
//! late, or that end. Further models do one step wrong and must fail.
//!
//! Pages are numbers that loom tracks: two threads that access one page at the same time fail the
//! model. Each answer contains the id of the thread that wrote it and the number of the request.

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::Arc;

use super::*;

/// The contents of a page: the number of the request, written by the requester, and the id of the
/// thread that answers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Text {
    request: u32,
    writer: u32,
}

type Claimer = fn(&Slot<Text>, u32) -> Option<Claim<Text>>;
type Finisher = fn(Claim<Text>, u32);

fn claim(slot: &Slot<Text>, tid: u32) -> Option<Claim<Text>> {
    slot.claim(|| tid)
}

fn finish(claim: Claim<Text>, tid: u32) {
    let _requester = claim.write(|page| page.writer = tid);
}

/// Answer (3) done wrong: the word is stored, not exchanged.
fn claim_without_exchange(slot: &Slot<Text>, tid: u32) -> Option<Claim<Text>> {
    let request_word = slot.request_word.load(Ordering::Acquire);
    if super::tid(request_word) != tid {
        return None;
    }
    let buffer = slot.buffer.load(Ordering::Acquire);
    slot.request_word.store(request_word & !u64::from(u32::MAX), Ordering::Release);
    // SAFETY: FOR-EVER.
    Some(Claim { buffer: unsafe { &*buffer } })
}

/// Answer (2) done after (3).
fn claim_before_the_buffer_is_read(slot: &Slot<Text>, tid: u32) -> Option<Claim<Text>> {
    let request_word = slot.request_word.load(Ordering::Acquire);
    if super::tid(request_word) != tid {
        return None;
    }
    slot.request_word
        .compare_exchange(request_word, request_word & !u64::from(u32::MAX), Ordering::Acquire, Ordering::Relaxed)
        .ok()?;
    let buffer = slot.buffer.load(Ordering::Acquire);
    // SAFETY: FOR-EVER.
    Some(Claim { buffer: unsafe { &*buffer } })
}

/// Answer (5) done before (4).
fn finish_before_it_is_written(claim: Claim<Text>, tid: u32) {
    let buffer = claim.buffer;
    let _requester = claim.finish(WRITTEN);
    // SAFETY: none; loom detects the race.
    buffer.page.with_mut(|page| unsafe { (*page).writer = tid });
}

/// Answer (5) without Release: it publishes nothing.
fn finish_without_release(claim: Claim<Text>, tid: u32) {
    // SAFETY: only the claimer writes the page; loom detects the race with the reader.
    claim.buffer.page.with_mut(|page| unsafe { (*page).writer = tid });
    claim.buffer.answer.store(WRITTEN, Ordering::Relaxed);
}

/// A requester that never waits requests the stack of every thread in `tids` once, and that of the
/// first one again. Each thread checks once for a request, like a handler whose signal arrives at
/// any time. At the end, all buffers must be free again, and the first thread must be able to
/// answer one more request.
fn model(tids: &'static [u32], claim: Claimer, finish: Finisher) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (slot, mut requester) = pair(Text::default);
        let slot = Arc::new(slot);
        let handlers: Vec<_> = tids
            .iter()
            .map(|&tid| {
                let slot = slot.clone();
                thread::spawn(move || {
                    if let Some(claim) = claim(&slot, tid) {
                        finish(claim, tid);
                    }
                })
            })
            .collect();
        for (request, &tid) in (1..).zip(tids.iter().chain(&tids[..1])) {
            let request_word =
                requester.send(&slot, tid, |page| *page = Text { request, writer: 0 }).expect("there is a free buffer");
            let text = Answer::Written(Text { request, writer: tid });
            if let Some(answer) = request_word.answer(|page| *page) {
                assert_eq!(answer, text, "the answer to another request");
            }
            let is_withdrawn = request_word.withdraw();
            // If it was not withdrawn, the answer is under way.
            if let Some(answer) = request_word.answer(|page| *page) {
                assert!(!is_withdrawn && answer == text, "withdrawn, and {answer:?} nevertheless");
            }
        }
        for handler in handlers {
            handler.join().unwrap();
        }
        // All answers that were under way have arrived: every buffer is free, and the next request
        // reuses one.
        let buffers = requester.buffers.len();
        let request_word = requester
            .send(&slot, tids[0], |page| *page = Text { request: 0, writer: 0 })
            .expect("all buffers are free");
        finish(claim(&slot, tids[0]).expect("the request has no answer yet"), tids[0]);
        assert_eq!(request_word.answer(|page| page.writer), Some(Answer::Written(tids[0])));
        drop(request_word);
        assert_eq!(requester.buffers.len(), buffers, "a buffer was lost");
    }
}

#[test]
fn loom_a_late_answer_goes_to_its_own_request() {
    holds(None, model(&[1], claim, finish));
}

#[test]
fn loom_threads_answer_for_themselves() {
    holds(Some(2), model(&[1, 2], claim, finish));
}

#[test]
fn loom_without_an_exchange_a_withdrawn_request_is_answered() {
    breaks("Concurrent write accesses", None, model(&[1], claim_without_exchange, finish));
}

#[test]
fn loom_a_buffer_read_after_the_claim_is_another_requests() {
    breaks("nevertheless", None, model(&[1], claim_before_the_buffer_is_read, finish));
}

#[test]
fn loom_an_answer_announced_early_is_read_while_it_is_written() {
    breaks("Concurrent read and write accesses", None, model(&[1], claim, finish_before_it_is_written));
}

#[test]
fn loom_an_answer_without_release_is_read_while_written() {
    breaks("Concurrent read and write accesses", None, model(&[1], claim, finish_without_release));
}

/// A thread may end while its stack is requested. Its handler and its end run on one thread, one
/// after the other.
fn thread_that_ends(end: fn(Claim<Text>)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (slot, mut requester) = pair(Text::default);
        let slot = Arc::new(slot);
        let thread = thread::spawn({
            let slot = slot.clone();
            move || {
                if let Some(claim) = slot.claim(|| 1) {
                    finish(claim, 1);
                }
                if let Some(claim) = slot.claim(|| 1) {
                    end(claim);
                }
            }
        });
        let request_word = requester.send(&slot, 1, |page| *page = Text { request: 1, writer: 0 }).unwrap();
        thread.join().unwrap();
        match request_word.answer(|page| *page) {
            Some(Answer::Written(text)) => {
                assert_eq!(text, Text { request: 1, writer: 1 }, "a page that no thread has written");
            }
            Some(Answer::Ended) => {}
            None => assert!(request_word.withdraw(), "no thread has answered, so it can be withdrawn"),
        }
    }
}

fn end(claim: Claim<Text>) {
    let _requester = claim.end();
}

/// Answer (5) of a thread that ends, as if it had written the page.
fn end_as_if_written(claim: Claim<Text>) {
    let _requester = claim.finish(WRITTEN);
}

#[test]
fn loom_a_thread_that_ends_answers_once() {
    holds(None, thread_that_ends(end));
}

#[test]
fn loom_an_end_that_is_announced_as_an_answer_is_found() {
    breaks("a page that no thread has written", None, thread_that_ends(end_as_if_written));
}
