//! What handlers are allowed beyond computing and printing: nothing that is not named here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::str::FromStr;

use crate::message::QueueName;
use crate::store::address::Endpoints;

/// What a handler may do.
#[derive(Clone, Default)]
pub struct Permissions {
    /// Where their HTTP requests may go.
    pub http: Vec<HttpRule>,
    /// Where no request goes, whatever is allowed: hosts and ports of the store.
    pub never: Endpoints,
    /// Their environment.
    pub env: Vec<(String, String)>,
    /// The part of their environment that is never shown.
    pub secrets: Vec<(String, String)>,
    /// The queues that they may send to.
    pub sends: Vec<QueueName>,
    /// The retries of what they send without saying.
    pub retries_default: u32,
}

/// The values of secrets are left out.
impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.secrets.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Permissions")
            .field("http", &self.http)
            .field("never", &self.never)
            .field("env", &self.env)
            .field("secrets", &names)
            .field("sends", &self.sends)
            .field("retries_default", &self.retries_default)
            .finish()
    }
}

/// How a request is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear; port 80.
    Http,
    /// Over TLS; port 443.
    Https,
}

impl Scheme {
    /// The port of a URL that names none.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// As in a URL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Where a request wants to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// By what.
    pub scheme: Scheme,
    /// A name or an address, in lower case, without brackets.
    pub host: String,
    /// At which port.
    pub port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.scheme.as_str();
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

/// One place that requests may go to: `[http://|https://]HOST[:PORT]`. Without a scheme both, each at
/// its usual port unless one is named. HOST is a name, `*.NAME` for all names below it, `*` for any
/// name, an address, or a network such as `10.0.0.0/8`.
///
/// Addresses that are not public are loopback, private, link-local and so on, and the metadata services of
/// clouds. These and all addresses of this machine are reached only by a rule that names the address or its
/// network. That also holds for what an allowed name resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRule {
    scheme: Option<Scheme>,
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    Any,
    Below(String),
    Name(String),
    Network(IpAddr, u8),
}

/// Why a rule was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; use [http://|https://]HOST[:PORT], where HOST is a name, *.NAME, *, an address or a network as in 10.0.0.0/8"
)]
pub struct HttpRuleError(String);

impl FromStr for HttpRule {
    type Err = HttpRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |what: &str| Err(HttpRuleError(what.to_owned()));
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some(_) => return fail("the scheme is neither http nor https"),
            None => (None, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = split_port(rest)?;
        let hosts = match host {
            "" => return fail("the host is missing"),
            "*" => Hosts::Any,
            host => match host.strip_prefix("*.") {
                Some(name) => Hosts::Below(checked_name(&normal(name))?),
                None => network(host)?.map_or_else(
                    || checked_name(&normal(host)).map(Hosts::Name),
                    |(address, bits)| Ok(Hosts::Network(address, bits)),
                )?,
            },
        };
        Ok(Self {
            scheme,
            hosts,
            port,
        })
    }
}

fn split_port(text: &str) -> Result<(&str, Option<u16>), HttpRuleError> {
    let number = |port: &str| {
        port.parse::<u16>()
            .ok()
            .filter(|number| *number != 0 && port.bytes().all(|b| b.is_ascii_digit()))
            .map(Some)
            .ok_or_else(|| HttpRuleError(format!("{port:?} is not a port")))
    };
    if let Some(inside) = text.strip_prefix('[') {
        let Some((host, after)) = inside.split_once(']') else {
            return Err(HttpRuleError("the bracket is not closed".to_owned()));
        };
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, number(port)?)),
            None if after.is_empty() => Ok((host, None)),
            None => Err(HttpRuleError(format!("{after:?} is not a port"))),
        };
    }
    match text.split_once(':') {
        // An IPv6 address without brackets has no port.
        Some((_, rest)) if rest.contains(':') => Ok((text, None)),
        Some((host, port)) => Ok((host, number(port)?)),
        None => Ok((text, None)),
    }
}

/// As hosts are compared.
fn normal(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn checked_name(name: &str) -> Result<String, HttpRuleError> {
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if name.split('.').all(is_label) {
        Ok(name.to_owned())
    } else {
        Err(HttpRuleError(format!("{name:?} is not the name of a host")))
    }
}

/// An address or a network; none when it is neither.
fn network(text: &str) -> Result<Option<(IpAddr, u8)>, HttpRuleError> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return Ok(None);
    };
    let address = address.to_canonical();
    let whole = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => whole,
        Some(bits) => bits
            .parse()
            .ok()
            .filter(|bits| *bits <= whole)
            .ok_or_else(|| HttpRuleError(format!("{bits:?} is not a length from 0 to {whole}")))?,
    };
    Ok(Some((address, bits)))
}

impl HttpRule {
    fn is_for(&self, target: &Target) -> bool {
        self.scheme.is_none_or(|scheme| scheme == target.scheme)
            && self.port.unwrap_or(target.scheme.port()) == target.port
    }

    fn names(&self, target: &Target) -> bool {
        self.is_for(target)
            && match &self.hosts {
                Hosts::Any => true,
                Hosts::Below(name) => target
                    .host
                    .strip_suffix(name.as_str())
                    .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
                Hosts::Name(name) => *name == target.host,
                Hosts::Network(..) => target
                    .host
                    .parse()
                    .is_ok_and(|address| self.covers(target, address)),
            }
    }

    fn covers(&self, target: &Target, address: IpAddr) -> bool {
        let Hosts::Network(network, bits) = self.hosts else {
            return false;
        };
        self.is_for(target)
            && match (network, address.to_canonical()) {
                (IpAddr::V4(a), IpAddr::V4(b)) => {
                    let shift = 32 - u32::from(bits);
                    u32::from(a).checked_shr(shift) == u32::from(b).checked_shr(shift)
                }
                (IpAddr::V6(a), IpAddr::V6(b)) => {
                    let shift = 128 - u32::from(bits);
                    u128::from(a).checked_shr(shift) == u128::from(b).checked_shr(shift)
                }
                _ => false,
            }
    }
}

impl Permissions {
    /// True when a request may be made to this target, as far as its name tells.
    #[must_use]
    pub fn allows(&self, target: &Target) -> bool {
        self.http.iter().any(|rule| rule.names(target))
    }

    /// True when a request to this target may be made to this address, which is what its name
    /// resolves to.
    #[must_use]
    pub fn allows_address(&self, target: &Target, address: IpAddr) -> bool {
        self.names_address(target, address) || is_public(address) && !is_this_machine(address)
    }

    /// True when a rule names this address or its network.
    pub(super) fn names_address(&self, target: &Target, address: IpAddr) -> bool {
        self.http.iter().any(|rule| rule.covers(target, address))
    }
}

impl Target {
    /// The target of a URL with this scheme and authority; none when it is not one of HTTP.
    #[must_use]
    pub fn of(scheme: Scheme, host: &str, port: Option<u16>) -> Self {
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        Self {
            scheme,
            host: normal(host),
            port: port.unwrap_or(scheme.port()),
        }
    }
}

/// True for an address that leads to this machine: loopback, unspecified, or one of its interfaces'.
///
/// A datagram socket that is connected to such an address has the same address at its own end. Connecting
/// it sends nothing.
pub(super) fn is_this_machine(address: IpAddr) -> bool {
    let address = stands_for(address);
    if address.is_loopback() || address.is_unspecified() {
        return true;
    }
    let any: IpAddr = if address.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    // The port is not used: no packet is sent to it.
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    // An address without a route is not ours.
    local.is_ok_and(|local| local.ip().to_canonical() == address)
}

/// The address that decides: of one that stands for an IPv4 address that one.
pub(super) fn stands_for(address: IpAddr) -> IpAddr {
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match address.to_canonical() {
        IpAddr::V6(v6) => match v6.segments() {
            // NAT64, 6to4, and the IPv4-compatible addresses of old, but for :: and ::1.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => v4(high, low).into(),
            [0, 0, 0, 0, 0, 0, high, low] if high != 0 => v4(high, low).into(),
            _ => v6.into(),
        },
        IpAddr::V4(v4) => v4.into(),
    }
}

/// True for addresses of the public internet, by the special-purpose registries of IANA (RFC 6890 and
/// its successors), without what clouds answer at public addresses to their own machines alone. Of an
/// address that stands for an IPv4 address that one decides.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Azure's metadata, DNS and agent service, the same in all its regions.
const AZURE_WIRE_SERVER: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        || (a, b) == (100, b & 0x3f | 64)
        || (a, b, c) == (192, 0, 0)
        || (a, b, c) == (192, 88, 99)
        || (a, b & 0xfe) == (198, 18)
        || address == AZURE_WIRE_SERVER)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match segments {
        // NAT64, and 6to4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            is_public_v4(v4(high, low))
        }
        // Protocol assignments (Teredo among them), and documentation.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(url: &str) -> Target {
        let uri: http::Uri = url.parse().unwrap();
        let scheme = if uri.scheme_str() == Some("http") {
            Scheme::Http
        } else {
            Scheme::Https
        };
        Target::of(scheme, uri.host().unwrap(), uri.port_u16())
    }

    fn allowing(rules: &[&str]) -> Permissions {
        Permissions {
            http: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            ..Permissions::default()
        }
    }

    #[test]
    fn a_rule_names_scheme_host_and_port() {
        for (rule, yes, no) in [
            (
                "api.example.com",
                vec!["http://api.example.com/x", "https://API.example.com./"],
                vec![
                    "https://api.example.com:8443/",
                    "https://example.com/",
                    "https://xapi.example.com/",
                    "https://api.example.com.evil.org/",
                ],
            ),
            (
                "https://api.example.com",
                vec!["https://api.example.com:443/"],
                vec!["http://api.example.com/", "http://api.example.com:443/"],
            ),
            (
                "api.example.com:8080",
                vec!["http://api.example.com:8080/"],
                vec!["http://api.example.com/"],
            ),
            (
                "*.example.com",
                vec!["https://a.b.example.com/"],
                vec!["https://example.com/", "https://badexample.com/"],
            ),
            (
                "*",
                vec!["https://anything.org/", "http://[2606:4700::1]/"],
                vec!["https://anything.org:22/"],
            ),
            (
                "10.0.0.0/8:8080",
                vec!["http://10.1.2.3:8080/"],
                vec!["http://11.1.2.3:8080/", "http://10.1.2.3/"],
            ),
            (
                "[::1]:80",
                vec!["http://[::1]/"],
                vec!["https://[::1]/", "http://[::2]/"],
            ),
        ] {
            let permissions = allowing(&[rule]);
            for url in yes {
                assert!(permissions.allows(&target(url)), "{rule} {url}");
            }
            for url in no {
                assert!(!permissions.allows(&target(url)), "{rule} {url}");
            }
        }
    }

    #[test]
    fn bad_rules_are_refused() {
        for bad in [
            "",
            "ftp://a.b",
            "a b",
            "http://",
            "a:0",
            "a:99999",
            "[::1",
            "10.0.0.0/33",
            "*.",
            "a/b",
            "user@host",
            "*:x",
            "a..b",
        ] {
            let refused = bad.parse::<HttpRule>();
            assert!(refused.is_err(), "{bad}: {refused:?}");
        }
    }

    #[test]
    fn addresses_that_are_not_public_must_be_named() {
        let any = allowing(&["*"]);
        let to = |address: &str| target(&format!("http://{address}/"));
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "168.63.129.16",
            "[::ffff:168.63.129.16]",
            "[64:ff9b::168.63.129.16]",
            "100.64.0.1",
            "100.127.255.255",
            "0.0.0.0",
            "192.0.0.192",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:169.254.169.254]",
            "[::127.0.0.1]",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "[ff02::1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::]",
            "[2001::1]",
            "[2001:db8::1]",
            "[100::1]",
        ] {
            let ip: IpAddr = address.trim_matches(['[', ']']).parse().unwrap();
            assert!(!any.allows_address(&to(address), ip), "{address}");
            let named = allowing(&[address]);
            assert!(
                named.allows(&to(address)) && named.allows_address(&to(address), ip),
                "{address}"
            );
        }
        for address in [
            "1.1.1.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "[2606:4700::1]",
            "[64:ff9b::101:101]",
            "[2002:101:101::]",
        ] {
            let ip: IpAddr = address.trim_matches(['[', ']']).parse().unwrap();
            assert!(any.allows_address(&to(address), ip), "{address}");
        }
        let inside = allowing(&["intern.example", "10.0.0.0/8"]);
        let by_name = target("http://intern.example/");
        assert!(inside.allows_address(&by_name, "10.2.3.4".parse().unwrap()));
        assert!(!inside.allows_address(&by_name, "127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn this_machine_is_known_by_each_of_its_addresses() {
        for address in [
            "127.0.0.1",
            "127.0.0.2",
            "0.0.0.0",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
        ] {
            assert!(is_this_machine(address.parse().unwrap()), "{address}");
        }
        for address in ["192.0.2.1", "1.1.1.1", "2606:4700::1"] {
            assert!(!is_this_machine(address.parse().unwrap()), "{address}");
        }
        // The address that others see, if there is a network.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            let own = socket.local_addr().unwrap().ip();
            assert!(is_this_machine(own), "{own}");
        }
    }

    #[test]
    fn secrets_are_not_in_debug_output() {
        let permissions = Permissions {
            secrets: vec![("TOKEN".into(), "hunter2".into())],
            ..Permissions::default()
        };
        let shown = format!("{permissions:?}");
        assert!(shown.contains("TOKEN") && !shown.contains("hunter2"));
    }

    proptest! {
        #[test]
        fn rules_and_targets_of_any_form_are_survived(
            rule in "(https?://|[a-z]{0,4}://)?(\\*|\\*\\.|\\[)?([a-z0-9_.-]{0,9}|[0-9a-f:.]{0,20}|.*)(/[0-9]{0,4})?\\]?(:[0-9+]{0,7})?/?",
            host in "[a-z0-9.:\\[\\]*-]{0,20}|.*",
            port: Option<u16>,
            address: u128,
        ) {
            let Ok(parsed) = rule.parse::<HttpRule>() else {
                return Ok(());
            };
            let permissions = Permissions { http: vec![parsed], ..Permissions::default() };
            let target = Target::of(Scheme::Https, &host, port);
            let _ = permissions.allows(&target);
            let loopback = IpAddr::from([127, 0, 0, 1]);
            for address in [IpAddr::from(address.to_be_bytes()), loopback] {
                let allowed = permissions.allows_address(&target, address);
                // What is not public is reached only by a rule that names it, which has figures in it.
                prop_assert!(!allowed || address != loopback || rule.contains(['0', ':']));
            }
        }
    }
}
