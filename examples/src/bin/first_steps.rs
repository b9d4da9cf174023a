//! The program of the book's first steps: a task that blocks its worker.
//!
//! ```text
//! cargo run --release --bin first_steps
//! volt-console doctor first_steps
//! ```

use std::thread;
use std::time::Duration;

#[volt::main(name = "first_steps")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    for number in 0.. {
        let greeting = volt::spawn(greet(number)).await?;
        println!("{greeting}");
        volt::time::sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}

async fn greet(number: u32) -> String {
    // The fault: this blocks the worker's thread.
    thread::sleep(Duration::from_millis(50));
    format!("hello {number}")
}
