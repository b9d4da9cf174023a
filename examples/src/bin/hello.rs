//! The smallest program that can be observed: a task a second, metrics, and the control socket.
//!
//! While it runs: `volt-console attach hello`, and `curl http://127.0.0.1:9464/metrics`.

use std::time::Duration;

#[volt::main(name = "hello")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _exporter = volt_exporter::serve("127.0.0.1:9464")?;
    loop {
        volt::spawn(async { println!("hello") }).await?;
        metrics::counter!("hello_greetings_total").increment(1);
        volt::time::sleep(Duration::from_secs(1)).await;
    }
}
