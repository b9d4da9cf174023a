//! A race between two transfers, which a simulation finds and replays.
//!
//! ```text
//! cargo run --bin race                   # runs seeds until one fails
//! cargo run --bin race -- --seed 27      # replays that one, as often as you like
//! cargo run --bin race -- --corrected    # the corrected transfer passes all seeds
//! ```
//!
//! A transfer reads the balance of an account from a database, checks it, and writes the new one.
//! Other tasks run while it awaits the database. If another transfer changes the account meanwhile,
//! its change is lost, and money comes from nowhere. The database is on another host of a simulated
//! network. Its delays are chosen from the seed, like the order in which tasks are polled.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::sim::first_failure;
use volt::sim::net::{Listener, Net, Stream};
use volt::sync::Mutex;
use volt_telemetry::text::counted;

/// The end of the long help.
const AFTER_HELP: &str = "\
Examples:
  # Find a seed with which the test fails
  race
  # Replay that seed
  race --seed 27

Exit codes:
  0  No seed failed
  1  A seed failed
  2  Invalid arguments";

/// Find a race between two transfers by simulation
///
/// Runs the test once for each seed, until it fails. Prints the seed, the failure and the hash of
/// the order of polls.
#[derive(Debug, Parser)]
#[command(max_term_width = 80, after_long_help = AFTER_HELP)]
struct Arguments {
    /// How many seeds to run, from 0
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    seeds: u64,
    /// Run only this seed
    #[arg(long, value_name = "SEED", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run the transfer without the fault
    #[arg(long)]
    corrected: bool,
}

/// The time between the two transfers. The first one usually changes the account before the second
/// one reads it: with one seed of a hundred, it does not.
const BETWEEN: Duration = Duration::from_millis(80);
/// The accounts, one of which has all the money at the beginning.
const ACCOUNTS: usize = 3;
const MONEY: i64 = 100;

fn main() -> ExitCode {
    let Arguments { seeds, seed, corrected } = Arguments::parse();
    let seeds = seed.map_or(0..seeds, |seed| seed..seed.saturating_add(1));
    let count = seeds.end - seeds.start;
    match first_failure(seeds, || transfers(corrected)) {
        Some(failure) => {
            println!("{failure}\nreplay it with: race --seed {}", failure.seed());
            ExitCode::FAILURE
        }
        None => {
            println!("no failure with {}", counted(count, "seed"));
            ExitCode::SUCCESS
        }
    }
}

/// The test: after two transfers, the accounts contain as much as before.
async fn transfers(is_corrected: bool) {
    let net = Net::new().latency(Duration::from_millis(1)..=Duration::from_millis(20));
    let database = volt::spawn(serve(net.listen("database").unwrap()));
    let lock = is_corrected.then(|| Arc::new(Mutex::new(())));
    let tasks = [(Duration::ZERO, 1, 40), (BETWEEN, 2, 50)].map(|(start, to, amount)| {
        let (net, lock) = (net.clone(), lock.clone());
        volt::spawn(async move {
            volt::time::sleep(start).await;
            let mut database = net.connect("bank", "database").await.unwrap();
            // The correction: one transfer at a time.
            let _locked = match &lock {
                Some(lock) => Some(lock.lock().await),
                None => None,
            };
            transfer(&mut database, 0, to, amount).await;
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    let mut connection = net.connect("bank", "database").await.unwrap();
    let mut total = 0;
    for account in 0..ACCOUNTS {
        total += read(&mut connection, account).await;
    }
    assert_eq!(total, MONEY, "the transfers have changed the sum of all accounts");
    database.abort();
}

/// Moves an amount, if the account has as much.
async fn transfer(database: &mut Stream, from: usize, to: usize, amount: i64) {
    let available = read(database, from).await;
    let present = read(database, to).await;
    if available >= amount {
        // The fault: the balance may have changed since it was read.
        write(database, from, available - amount).await;
        write(database, to, present + amount).await;
    }
}

/// A request is the number of an account and a new balance, or -1 to read it. The reply is the
/// balance.
async fn request(database: &mut Stream, account: usize, balance: i64) -> i64 {
    database.write_u8(account as u8).await.unwrap();
    database.write_i64(balance).await.unwrap();
    database.read_i64().await.unwrap()
}

async fn read(database: &mut Stream, account: usize) -> i64 {
    request(database, account, -1).await
}

async fn write(database: &mut Stream, account: usize, balance: i64) {
    request(database, account, balance).await;
}

/// The database: serves each connection in a task.
async fn serve(mut listener: Listener) {
    let mut balances = [0; ACCOUNTS];
    balances[0] = MONEY;
    let balances = Arc::new(std::sync::Mutex::new(balances));
    loop {
        let (mut stream, _host) = listener.accept().await;
        let balances = balances.clone();
        volt::spawn(async move {
            while let Ok(account) = stream.read_u8().await {
                let balance = stream.read_i64().await.unwrap();
                let reply = {
                    let account = &mut balances.lock().unwrap()[usize::from(account)];
                    if balance >= 0 {
                        *account = balance;
                    }
                    *account
                };
                stream.write_i64(reply).await.unwrap();
            }
        });
    }
}
