//! Requests that wait for each other.

use volt::sync::{Barrier, Mutex};
use volt::telemetry::finding::Severity;
use volt::telemetry::rule::Rule;

use super::*;

/// A client that closes its connection ends this deadlock, so it is only probable.
#[test]
fn handlers_that_wait_for_each_other_are_found() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (locks, met) = (Arc::new([Mutex::new(()), Mutex::new(())]), Arc::new(Barrier::new(2)));
            let transfer = |from: usize, to: usize| {
                let (locks, met) = (locks.clone(), met.clone());
                get(async move || {
                    let _from = locks[from].lock().await;
                    met.wait().await;
                    drop(locks[to].lock().await);
                })
            };
            let lines = [line!() - 5, line!() - 3];
            let router = Router::new().route("/one", transfer(0, 1)).route("/other", transfer(1, 0));
            let address = serve(router).await;
            for path in ["/one", "/other"] {
                let mut sender = connect(address).await;
                volt::spawn(async move { fetch(&mut sender, path, "").await });
            }
            let finding = loop {
                let findings = runtime.handle().snapshot().findings.unwrap();
                if let Some(finding) = findings.into_iter().find(|finding| finding.rule == Rule::Deadlock) {
                    break finding;
                }
                volt::task::yield_now().await;
            };
            assert_eq!(finding.severity, Severity::Warning, "{finding:#?}");
            let evidence: Vec<_> = finding.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
            for line in lines {
                assert!(evidence.join("\n").contains(&format!("{}:{line}:", file!())), "{line}: {finding:#?}");
            }
        });
    });
}
