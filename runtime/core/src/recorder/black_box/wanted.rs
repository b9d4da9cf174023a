//! Creates a black box if the program or the environment requests it.

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use volt_telemetry::recording::black_box::Layout;

use super::space::BlackBox;

/// The variable with the directory, for programs that do not set one.
const VARIABLE: &str = "VOLT_BLACK_BOX";

/// Creates the black box of a runtime in the directory that the program has `given`, or else in
/// that of the environment. If it cannot be created, reports that, and the program continues.
pub(crate) fn create_if_wanted(
    given: Option<&Path>,
    program: &str,
    runtime: &str,
    layout: Layout,
) -> Option<Arc<BlackBox>> {
    let of_environment = || env::var_os(VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let dir = given.map(Path::to_owned).or_else(of_environment)?;
    match BlackBox::create(&dir, program, runtime, layout) {
        Ok(black_box) => {
            tracing::info!(target: "volt::observe", runtime, path = %black_box.path().display(), "the black box is open");
            Some(black_box)
        }
        Err(error) => {
            // Also on stderr, since the program may have no subscriber. Not a print macro, which
            // panics if stderr is closed.
            let text = format!("volt: no black box for runtime {runtime}: {error}; the program continues without it\n");
            let _result = io::stderr().write_all(text.as_bytes());
            tracing::error!(target: "volt::observe", runtime, %error, "no black box; the program continues without it");
            None
        }
    }
}
