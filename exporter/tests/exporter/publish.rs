//! Tests of Volt's metrics in recorders that the application has installed: a real statsd client
//! over UDP, an own Prometheus page, and both together with `serve`. A program has at most one
//! recorder and at most one publisher, so each test runs in a separate program.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use metrics_exporter_statsd::{StatsdBuilder, StatsdRecorder};
use metrics_util::layers::FanoutBuilder;
use volt::Runtime;
use volt_exporter::{Exporter, Histograms, Publisher, publish_to_recorder};

use crate::forked::in_child;
use crate::watchdog;

/// The time between two publications.
const OFTEN: Duration = Duration::from_millis(20);
/// Longer than any test takes: only the first and the last publication happen.
const NEVER: Duration = Duration::from_secs(3600);

const SPAWNED: &str = r#"volt_tasks_spawned_total{runtime="shop"}"#;

fn shop() -> Runtime {
    volt::Builder::new_multi_thread().worker_threads(1).name("shop").control_socket(false).build().unwrap()
}

fn spawn(runtime: &Runtime, count: usize) {
    runtime.block_on(async {
        for _ in 0..count {
            volt::spawn(async {}).await.unwrap();
        }
    });
}

/// Starts a publisher as soon as the last one has published for the last time.
fn publish_when_possible(interval: Duration) -> Publisher {
    loop {
        match publish_to_recorder(interval) {
            Ok(publisher) => return publisher,
            Err(error) => assert!(error.is_already_publishing(), "{error}"),
        }
        std::thread::yield_now();
    }
}

fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn get(address: impl std::net::ToSocketAddrs) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// The numbers that a statsd server has received: the sum of each counter, and the last value of
/// each gauge.
struct Statsd {
    datagrams: mpsc::Receiver<Vec<u8>>,
    counters: HashMap<String, f64>,
    gauges: HashMap<String, f64>,
}

impl Statsd {
    /// Returns a server, and the recorder of a client that sends to it.
    fn start() -> (Self, StatsdRecorder) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let (sender, datagrams) = mpsc::channel();
        // The kernel keeps only a few datagrams of this size and drops the others, so a thread
        // receives them even while the test does something else.
        std::thread::spawn(move || {
            let mut datagram = [0; 65_536];
            loop {
                let len = socket.recv(&mut datagram).unwrap();
                if sender.send(datagram[..len].to_vec()).is_err() {
                    break;
                }
            }
        });
        let builder = StatsdBuilder::from("127.0.0.1", port)
            .with_client_udp_host("127.0.0.1")
            // The test counts exactly, so that no line may be lost on a busy machine.
            .with_queue_size(100_000)
            .with_buffer_size(8_000);
        let server = Self { datagrams, counters: HashMap::new(), gauges: HashMap::new() };
        (server, builder.build(None).unwrap())
    }

    /// Receives until `condition` is true. The watchdog ends a test in which that never happens.
    fn receive_until(&mut self, condition: impl Fn(&Self) -> bool) {
        while !condition(self) {
            let datagram = self.datagrams.recv().unwrap();
            let text = std::str::from_utf8(&datagram).unwrap();
            text.lines().for_each(|line| self.receive(line));
        }
    }

    /// Receives one line: `name:value|kind|#tag:value,…`.
    fn receive(&mut self, line: &str) {
        let mut parts = line.split('|');
        let (name, value) = parts.next().unwrap().split_once(':').unwrap();
        let (kind, tags) = (parts.next().unwrap(), parts.next().unwrap_or("#"));
        let series = format!("{name} {}", tags.strip_prefix('#').unwrap());
        let value: f64 = value.parse().unwrap();
        match kind {
            "c" => *self.counters.entry(series).or_default() += value,
            "g" => drop(self.gauges.insert(series, value)),
            _ => panic!("{line}"),
        }
    }
}

#[test]
fn statsd_receives_each_count_once() {
    watchdog::alone(|| {
        watchdog::watched(|| {
            let (mut server, recorder) = Statsd::start();
            metrics::set_global_recorder(recorder).unwrap();
            let runtime = shop();
            spawn(&runtime, 100);
            let publisher = Publisher::builder().interval(OFTEN).histograms(Histograms::Quantiles).start().unwrap();
            let spawned = |server: &Statsd| server.counters.get("volt_tasks_spawned_total runtime:shop").copied();
            server.receive_until(|server| spawned(server) == Some(100.0));
            spawn(&runtime, 50);
            server.receive_until(|server| spawned(server) >= Some(150.0));
            // Several further publications, which count nothing again.
            for round in 0..3 {
                let uptime = "volt_runtime_uptime_seconds runtime:shop";
                let before = server.gauges.remove(uptime);
                assert!(before.is_some(), "round {round}");
                server.receive_until(|server| server.gauges.contains_key(uptime));
            }
            assert_eq!(spawned(&server), Some(150.0));
            let gauge = |name: &str| server.gauges.get(name).copied().unwrap_or_else(|| panic!("no {name}"));
            assert_eq!(gauge("volt_runtime_workers runtime:shop"), 1.0);
            assert!(gauge("volt_poll_duration_seconds_count runtime:shop") >= 150.0);
            let _quantile = gauge("volt_poll_duration_seconds runtime:shop,quantile:0.99");
            // A counter of seconds is a gauge with the total.
            server.receive_until(|server| {
                let mut times =
                    server.gauges.iter().filter(|(series, _)| series.starts_with("volt_worker_time_seconds_total "));
                times.any(|(series, seconds)| series.contains("runtime:shop,worker:0,state:") && *seconds > 0.0)
            });
            // When the runtime ends, its gauges become 0.
            drop(runtime);
            server.receive_until(|server| server.gauges["volt_runtime_workers runtime:shop"] == 0.0);
            drop(publisher);
        });
    });
}

/// Serves the page of `recorder` as an application does that has its own listener.
fn own_listener(recorder: PrometheusHandle) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let page = recorder.render();
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len()).unwrap();
        }
    });
    address
}

#[test]
fn an_own_prometheus_page_has_the_metrics_of_volt() {
    watchdog::alone(|| {
        watchdog::watched(|| {
            let address = own_listener(PrometheusBuilder::new().install_recorder().unwrap());
            let runtime = shop();
            let _publisher = publish_to_recorder(OFTEN).unwrap();
            metrics::counter!("orders_total").increment(3);
            spawn(&runtime, 20);
            let page = loop {
                let page = get(address);
                if value(&page, SPAWNED) == Some(20.0) {
                    break page;
                }
            };
            assert_eq!(value(&page, "orders_total"), Some(3.0));
            assert!(page.contains("# HELP volt_tasks_spawned_total Tasks spawned.\n"), "{page}");
            assert!(page.contains("\nvolt_poll_duration_seconds_bucket{runtime=\"shop\",le=\"+Inf\"} "), "{page}");
        });
    });
}

#[test]
fn a_program_without_a_recorder_may_install_one_later() {
    watchdog::alone(|| {
        watchdog::watched(|| {
            let runtime = shop();
            spawn(&runtime, 20);
            drop(publish_to_recorder(OFTEN).unwrap());
            // The first one has published when this one can start.
            let _publisher = publish_when_possible(OFTEN);
            let recorder = PrometheusBuilder::new().install_recorder().unwrap();
            let page = loop {
                let page = recorder.render();
                if value(&page, SPAWNED).is_some() {
                    break page;
                }
            };
            assert_eq!(value(&page, SPAWNED), Some(20.0), "with what was counted before");
        });
    });
}

#[test]
fn dropping_a_publisher_publishes_once_more_and_ends_its_thread() {
    watchdog::alone(|| {
        watchdog::watched(|| {
            let recorder = PrometheusBuilder::new().install_recorder().unwrap();
            let runtime = shop();
            let publisher = publish_to_recorder(NEVER).unwrap();
            let error = publish_to_recorder(NEVER).unwrap_err();
            assert!(error.is_already_publishing() && error.to_string().contains("drop it before"), "{error}");
            spawn(&runtime, 20);
            drop(publisher);
            let wait_for = |count| {
                while value(&recorder.render(), SPAWNED) != Some(count) {
                    std::thread::yield_now();
                }
            };
            wait_for(20.0);
            // The next one continues there.
            spawn(&runtime, 10);
            let publisher = publish_when_possible(NEVER);
            spawn(&runtime, 5);
            // In async code, the drop does not wait, and the last publication follows a moment
            // later.
            runtime.block_on(async { drop(publisher) });
            wait_for(35.0);
            let _next = publish_when_possible(NEVER);
        });
    });
}

#[test]
fn a_forked_child_starts_its_own_publisher() {
    watchdog::alone(|| {
        watchdog::watched(|| {
            let mut publishers = vec![publish_to_recorder(NEVER).unwrap()];
            in_child(|| {
                publishers.push(publish_to_recorder(NEVER).unwrap());
                in_child(|| {
                    // The threads of both stayed in the other programs. Waiting for both of them in
                    // vain takes longer than a child may run.
                    publishers.clear();
                    let recorder = PrometheusBuilder::new().install_recorder().unwrap();
                    let runtime = shop();
                    spawn(&runtime, 20);
                    drop(publish_to_recorder(NEVER).unwrap());
                    assert_eq!(value(&recorder.render(), SPAWNED), Some(20.0));
                });
                assert!(publish_to_recorder(NEVER).unwrap_err().is_already_publishing(), "the child publishes");
            });
            assert!(publish_to_recorder(NEVER).unwrap_err().is_already_publishing(), "the parent publishes");
        });
    });
}

#[test]
fn a_page_and_an_own_recorder_do_not_disturb_each_other() {
    watchdog::alone(|| {
        watchdog::watched(|| {
            let (mut server, statsd) = Statsd::start();
            // The application sends to statsd, and passes a second recorder to the page.
            let prometheus = PrometheusBuilder::new().build_recorder();
            let handle = prometheus.handle();
            let both = FanoutBuilder::default().add_recorder(statsd).add_recorder(prometheus).build();
            metrics::set_global_recorder(both).unwrap();
            let runtime = shop();
            let _publisher = publish_to_recorder(OFTEN).unwrap();
            let plain = volt_exporter::serve("127.0.0.1:0").unwrap();
            let exporter = Exporter::builder().listen("127.0.0.1:0").application_metrics(handle).serve().unwrap();
            metrics::counter!("orders_total").increment(3);
            spawn(&runtime, 20);
            server.receive_until(|server| {
                let counter = |name: &str| server.counters.get(name).copied();
                counter("volt_tasks_spawned_total runtime:shop") == Some(20.0) && counter("orders_total ") == Some(3.0)
            });
            // Volt's metrics are there once, although the application's recorder has them too.
            let page = get(exporter.local_addr());
            assert_eq!(page.matches("# TYPE volt_tasks_spawned_total ").count(), 1, "{page}");
            assert_eq!(page.matches(SPAWNED).count(), 1, "{page}");
            assert!(page.contains("\nvolt_tasks_spawned_total{runtime=\"shop\"} 20\n"), "{page}");
            assert!(page.contains("\norders_total 3\n"), "{page}");
            let page = get(plain.local_addr());
            assert!(page.contains(SPAWNED) && !page.contains("orders_total"), "{page}");
        });
    });
}

#[test]
fn the_recorder_of_serve_does_not_repeat_the_metrics_of_volt() {
    watchdog::alone(|| {
        watchdog::watched(|| {
            let exporter = volt_exporter::serve("127.0.0.1:0").unwrap();
            let runtime = shop();
            spawn(&runtime, 20);
            drop(publish_to_recorder(NEVER).unwrap());
            metrics::counter!("orders_total").increment(3);
            let page = get(exporter.local_addr());
            assert_eq!(page.matches(SPAWNED).count(), 1, "{page}");
            assert!(page.contains("\norders_total 3\n"), "{page}");
        });
    });
}

/// A recorder with a fault.
struct Panics;

impl Recorder for Panics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        panic!("the fault of this recorder")
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn after_a_panic_of_a_recorder_the_next_publisher_can_start() {
    let stderr = watchdog::alone_with(&[], || {
        watchdog::watched(|| {
            metrics::set_global_recorder(Panics).unwrap();
            let _runtime = shop();
            for _ in 0..2 {
                drop(publish_when_possible(OFTEN));
            }
        });
    });
    if let Some(stderr) = stderr {
        assert_eq!(stderr.matches("the fault of this recorder").count(), 2, "{stderr}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_publisher_that_cannot_start_a_thread_names_the_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    watchdog::alone(|| {
        watchdog::watched(|| {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB"));
            let used = size.unwrap().trim().parse::<u64>().unwrap() * 1024;
            let before = getrlimit(Resource::As);
            // Not enough for the stack of a thread.
            setrlimit(Resource::As, Rlimit { current: Some(used + (1 << 20)), ..before }).unwrap();
            let started = publish_to_recorder(NEVER);
            setrlimit(Resource::As, before).unwrap();
            let error = started.unwrap_err();
            assert!(error.to_string().starts_with("cannot start the thread that publishes metrics ("), "{error}");
            assert!(!error.is_invalid_setting() && !error.is_already_publishing());
            // It can be tried again.
            drop(publish_to_recorder(NEVER).unwrap());
        });
    });
}
