//! Prints `docs/metrics.md`: `cargo run -q -p volt-telemetry --example metrics_page >docs/metrics.md`.

fn main() {
    print!("{}", volt_telemetry::catalog::markdown_page());
}
