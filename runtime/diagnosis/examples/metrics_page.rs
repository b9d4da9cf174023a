//! Prints `docs/metrics.md`:
//! `cargo run -q -p volt-diagnosis --example metrics_page >docs/metrics.md`.

fn main() {
    print!("{}", volt_diagnosis::catalog::markdown_page());
}
