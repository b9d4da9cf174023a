//! A test of which recorder of the `metrics` crate a program has. A program has at most one and
//! cannot replace it, so this test runs in a separate program.

use std::io::{Read, Write};
use std::net::TcpStream;

use metrics_exporter_prometheus::PrometheusBuilder;
use volt_exporter::Exporter;

use crate::watchdog;

fn page(exporter: &Exporter) -> String {
    let mut stream = TcpStream::connect(exporter.local_addr()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn an_application_may_install_its_own_recorder_after_serve() {
    watchdog::alone(|| {
        let first = Exporter::builder().listen("127.0.0.1:0").install_recorder(false).serve().unwrap();
        let own = PrometheusBuilder::new().install_recorder().expect("the exporter has left the place free");
        metrics::counter!("orders_total").increment(3);
        let without = page(&first);
        assert!(without.contains("volt_program_up") && !without.contains("orders_total"), "{without}");
        // With its handle, its metrics are on the page too.
        let second = Exporter::builder().listen("127.0.0.1:0").application_metrics(own).serve().unwrap();
        let with = page(&second);
        assert!(with.contains("orders_total 3"), "{with}");
    });
}
