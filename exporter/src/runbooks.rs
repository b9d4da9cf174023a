//! Serves the runbooks of the alerts, `docs/alerts.md`, as a page: `/runbooks#voltworkerstuck`.
//!
//! The `runbook_url` of each alert points to this page. It therefore works on any machine that can
//! reach the exporter, without internet access and without this repository. The page has one
//! section per alert, as plain text.
//!
//! Rejected: a Markdown renderer, because every program that links the exporter would contain it,
//! and the text is readable without it.

use std::fmt::Write as _;
use std::sync::LazyLock;

/// The path of the page.
pub(crate) const PATH: &str = "/runbooks";

/// The document that the page is made from: a link to `docs/alerts.md`, so that the package has it.
const DOCUMENT: &str = include_str!("../alerts.md");

/// The whole page.
pub(crate) static PAGE: LazyLock<String> = LazyLock::new(|| page(DOCUMENT));

/// Converts Markdown with one `##` heading per alert to a page. The anchor of each section is its
/// alert's name in lower case.
fn page(document: &str) -> String {
    let mut sections = document.split("\n## ");
    let introduction = sections.next().unwrap_or_default();
    let (title, text) = heading_and_text(introduction.trim_start_matches("# "));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title} - Volt</title>\n\
         <link rel=\"stylesheet\" href=\"/live/live.css\">\n<header><h1>{title}</h1></header>\n<main>\n<pre>{text}</pre>\n"
    );
    for section in sections {
        let (heading, text) = heading_and_text(section);
        let anchor = heading.to_lowercase();
        let _ = write!(page, "<section id=\"{anchor}\">\n<h2>{heading}</h2>\n<pre>{text}</pre>\n</section>\n");
    }
    page + "</main>\n</html>\n"
}

/// Returns the first line of a section and the rest, both escaped.
fn heading_and_text(section: &str) -> (String, String) {
    let (heading, text) = section.split_once('\n').unwrap_or((section, ""));
    (escaped(heading.trim()), escaped(&without_links(text.trim())))
}

/// Replaces each Markdown link by its text: the page is served without the other documents.
fn without_links(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, name, after)) = first_link(rest) {
        plain.extend([before, name]);
        rest = after;
    }
    plain + rest
}

/// Returns what is before the first link `[text](target)`, its text, and what is after it.
fn first_link(text: &str) -> Option<(&str, &str, &str)> {
    let (name_and_before, after) = text.split_once("](")?;
    let (before, name) = name_and_before.rsplit_once('[')?;
    Some((before, name, after.split_once(')')?.1))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_section_has_its_anchor_and_its_escaped_text() {
        let page = page(
            "# Alerts\n\nRead <this>.\n\n## VoltA\n\n1. Run `a && b` ([Terms](guide/terms.md)).\n\n## VoltB\nlast",
        );
        assert!(page.contains("<title>Alerts - Volt</title>"), "{page}");
        assert!(page.contains("<pre>Read &lt;this&gt;.</pre>"), "{page}");
        assert!(
            page.contains("<section id=\"volta\">\n<h2>VoltA</h2>\n<pre>1. Run `a &amp;&amp; b` (Terms).</pre>"),
            "{page}"
        );
        assert!(page.contains("<section id=\"voltb\">\n<h2>VoltB</h2>\n<pre>last</pre>"), "{page}");
    }
}
