//! Accounts behind locks: money is neither made nor lost, and limits hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use volt::Handle;
use volt::sync::{Mutex, Notify, RwLock, Semaphore};
use volt::time::timeout;

use crate::part::{Part, pause};
use crate::random::Random;

const ACCOUNTS: usize = 8;
const BALANCE: u64 = 1_000;
const CLERKS: u64 = 12;
const PERMITS: usize = 3;
const PAUSE_MAX: Duration = Duration::from_millis(5);

#[derive(Debug)]
struct Bank {
    accounts: [Mutex<u64>; ACCOUNTS],
    /// The number of transfers, and the same number again: a reader sees both or neither change.
    journal: RwLock<(u64, u64)>,
    counter: Semaphore,
    at_the_counter: AtomicU64,
    doorbell: Notify,
}

pub(super) fn start(runtime: &Handle, part: &Arc<Part>) {
    let bank = Arc::new(Bank {
        accounts: std::array::from_fn(|_| Mutex::new(BALANCE)),
        journal: RwLock::new((0, 0)),
        counter: Semaphore::new(PERMITS),
        at_the_counter: AtomicU64::new(0),
        doorbell: Notify::new(),
    });
    for clerk in 0..CLERKS {
        drop(runtime.spawn(transfer(part.clone(), bank.clone(), clerk)));
    }
    drop(runtime.spawn(audit(part.clone(), bank.clone())));
    drop(runtime.spawn(answer_the_door(part.clone(), bank)));
}

async fn transfer(part: Arc<Part>, bank: Arc<Bank>, clerk: u64) {
    let mut random = Random::new(clerk);
    while !part.is_over() {
        let permit = bank.counter.acquire().await;
        // ORDERING: Relaxed, here and below: the semaphore orders the changes. A clerk subtracts
        // before it returns the permit with which the next one adds.
        let at_the_counter = bank.at_the_counter.fetch_add(1, Relaxed) + 1;
        part.verify(at_the_counter <= PERMITS as u64, format_args!("{at_the_counter} clerks for {PERMITS} permits"));
        let (one, other) = (random.below(ACCOUNTS as u64) as usize, random.below(ACCOUNTS as u64) as usize);
        if one != other {
            // All clerks lock in the same order.
            let mut lower = bank.accounts[one.min(other)].lock().await;
            // Some clerks lose patience while they wait for the second lock, and give the first
            // back.
            let patience = Duration::from_millis(random.below(20));
            if let Ok(mut upper) = timeout(patience, bank.accounts[one.max(other)].lock()).await {
                let amount = (*lower).min(random.below(10));
                *lower -= amount;
                volt::task::yield_now().await;
                *upper += amount;
                let mut journal = bank.journal.write().await;
                journal.0 += 1;
                volt::task::yield_now().await;
                journal.1 += 1;
            }
        }
        bank.at_the_counter.fetch_sub(1, Relaxed);
        drop(permit);
        bank.doorbell.notify_one();
        pause(&mut random, PAUSE_MAX).await;
    }
}

/// Locks all accounts, and compares their sum.
async fn audit(part: Arc<Part>, bank: Arc<Bank>) {
    let mut random = Random::new(CLERKS);
    while !part.is_over() {
        let mut sum = 0;
        let mut guards = Vec::with_capacity(ACCOUNTS);
        for account in &bank.accounts {
            let guard = account.lock().await;
            sum += *guard;
            guards.push(guard);
        }
        drop(guards);
        part.verify(sum == BALANCE * ACCOUNTS as u64, format_args!("the accounts have {sum} together"));
        let journal = *bank.journal.read().await;
        part.verify(journal.0 == journal.1, format_args!("a reader sees half of a change: {journal:?}"));
        pause(&mut random, PAUSE_MAX * 10).await;
    }
}

/// Every ring is answered while clerks ring.
async fn answer_the_door(part: Arc<Part>, bank: Arc<Bank>) {
    while !part.is_over() {
        // The last clerk may have rung before.
        if timeout(Duration::from_secs(1), bank.doorbell.notified()).await.is_ok() {
            part.count();
        }
    }
}
