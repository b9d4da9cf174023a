//! Runs the example with a collector, which is a server on a real socket that decodes what it
//! receives with OpenTelemetry's own messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// Receives requests until the program has exited.
fn spans_of(program: &mut Command) -> Vec<Span> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut program =
        program.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")).stdin(Stdio::null()).spawn().unwrap();
    let collector = std::thread::spawn(move || {
        let mut spans = Vec::new();
        // The end is a connection without a request.
        while let Some(request) = receive(&listener) {
            let resources = request.resource_spans.into_iter();
            spans.extend(resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans));
        }
        spans
    });
    let status = program.wait().unwrap();
    drop(std::net::TcpStream::connect(address).unwrap());
    let spans = collector.join().unwrap();
    assert!(status.success(), "{status}");
    spans
}

fn receive(listener: &TcpListener) -> Option<ExportTraceServiceRequest> {
    let mut stream = BufReader::new(listener.accept().unwrap().0);
    let mut lines = stream.by_ref().lines().map(Result::unwrap);
    let line = lines.next()?;
    assert_eq!(line, "POST /v1/traces HTTP/1.1");
    let heads: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let length = heads.iter().filter_map(|head| head.split_once(": "));
    let length = length.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length")).unwrap().1;
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    // The client sends the next batch over a new connection.
    stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    Some(ExportTraceServiceRequest::decode(&*body).expect("a request of OTLP's"))
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    match span.attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

#[test]
fn the_spans_of_tasks_reach_the_collector_below_their_request() {
    let spans = spans_of(&mut Command::new(env!("CARGO_BIN_EXE_traces")));
    let named = |name: &'static str| spans.iter().filter(move |span| span.name == name);
    assert_eq!(named("order").count(), 3, "{spans:#?}");
    for order in named("order") {
        let tasks = named("volt.task").filter(|task| task.parent_span_id == order.span_id);
        let mut tasks: Vec<_> = tasks.collect();
        tasks.sort_by_key(|task| attribute(task, "name"));
        let names: Vec<_> = tasks.iter().map(|task| attribute(task, "name").unwrap()).collect();
        assert_eq!(names, ["price", "stock"], "{spans:#?}");
        for task in &tasks {
            assert_eq!(task.trace_id, order.trace_id);
            assert!(attribute(task, "spawn").unwrap().starts_with("src/main.rs:"), "{task:?}");
            assert!(attribute(task, "id").is_some(), "{task:?}");
        }
        let lookup = named("lookup").find(|lookup| lookup.trace_id == order.trace_id).unwrap();
        assert_eq!(lookup.parent_span_id, tasks[0].span_id);
    }
}
