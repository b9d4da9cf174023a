//! The check of a request's `Host`.
//!
//! A web page may make its own name resolve to 127.0.0.1 and then read a page of this machine
//! through the visitor's browser. Such a request names the host of the web page.

use std::net::IpAddr;

/// Returns whether the value of a `Host` header is `localhost` or an IP address, with or without a
/// port.
///
/// A page on a loopback address must not reply to requests for other hosts.
///
/// ```
/// use volt_diagnosis::exposition::is_local_host;
///
/// assert!(is_local_host("127.0.0.1:9464") && !is_local_host("web.example:9464"));
/// ```
pub fn is_local_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_and_addresses_are_local_and_names_are_not() {
        for host in ["localhost", "LocalHost:9464", "127.0.0.1", "127.0.0.1:9464", "[::1]", "[::1]:9464", "10.1.2.3:1"]
        {
            assert!(is_local_host(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example", "[::1"]
        {
            assert!(!is_local_host(host), "{host}");
        }
    }
}
