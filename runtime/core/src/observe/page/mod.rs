//! The page of metrics: `VOLT_METRICS=127.0.0.1:9464` makes the program serve `/metrics` for
//! Prometheus, without a line of code and without `volt-exporter`.
//!
//! It is for programs that cannot or should not link an exporter, above all for programs that were
//! written for Tokio. The page has Volt's metrics only. The exporter's page also has those of the
//! application and of the operating system, and the exporter serves a live page, too.
//!
//! At `/runbooks`, to which alerts link, the program names the file with the runbooks and the
//! commands to begin with.
//!
//! The first runtime of the program reads the variable, binds the port and starts the thread
//! `volt-metrics`. The page is served until the program exits, also while it has no runtime. The
//! parts, bottom to top:
//! * `request`: the head of a request, and the response to it;
//! * `server`: the thread, which serves one connection after the other.
//!
//! Invariants, in addition to those of the control socket:
//! * *The user names the address*: without the variable, no port is opened. A port without an
//!   address is bound on 127.0.0.1.
//! * *Bounded*: one connection at a time, with limits on its time and on the size of its request.
//!   See `server`.
//! * *One program, one page*: a child that is forked later does not serve, and does not try to,
//!   since the port belongs to its parent. It inherits the listening socket unless it calls `exec`,
//!   so the port stays bound until it ends, too.

mod request;
mod server;

use std::ffi::OsStr;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use volt_stacks::fork::Home;

use request::is_local;
use server::Server;

/// The variable with the address of the page.
const VARIABLE: &str = "VOLT_METRICS";
/// Name of the thread.
const THREAD_NAME: &str = "volt-metrics";

/// The program that serves the page, and the page's address.
static SERVED: OnceLock<(Home, SocketAddr)> = OnceLock::new();

/// Returns the address at which this program serves `/metrics`, with the port that the system
/// chose. `None` if the environment variable `VOLT_METRICS` was not set when the first runtime was
/// built, if the address could not be used, and in a forked child.
///
/// The value of the variable is an address with a port, such as `127.0.0.1:9464`, or only a port,
/// which is then bound on 127.0.0.1. Port 0 chooses a free port. The page has no password, so bind
/// an address that other machines can reach only inside a trusted network.
///
/// ```
/// # use volt_core as volt;
/// if let Some(address) = volt::observe::metrics_addr() {
///     println!("metrics http://{address}/metrics");
/// }
/// ```
pub fn metrics_addr() -> Option<SocketAddr> {
    SERVED.get().filter(|(home, _)| home.is_here()).map(|(_, address)| *address)
}

/// Serves the page if the environment requests it. Does nothing if it was called before in this
/// program or in a parent that forked it. If the page cannot be served, reports that, and the
/// program continues.
pub(crate) fn serve_if_requested() {
    static WAS_CALLED: AtomicBool = AtomicBool::new(false);
    // ORDERING: Relaxed; only one caller receives false, and it publishes nothing by this. A `Once`
    // would block forever in a child that was forked during the first call.
    if WAS_CALLED.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(wanted) = std::env::var_os(VARIABLE).filter(|wanted| !wanted.is_empty()) else { return };
    match serve(&wanted) {
        Ok(address) => {
            let _first = SERVED.set((Home::here(), address));
            if is_local(address) {
                tracing::info!(target: "volt::observe", %address, "serving metrics at /metrics");
            } else {
                tracing::warn!(
                    target: "volt::observe", %address,
                    "serving metrics at /metrics without a password, also to other machines"
                );
            }
        }
        Err(error) => {
            let wanted = wanted.to_string_lossy();
            let shown = wanted.escape_debug();
            // Also on stderr, since the program may have no subscriber. Not a print macro, which
            // panics if stderr is closed.
            let _ = writeln!(io::stderr(), "volt: {VARIABLE}={shown}: {error}; the program continues without metrics");
            tracing::error!(target: "volt::observe", address = %shown, %error, "no metrics are served; the program continues");
        }
    }
}

fn serve(wanted: &OsStr) -> Result<SocketAddr, String> {
    let wanted = wanted.to_str().map(str::trim).ok_or("not an address")?;
    let listener = bind(wanted).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            format!("not an address ({error}): use the form 127.0.0.1:9464, or a port such as 9464")
        }
        io::ErrorKind::AddrInUse => "the address is already in use: choose another port".to_owned(),
        io::ErrorKind::AddrNotAvailable => "not an address of this machine".to_owned(),
        io::ErrorKind::PermissionDenied => "not permitted: choose a port above 1023".to_owned(),
        _ => format!("cannot listen there ({error}): choose another address"),
    })?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let server = Server::new(listener, address);
    let started = thread::Builder::new().name(THREAD_NAME.into()).spawn(move || server.run());
    started.map_err(|error| format!("the thread {THREAD_NAME} cannot be started: {error}"))?;
    Ok(address)
}

/// Binds the wanted address. No name is looked up, except `localhost`: that may take long, and the
/// first runtime waits for it.
fn bind(wanted: &str) -> io::Result<TcpListener> {
    let port = wanted.strip_prefix("localhost:").unwrap_or(wanted).parse::<u16>();
    let address = match port {
        Ok(port) => (Ipv4Addr::LOCALHOST, port).into(),
        Err(_) => wanted.parse::<SocketAddr>().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
    };
    TcpListener::bind(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_bound_on_loopback() {
        let address = bind("0").unwrap().local_addr().unwrap();
        assert!(address.ip().is_loopback() && address.port() != 0, "{address}");
        for wanted in ["127.0.0.1:0", "localhost:0"] {
            assert_eq!(bind(wanted).unwrap().local_addr().unwrap().ip(), Ipv4Addr::LOCALHOST);
        }
    }

    #[test]
    fn a_bad_address_is_refused_with_its_remedy() {
        for wanted in ["localhost", "70000", "127.0.0.1", ":", ":9464", "127.0.0.1:x", "example.com:9464"] {
            let error = serve(OsStr::new(wanted)).unwrap_err();
            assert!(error.contains("use the form 127.0.0.1:9464"), "{wanted}: {error}");
        }
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = serve(OsStr::new(&taken.local_addr().unwrap().to_string())).unwrap_err();
        assert_eq!(error, "the address is already in use: choose another port");
    }
}
