//! `volt-console export`: converts a recording to a trace that Perfetto, `chrome://tracing` and
//! speedscope open.
//!
//! Invariant *no incomplete trace*: no tool opens half a trace. If a trace cannot be completed,
//! because the disk is full or because of Ctrl-C, the file is removed.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use volt_recording::chrome_trace::{self, Exported};
use volt_recording::files::parts_of;
use volt_recording::reader::Reader;

use crate::commands::attach::{Ended, Signals};
use crate::commands::progress::Progress;
use crate::error::Error;
use crate::text::clean;
use crate::text::figures::count;

/// Exports the recording at `path`, one trace for each of its files.
///
/// Writes to `to`, numbered if there are several files; without `to`, writes next to the recording
/// under the same name; `-` is `out`. Prints the results on standard error. Returns the signal that
/// ended the export early, if there was one.
///
/// # Errors
///
/// Fails with [`Error::is_recording`] if there is no recording, if several files would have to go
/// to `out`, or if the trace cannot be written. A recording that ends in the middle is not an
/// error, but a message reports it. Also fails with [`Error::is_output_closed`].
pub fn run(path: &Path, to: Option<&Path>, out: &mut impl Write) -> Result<Option<Ended>, Error> {
    let signals = Signals::take(true).map_err(Error::signals)?;
    let exported = export_all(path, to, &signals, out);
    match signals.received() {
        Some(signal) => Ok(Some(Ended::Signal(signal))),
        None => exported.map(|()| None),
    }
}

fn export_all(path: &Path, to: Option<&Path>, signals: &Signals, out: &mut impl Write) -> Result<(), Error> {
    let parts = parts_of(path);
    let only = [path.to_path_buf()];
    let parts = if parts.is_empty() { &only[..] } else { &parts[..] };
    if to == Some(Path::new("-")) && parts.len() > 1 {
        let named: Vec<_> = parts.iter().map(|part| part.display().to_string()).collect();
        let why = format!(
            "standard output takes one trace, but the recording has several files: export one of {}",
            named.join(", ")
        );
        return Err(Error::broken(&why));
    }
    for part in parts {
        // Creates no file unless the recording can be opened. The error has the reason.
        Reader::open(part)?;
        match to {
            Some(to) if to == Path::new("-") => {
                export(part, &mut UntilSignal { inner: &mut *out, signals }, signals, "standard output")?;
            }
            Some(to) if parts.len() == 1 => to_file(part, to, signals)?,
            Some(to) => to_file(part, &numbered(to, part), signals)?,
            None => to_file(part, &part.with_extension("json"), signals)?,
        }
    }
    Ok(())
}

/// Returns `trace.0007.json` for the part `stall.0007.voltrec`, if `to` is `trace.json`.
fn numbered(to: &Path, part: &Path) -> PathBuf {
    let number = part.file_stem().map(Path::new).and_then(Path::extension).unwrap_or_default();
    let ending = to.extension().unwrap_or(OsStr::new("json"));
    to.with_extension([number, ending].join(OsStr::new(".")))
}

fn to_file(part: &Path, to: &Path, signals: &Signals) -> Result<(), Error> {
    let shown = to.display().to_string();
    let file = OpenOptions::new().write(true).create_new(true).open(to);
    let file = file.map_err(|error| Error::file(to, &error))?;
    match export(part, &mut BufWriter::new(UntilSignal { inner: file, signals }), signals, &shown) {
        Ok(_) => Ok(()),
        Err(error) => {
            let _ = std::fs::remove_file(to);
            Err(error)
        }
    }
}

/// A reader or writer that fails after a signal that ends the program.
struct UntilSignal<'a, T> {
    inner: T,
    signals: &'a Signals,
}

impl<T> UntilSignal<'_, T> {
    fn inner(&mut self) -> io::Result<&mut T> {
        match self.signals.received() {
            // Not the kind Interrupted, after which callers try again.
            Some(_) => Err(io::Error::other("interrupted by a signal")),
            None => Ok(&mut self.inner),
        }
    }
}

impl<T: Read> Read for UntilSignal<'_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner()?.read(buffer)
    }
}

impl<T: Seek> Seek for UntilSignal<'_, T> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner()?.seek(to)
    }
}

impl<T: Write> Write for UntilSignal<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner()?.flush()
    }
}

fn export(part: &Path, to: &mut impl Write, signals: &Signals, shown: &str) -> Result<Exported, Error> {
    let file = File::open(part).map_err(|error| Error::file(part, &error))?;
    let from = UntilSignal { inner: BufReader::new(file), signals };
    let mut reader = Reader::new(from, part.display().to_string())?;
    let mut progress = Progress::begin();
    let exported = chrome_trace::export(&mut reader, &mut *to, |ratio| progress.show("exporting", ratio))?;
    drop(progress);
    to.flush().map_err(|error| Error::file(&PathBuf::from(shown), &error))?;
    let mut text = String::new();
    if let Some(broke) = &exported.broke {
        text.push_str(&format!("{broke}\n"));
    }
    let [polls, flows, lost] = [exported.polls, exported.flows, exported.lost].map(count);
    text.push_str(&format!("{shown}: {polls} polls, {flows} wake-ups with their polls, {lost} events lost\n"));
    text.push_str("Open it in https://ui.perfetto.dev\n");
    let _ = write!(io::stderr(), "{}", clean::lines(&text));
    Ok(exported)
}
