//! A program under test, and what the kernel reports about it.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use strangers::tls::Error;
use tokio::time::sleep;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// How long a program may take to listen.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Killed when this is dropped.
pub struct Program {
    child: Child,
}

impl Program {
    /// Starts a program of this folder with these variables in addition.
    pub fn start(folder: &Path, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Self, Error> {
        let mut command = Command::new(folder.join(name));
        command.args(arguments).envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{}: {error}", folder.join(name).display()))?;
        Ok(Program { child })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the address in the first line that the program prints.
    pub fn printed_address(&mut self) -> Result<SocketAddr, Error> {
        let output = self.child.stdout.take().ok_or("the address was read before")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        line.trim().parse().map_err(|_| format!("the program printed {line:?} instead of its address").into())
    }

    /// Waits until the program listens on a port other than `but`, and returns its address.
    pub async fn listener(&self, but: Option<SocketAddr>) -> Result<SocketAddr, Error> {
        let began = Instant::now();
        while began.elapsed() < TIMEOUT {
            let ports = self.ports()?;
            if let Some(port) = ports.into_iter().find(|port| but.is_none_or(|but| but.port() != *port)) {
                return Ok((Ipv4Addr::LOCALHOST, port).into());
            }
            sleep(Duration::from_millis(10)).await;
        }
        Err("the program does not listen".into())
    }

    /// Returns the IPv4 ports on which the program listens.
    fn ports(&self) -> Result<Vec<u16>, Error> {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid()))?;
        // A descriptor that was closed in the meantime has no target.
        let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let sockets: HashSet<_> = targets.map(|target| target.display().to_string()).collect();
        let table = fs::read_to_string("/proc/net/tcp")?;
        let ports = table.lines().filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let (_, port) = fields.get(1)?.split_once(':')?;
            let is_ours = fields[3] == LISTENING && sockets.contains(&format!("socket:[{}]", fields.get(9)?));
            if is_ours { u16::from_str_radix(port, 16).ok() } else { None }
        });
        Ok(ports.collect())
    }

    /// Returns the processor time that the program has used, in seconds.
    pub fn processor_time(&self) -> Result<f64, Error> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        // The second field is the name, which may contain spaces.
        let (_, rest) = text.rsplit_once(") ").ok_or("/proc/PID/stat has no name")?;
        let ticks: Vec<f64> = rest.split(' ').skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
        Ok(ticks.iter().sum::<f64>() / clock_ticks_per_second() as f64)
    }

    /// Returns the peak of the resident memory, in MB.
    pub fn peak_memory(&self) -> Result<f64, Error> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
