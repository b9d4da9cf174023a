//! The smallest program that can be observed: one task per second, metrics, and the control socket.
//!
//! While it runs, use `volt-console attach hello` or `curl http://127.0.0.1:9464/metrics`.

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
