//! `volt-console export`: a recording as a trace that Perfetto, `chrome://tracing` and speedscope open.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use volt_telemetry::recording::chrome_trace::{self, Exported};
use volt_telemetry::recording::files::parts_of;
use volt_telemetry::recording::reader::Reader;

use crate::clean;
use crate::error::Error;
use crate::figures::count;

/// Exports the recording at `path`, each file of it, to `to`, or beside it under the same name; `-` is `out`. What was
/// made is said on standard error.
///
/// # Errors
/// [`Error::is_recording`] if there is none, or the trace cannot be written; a recording that breaks off is none, but
/// is told. [`Error::is_output_closed`].
pub fn run(path: &Path, to: Option<&Path>, out: &mut impl Write) -> Result<(), Error> {
    let parts = parts_of(path);
    let only = [path.to_path_buf()];
    let parts = if parts.is_empty() { &only[..] } else { &parts[..] };
    for part in parts {
        match to {
            Some(to) if to == Path::new("-") => _ = export(part, &mut *out, "standard output")?,
            Some(to) if parts.len() == 1 => to_file(part, to)?,
            Some(to) => {
                let number = part.file_stem().unwrap_or_default();
                let name = format!("{}.json", number.to_string_lossy());
                to_file(part, &to.with_file_name(name))?;
            }
            None => to_file(part, &part.with_extension("json"))?,
        }
    }
    Ok(())
}

fn to_file(part: &Path, to: &Path) -> Result<(), Error> {
    let shown = to.display().to_string();
    // Before the recording is opened nothing is made.
    Reader::open(part)?;
    let file = OpenOptions::new().write(true).create_new(true).open(to);
    let file = file.map_err(|error| Error::file(to, &error))?;
    match export(part, &mut BufWriter::new(file), &shown) {
        Ok(_) => Ok(()),
        Err(error) => {
            // Half a trace is none: no program opens it.
            let _ = std::fs::remove_file(to);
            Err(error)
        }
    }
}

fn export(part: &Path, to: &mut impl Write, shown: &str) -> Result<Exported, Error> {
    let mut reader = Reader::open(part)?;
    let is_terminal = io::stderr().is_terminal();
    let mut told = 101;
    let exported = chrome_trace::export(&mut reader, &mut *to, |ratio| {
        let percent = (ratio * 100.0) as u64;
        if is_terminal && percent != told {
            told = percent;
            let _ = write!(io::stderr(), "\rexporting {percent:>3} %\r");
        }
    })?;
    to.flush().map_err(|error| Error::file(&PathBuf::from(shown), &error))?;
    let mut text = String::new();
    if let Some(broke) = &exported.broke {
        text.push_str(&format!("{broke}\n"));
    }
    let [polls, flows, lost] = [exported.polls, exported.flows, exported.lost].map(count);
    text.push_str(&format!("{shown}: {polls} polls, {flows} wake-ups with their polls, {lost} events lost: "));
    text.push_str("open it in https://ui.perfetto.dev\n");
    let _ = write!(io::stderr(), "{}", clean::lines(&text));
    Ok(exported)
}
