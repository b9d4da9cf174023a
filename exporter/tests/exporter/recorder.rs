//! Tests of which recorder of the `metrics` crate a program has. A program has at most one and
//! cannot replace it, so each test runs in a separate program.

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

#[test]
fn serve_does_not_claim_the_recorder_that_the_program_has() {
    watchdog::alone(|| {
        let own = PrometheusBuilder::new().install_recorder().unwrap();
        // By default, both work side by side.
        let exporter = volt_exporter::serve("127.0.0.1:0").unwrap();
        metrics::counter!("orders_total").increment(3);
        assert!(own.render().contains("orders_total 3"));
        let page = page(&exporter);
        assert!(page.contains("volt_program_up") && !page.contains("orders_total"), "{page}");
        // An application that requires the exporter's recorder gets an error with the remedies.
        let error = Exporter::builder().listen("127.0.0.1:0").install_recorder(true).serve().unwrap_err();
        assert!(error.is_invalid_setting());
        let error = error.to_string();
        assert!(error.starts_with("install_recorder: the application has installed its own recorder"), "{error}");
        assert!(error.contains("application_metrics") && error.contains("publish_to_recorder"), "{error}");
    });
}

#[test]
fn a_second_exporter_may_require_the_recorder_of_the_first() {
    watchdog::alone(|| {
        let _first = volt_exporter::serve("127.0.0.1:0").unwrap();
        let second = Exporter::builder().listen("127.0.0.1:0").install_recorder(true).serve().unwrap();
        metrics::counter!("orders_total").increment(3);
        let page = page(&second);
        assert!(page.contains("orders_total 3"), "{page}");
    });
}
