//! Writes samples in Prometheus' text format, version 0.0.4.
//!
//! A *family* is a metric with all its series. It has a line with its help, one with its type, its
//! series, and an empty line. A family without series is left out. A histogram has a series for
//! each limit of [`BUCKETS_NS`], which counts the values below that limit, then one for all values,
//! their sum and their number.

use std::fmt::{Display, Result, Write};

use super::samples::ORIGIN_LABELS;
use crate::catalog::{BUCKETS_NS, METRICS, Metric, Sample, Value, seconds};

/// The content type of the text that [`write()`] writes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes `samples`, which has one list for each metric of the catalog, in its order.
///
/// # Errors
///
/// Returns the error of the first write to `page` that fails. A `String` accepts every write.
///
/// ```
/// use volt_diagnosis::exposition::{Origin, Samples, write};
/// use volt_telemetry::Program;
///
/// let samples = Samples::default().read(&[(Origin::new(), Some(&Program::default()))]);
/// let mut page = String::new();
/// write(&samples, &mut page)?;
/// assert!(page.ends_with("# TYPE volt_program_up gauge\nvolt_program_up 1\n\n"));
/// # Ok::<(), std::fmt::Error>(())
/// ```
pub fn write(samples: &[Vec<Sample>], page: &mut impl Write) -> Result {
    let families = METRICS.iter().zip(samples).filter(|(_, samples)| !samples.is_empty());
    for (Metric { name, kind, help, labels: names, .. }, samples) in families {
        write!(page, "# HELP {name} ")?;
        escape(help, Quotes::Plain, page)?;
        writeln!(page, "\n# TYPE {name} {}", kind.name())?;
        for sample in samples {
            let labels = labels(names, sample)?;
            match &sample.value {
                Value::Count(count) => line(page, name, "", &labels, count)?,
                Value::Number(number) => line(page, name, "", &labels, number)?,
                Value::Histogram(histogram) => {
                    let comma = if labels.is_empty() { "" } else { "," };
                    let mut bucket = |limit: &dyn Display, count: u64| {
                        line(page, name, "_bucket", &format!("{labels}{comma}le=\"{limit}\""), &count)
                    };
                    for limit in BUCKETS_NS {
                        bucket(&seconds(limit), histogram.count_below(limit))?;
                    }
                    bucket(&"+Inf", histogram.count())?;
                    line(page, name, "_sum", &labels, &seconds(histogram.sum_ns()))?;
                    line(page, name, "_count", &labels, &histogram.count())?;
                }
            }
        }
        page.write_char('\n')?;
    }
    Ok(())
}

fn line(page: &mut impl Write, name: &str, suffix: &str, labels: &str, value: &dyn Display) -> Result {
    match labels {
        "" => writeln!(page, "{name}{suffix} {value}"),
        _ => writeln!(page, "{name}{suffix}{{{labels}}} {value}"),
    }
}

/// Returns the labels of `sample` as they are between the braces.
fn labels(names: &[&str], sample: &Sample) -> std::result::Result<String, std::fmt::Error> {
    let mut text = String::new();
    for (name, value) in names.iter().chain(&ORIGIN_LABELS).zip(&sample.labels) {
        let comma = if text.is_empty() { "" } else { "," };
        write!(text, "{comma}{name}=\"")?;
        escape(value, Quotes::Escaped, &mut text)?;
        text.push('"');
    }
    Ok(text)
}

/// Whether quotes are escaped: in labels they are, in help texts not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Plain,
    Escaped,
}

fn escape(value: &str, quotes: Quotes, to: &mut impl Write) -> Result {
    for c in value.chars() {
        match c {
            '\\' => to.write_str(r"\\")?,
            '\n' => to.write_str(r"\n")?,
            '"' if quotes == Quotes::Escaped => to.write_str("\\\"")?,
            c => to.write_char(c)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use volt_telemetry::snapshot::{Program, Snapshot};

    use super::super::samples::Samples;
    use super::*;

    fn page(runtime: &str, origin: &[&str]) -> String {
        let runtimes = vec![Snapshot { runtime: runtime.to_owned(), ..Snapshot::default() }];
        let program = Program { runtimes, ..Program::default() };
        let origin = origin.iter().map(|label| (*label).to_owned()).collect();
        let mut page = String::new();
        write(&Samples::default().read(&[(origin, Some(&program))]), &mut page).unwrap();
        page
    }

    #[test]
    fn labels_are_escaped_so_that_different_ones_stay_different() {
        for (name, label) in [
            ("main", "main"),
            ("a\"b", r#"a\"b"#),
            (r"a\b", r"a\\b"),
            (r"a\\b", r"a\\\\b"),
            (r"a\", r"a\\"),
            (r#"a\"b"#, r#"a\\\"b"#),
            (r"a\nb", r"a\\nb"),
            ("a{b}=c, \u{e9}", "a{b}=c, \u{e9}"),
        ] {
            let line = format!("\nvolt_tasks_alive{{runtime=\"{label}\"}} 0\n");
            assert!(page(name, &[]).contains(&line), "{line}");
        }
    }

    #[test]
    fn help_texts_have_no_line_feed_and_keep_their_quotes() {
        let mut help = String::new();
        escape("a \"b\" \\ \n", Quotes::Plain, &mut help).unwrap();
        assert_eq!(help, r#"a "b" \\ \n"#);
    }

    #[test]
    fn a_page_of_several_programs_names_the_program_last() {
        let page = page("main", &["shop", "7"]);
        let labels = r#"runtime="main",program="shop",pid="7""#;
        assert!(page.contains(&format!("\nvolt_poll_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 0\n")), "{page}");
        assert!(page.contains(&format!("\nvolt_poll_duration_seconds_sum{{{labels}}} 0\n")), "{page}");
        assert!(page.contains("\nvolt_program_up{program=\"shop\",pid=\"7\"} 1\n"), "{page}");
    }

    #[test]
    fn every_family_has_its_help_and_type_right_before_its_series() {
        let page = page("main", &[]);
        for family in page.split_terminator("\n\n") {
            let name = family.strip_prefix("# HELP ").and_then(|rest| rest.split(' ').next()).expect(family);
            let mut lines = family.lines().skip(1);
            assert!(lines.next().unwrap().starts_with(&format!("# TYPE {name} ")), "{family}");
            assert!(lines.clone().count() > 0 && lines.all(|line| line.starts_with(name)), "{family}");
        }
    }
}
