//! The Prometheus page: all metrics of one or several programs as text.
//!
//! # Shape
//!
//! The page has two parts, one after the other. [`exposition`](volt_diagnosis::exposition) writes
//! Volt's metrics. The application's metrics come from the application's recorder.
//!
//! Ownership: [`Page::render`] has `&mut` access, since the page keeps what [`Samples`] keeps
//! between collections.
//!
//! # Invariants
//!
//! *No ghosts*: the page has the series of the current samples and no other. A runtime that no
//! longer exists leaves no last value behind that could mislead an alert. *One name, one runtime*:
//! Prometheus rejects duplicate series. `volt` gives no two runtimes of a program the same name,
//! and on a page of several programs each series also has their labels
//! ([`ORIGIN_LABELS`](volt_diagnosis::exposition::ORIGIN_LABELS)). *One family, one place*: no
//! metric of the application has the prefix `volt_` (see [`application`](crate::application)).
//!
//! Rejected: one recorder for Volt and the application. A recorder never removes a series, so there
//! would be ghosts; and it accepts no histogram that is counts already.

use std::io;

use metrics_exporter_prometheus::PrometheusHandle;
use volt_diagnosis::exposition::{self, Origin, Samples};
use volt_telemetry::snapshot::Program;

use crate::application;

/// Renders programs as Prometheus text.
///
/// [`serve`](crate::serve) uses one. Use it directly if the program already has an HTTP server and
/// needs one more route.
///
/// ```
/// use volt_telemetry::{Program, Snapshot};
///
/// let program = Program { runtimes: vec![Snapshot { runtime: "main".into(), ..Snapshot::default() }], ..Program::default() };
/// let text = volt_exporter::Page::new().render(&program);
/// assert!(text.contains(r#"volt_tasks_alive{runtime="main"} 0"#));
/// ```
#[derive(Debug)]
pub struct Page {
    application: Option<PrometheusHandle>,
    samples: Samples,
}

impl Page {
    /// Creates a page with Volt's metrics only.
    pub fn new() -> Self {
        Self { application: None, samples: Samples::default() }
    }

    /// Adds the metrics of `application`'s recorder to the page.
    pub fn with_application(self, application: PrometheusHandle) -> Self {
        Self { application: Some(application), ..self }
    }

    pub(crate) fn has_application(&self) -> bool {
        self.application.is_some()
    }

    /// Returns the text for `program` in the format of [`CONTENT_TYPE`](crate::CONTENT_TYPE). The
    /// names of its runtimes must differ.
    pub fn render(&mut self, program: &Program) -> String {
        let mut page = Vec::new();
        self.render_to_write(program, &mut page).expect("a Vec accepts every write");
        String::from_utf8(page).expect("the format is UTF-8 throughout")
    }

    /// Writes the text for `program` to `output`, in the format of
    /// [`CONTENT_TYPE`](crate::CONTENT_TYPE).
    ///
    /// # Errors
    ///
    /// Returns the error of the first write to `output` that fails.
    pub fn render_to_write(&mut self, program: &Program, output: &mut impl io::Write) -> io::Result<()> {
        self.render_all(&[(Origin::new(), Some(program))], output)
    }

    /// Renders several programs, whose origins must differ; `None` stands for one that did not
    /// reply.
    pub(crate) fn render_all(
        &mut self,
        programs: &[(Origin, Option<&Program>)],
        output: &mut impl io::Write,
    ) -> io::Result<()> {
        let mut page = String::new();
        exposition::write(&self.samples.read(programs), &mut page).expect("a String accepts every write");
        output.write_all(page.as_bytes())?;
        match &self.application {
            Some(application) => application::write(application, output),
            None => Ok(()),
        }
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::{Blame, Snapshot};

    use super::*;

    #[test]
    fn counters_continue_after_a_page_without_the_program() {
        let mut page = Page::new();
        let origin = vec!["shop".to_string(), "7".to_string()];
        let mut render = |blame: Option<Vec<Blame>>| {
            let runtimes = |blame| vec![Snapshot { runtime: "main".into(), blame, ..Snapshot::default() }];
            let program = blame.map(|blame| Program { runtimes: runtimes(blame), ..Program::default() });
            let mut text = Vec::new();
            page.render_all(&[(origin.clone(), program.as_ref())], &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let up = text.lines().find_map(|line| line.strip_prefix(r#"volt_program_up{program="shop",pid="7"} "#));
            let caused = r#"volt_location_delay_caused_seconds_total{runtime="main",location="a.rs:1:1",program="shop",pid="7"} "#;
            let caused = text.lines().find_map(|line| line.strip_prefix(caused));
            (up.map(String::from), caused.map(String::from))
        };
        let blame =
            |at: &str, ms: u64| Blame { spawned_at: at.into(), delay_caused_ns: ms * 1_000_000, ..Blame::default() };
        let is = |up: &str, caused: Option<&str>| (Some(up.to_string()), caused.map(String::from));
        assert_eq!(render(Some(vec![blame("b.rs:1:1", 1_000), blame("a.rs:1:1", 1)])), is("1", None));
        assert_eq!(render(Some(vec![blame("b.rs:1:1", 1_000), blame("a.rs:1:1", 501)])), is("1", Some("0.5")));
        assert_eq!(render(None), is("0", None));
        assert_eq!(render(Some(vec![blame("b.rs:1:1", 1_000), blame("a.rs:1:1", 601)])), is("1", Some("0.6")));
    }
}
