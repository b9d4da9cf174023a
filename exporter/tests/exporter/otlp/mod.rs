//! Tests of metrics pushed to a collector. The collector is a real server on a real socket, which
//! parses HTTP by hand and decodes the requests with OpenTelemetry's own messages. Other tests push
//! to collectors that do not exist, do not respond, or reject the data.

mod busy;
mod end;
#[cfg(feature = "otlp-tls")]
mod tls;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Point;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, HistogramDataPoint, Metric};
use prost::Message;
use rustix::net::{AddressFamily, SocketType};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use volt_diagnosis::catalog::{self, BUCKETS_NS, Kind, METRICS};
use volt_exporter::{Exporter, Otlp};

/// The time between two pushes.
const OFTEN: Duration = Duration::from_millis(50);
/// Longer than any step of these tests takes.
const LONG: Duration = Duration::from_secs(30);

/// Aborts the program if a test hangs. Dropped when the test is over.
struct Watchdog(#[expect(dead_code, reason = "its drop is the message")] mpsc::Sender<()>);

fn watchdog() -> Watchdog {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        if receiver.recv_timeout(2 * LONG) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _result = std::io::Write::write_all(&mut std::io::stderr(), b"the test hangs\n");
            std::process::abort();
        }
    });
    Watchdog(sender)
}

/// One request that a collector received.
struct Pushed {
    /// The request line. The headers are keyed by their names in lower case.
    line: String,
    headers: HashMap<String, String>,
    request: ExportMetricsServiceRequest,
}

impl Pushed {
    fn metrics(&self) -> &[Metric] {
        &self.request.resource_metrics[0].scope_metrics[0].metrics
    }

    fn metric(&self, name: &str) -> &Metric {
        self.metrics().iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    /// Returns the value of an integer sum or gauge for `runtime`.
    fn count(&self, name: &str, runtime: &str) -> i64 {
        let points = match self.metric(name).data.as_ref().unwrap() {
            Data::Sum(sum) => &sum.data_points,
            Data::Gauge(gauge) => &gauge.data_points,
            other => panic!("{name} is {other:?}"),
        };
        let point = points.iter().find(|point| text(&point.attributes, "runtime") == Some(runtime.into()));
        match point.unwrap_or_else(|| panic!("no {runtime} in {name}")).value {
            Some(Point::AsInt(count)) => count,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Returns when the numbers were collected, since 1970.
    fn collected_at(&self) -> Duration {
        let Some(Data::Gauge(gauge)) = &self.metric("volt.runtime.workers").data else { panic!("it is no gauge") };
        Duration::from_nanos(gauge.data_points[0].time_unix_nano)
    }

    fn histogram(&self, name: &str, runtime: &str) -> &HistogramDataPoint {
        let Some(Data::Histogram(histogram)) = &self.metric(name).data else { panic!("{name} is no histogram") };
        assert_eq!(histogram.aggregation_temporality(), AggregationTemporality::Cumulative);
        let mut points = histogram.data_points.iter();
        points.find(|point| text(&point.attributes, "runtime") == Some(runtime.into())).expect("its runtime")
    }
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value?;
    match value {
        Any::StringValue(text) => Some(text),
        Any::IntValue(number) => Some(number.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

/// Starts a collector that responds to the nth push with `answer(n)`: the rest of the status line,
/// and a body.
fn collector(answer: impl Fn(usize) -> (&'static str, Vec<u8>) + Send + 'static) -> (SocketAddr, Receiver<Pushed>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (listener.local_addr().unwrap(), collect(listener, answer))
}

fn collect(
    listener: TcpListener,
    answer: impl Fn(usize) -> (&'static str, Vec<u8>) + Send + 'static,
) -> Receiver<Pushed> {
    let (sender, pushes) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            if sender.send(receive(stream.unwrap(), || answer(number))).is_err() {
                return;
            }
        }
    });
    pushes
}

/// Receives one push and responds to it.
fn receive<S: Read + Write>(stream: S, answer: impl FnOnce() -> (&'static str, Vec<u8>)) -> Pushed {
    let mut stream = BufReader::new(stream);
    let mut lines = stream.by_ref().lines().map(Result::unwrap);
    let line = lines.next().unwrap();
    let heads = lines.take_while(|line| !line.is_empty());
    let headers: HashMap<_, _> =
        heads.map(|head| head.split_once(": ").map(|(n, v)| (n.to_lowercase(), v.to_string())).unwrap()).collect();
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    let request = ExportMetricsServiceRequest::decode(&*body).expect("a request of OTLP's");
    let (status, body) = answer();
    write!(stream.get_mut(), "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
    // Fails if the exporter needs no more than the status, and has closed the connection.
    let _result = stream.get_mut().write_all(&body).and_then(|()| stream.get_mut().flush());
    Pushed { line, headers, request }
}

fn push_to(address: SocketAddr) -> Otlp {
    Otlp::new(format!("http://{address}")).interval(OFTEN).timeout(LONG)
}

/// Returns the whole response for `path`, with its status line.
fn get(exporter: &Exporter, path: &str) -> String {
    let mut stream = TcpStream::connect(exporter.local_addr()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

#[test]
fn every_metric_on_the_page_is_pushed_by_its_opentelemetry_name() {
    let _watchdog = watchdog();
    let runtime = volt::Builder::new_multi_thread().worker_threads(2).name("pushed").build().unwrap();
    let (address, pushes) = collector(|_| ("200 OK", Vec::new()));
    let otlp = push_to(address).service_name("shop").header("x-scope-orgid", "tenant");
    let exporter = Exporter::builder().listen("127.0.0.1:0").runtimes(["pushed"]).otlp(otlp).serve().unwrap();

    let first = pushes.recv_timeout(LONG).unwrap();
    assert_eq!(first.line, "POST /v1/metrics HTTP/1.1");
    assert_eq!(first.headers["content-type"], "application/x-protobuf");
    assert_eq!((&*first.headers["host"], &*first.headers["x-scope-orgid"]), (&*address.to_string(), "tenant"));
    let resource = &first.request.resource_metrics[0].resource.as_ref().unwrap().attributes;
    assert_eq!(text(resource, "service.name").unwrap(), "shop");
    assert_eq!(text(resource, "process.pid").unwrap(), std::process::id().to_string());
    assert!(text(resource, "service.instance.id").unwrap().ends_with(&std::process::id().to_string()));

    // The push has every metric of the catalog that a page of this program has, with the same kind,
    // and no other.
    let page = get(&exporter, "/metrics");
    for metric in METRICS {
        let is_there = page.contains(&format!("# TYPE {} ", metric.name));
        let name = metric.opentelemetry_name();
        assert_eq!(
            first.metrics().iter().filter(|pushed| pushed.name == name).count(),
            usize::from(is_there),
            "{name}"
        );
        if is_there {
            let pushed = first.metric(&name);
            assert_eq!((&pushed.unit, &*pushed.description), (&metric.opentelemetry_unit(), metric.help));
            match (metric.kind, pushed.data.as_ref().unwrap()) {
                (Kind::Counter, Data::Sum(sum)) => {
                    assert!(sum.is_monotonic && sum.aggregation_temporality() == AggregationTemporality::Cumulative);
                }
                (Kind::Gauge, Data::Gauge(_)) | (Kind::Histogram, Data::Histogram(_)) => {}
                (kind, other) => panic!("{name}: {kind:?} is pushed as {other:?}"),
            }
        }
    }

    // A later push includes what was counted later, with the same start.
    runtime.block_on(async {
        for _ in 0..100 {
            volt::spawn(async {}).await.unwrap();
        }
    });
    let began = Instant::now();
    let later = loop {
        let later = pushes.recv_timeout(LONG).unwrap();
        if later.count("volt.tasks.spawned", "pushed") == 100 {
            break later;
        }
        assert!(began.elapsed() < LONG, "the count does not arrive");
    };
    assert_eq!(later.count("volt.runtime.workers", "pushed"), 2);
    let (before, after) = [&first, &later].map(|pushed| pushed.histogram("volt.schedule.delay", "pushed")).into();
    assert_eq!(before.start_time_unix_nano, after.start_time_unix_nano, "a start that moves is a restart");
    assert!(before.start_time_unix_nano > 0 && before.start_time_unix_nano < before.time_unix_nano);
    assert!(after.time_unix_nano > before.time_unix_nano && after.count >= before.count + 100);
    assert_eq!(after.explicit_bounds, BUCKETS_NS.map(catalog::seconds));
    assert_eq!(after.bucket_counts.len(), after.explicit_bounds.len() + 1);
    assert_eq!(after.bucket_counts.iter().sum::<u64>(), after.count, "a count in each bucket, not from the first on");
    assert!(after.sum.unwrap() > 0.0);
}

/// Collects the log messages about pushes.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                write!(self.0, "{field}={value:?} ").unwrap();
            }
        }
        if event.metadata().target().starts_with("volt_exporter::otlp") {
            let mut text = Text(format!("{} ", event.metadata().level()));
            event.record(&mut text);
            self.0.lock().unwrap().push(text.0);
        }
    }
}

impl Log {
    /// Returns the messages about this collector.
    fn about(&self, address: SocketAddr) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.contains(&address.to_string())).cloned().collect()
    }
}

/// Returns the one log of this program: the exporter's thread logs to it.
fn log() -> Log {
    static LOG: std::sync::OnceLock<Log> = std::sync::OnceLock::new();
    let install = || {
        let log = Log::default();
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(log.clone())).unwrap();
        log
    };
    LOG.get_or_init(install).clone()
}

#[test]
fn a_refusing_collector_is_logged_once_and_so_is_its_recovery() {
    let _watchdog = watchdog();
    let log = log();
    let refusal = || {
        let partial = ExportMetricsPartialSuccess { rejected_data_points: 7, error_message: "too old".into() };
        ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec()
    };
    let (address, pushes) = collector(move |number| match number {
        0..3 => ("503 Service Unavailable", Vec::new()),
        5..8 => ("200 OK", refusal()),
        _ => ("200 OK", Vec::new()),
    });
    let _exporter = Exporter::builder().listen("127.0.0.1:0").otlp(push_to(address)).serve().unwrap();
    for _ in 0..10 {
        pushes.recv_timeout(LONG).unwrap();
    }
    let reported = log.about(address);
    assert_eq!(reported.len(), 4, "{reported:#?}");
    assert!(reported[0].starts_with("WARN ") && reported[0].contains("the collector returned 503"), "{}", reported[0]);
    assert!(reported[1].starts_with("INFO ") && reported[1].contains("failures=3"), "{}", reported[1]);
    assert!(
        reported[2].starts_with("WARN ") && reported[2].contains("rejected 7 data points: too old"),
        "{}",
        reported[2]
    );
    assert!(reported[3].starts_with("INFO ") && reported[3].contains("failures=3"), "{}", reported[3]);
}

#[test]
fn a_missing_collector_is_logged_once_and_retried() {
    let _watchdog = watchdog();
    let log = log();
    // Bound but not listening: no other program gets the port, and connections are refused.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
    let exporter = Exporter::builder().listen("127.0.0.1:0").otlp(push_to(address)).serve().unwrap();
    let began = Instant::now();
    while log.about(address).is_empty() {
        assert!(began.elapsed() < LONG, "nothing is logged");
        std::thread::yield_now();
    }
    // Not a synchronization: it only allows some more pushes to fail, on all but the slowest
    // machines.
    std::thread::sleep(10 * OFTEN);
    get(&exporter, "/metrics");

    rustix::net::listen(&socket, 16).unwrap();
    let pushes = collect(TcpListener::from(socket), |_| ("200 OK", Vec::new()));
    // When the second push arrives, the outcome of the first has been logged.
    for _ in 0..2 {
        pushes.recv_timeout(LONG).expect("it is tried again");
    }
    let reported = log.about(address);
    assert_eq!(reported.len(), 2, "{reported:#?}");
    assert!(
        reported[0].contains("cannot connect") && reported[0].contains("check that a collector listens there"),
        "{}",
        reported[0]
    );
    assert!(reported[1].starts_with("INFO ") && reported[1].contains("failures="), "{}", reported[1]);
}

#[test]
fn an_unresponsive_collector_times_out_and_delays_no_page() {
    let _watchdog = watchdog();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Keeps the port: the tests share the log, and find their messages by the address.
    std::mem::forget(listener.try_clone().unwrap());
    let otlp = push_to(listener.local_addr().unwrap()).timeout(Duration::from_millis(100));
    let exporter = Exporter::builder().listen("127.0.0.1:0").otlp(otlp).serve().unwrap();
    for _ in 0..3 {
        let (mut stream, _) = listener.accept().unwrap();
        get(&exporter, "/metrics");
        // Reads until the exporter closes the connection.
        let mut sent = Vec::new();
        let _closed = stream.read_to_end(&mut sent);
        assert!(sent.starts_with(b"POST /v1/metrics HTTP/1.1\r\n"));
    }
}

#[test]
fn an_unsupported_otlp_url_is_an_error_before_serving() {
    let error = Exporter::builder().listen("127.0.0.1:0").otlp(Otlp::new("collector:4318")).serve().unwrap_err();
    assert!(
        error.is_invalid_setting() && error.to_string().starts_with("otlp: the endpoint does not begin with http://"),
        "{error}"
    );
}
