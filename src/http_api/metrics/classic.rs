//! The older text format of Prometheus, for programs that do not ask for OpenMetrics.

use axum::http::{HeaderMap, header};

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a client takes plain text, and not OpenMetrics.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let accepted: Vec<&str> = accepted.filter_map(|value| value.to_str().ok()).collect();
    let has = |name: &str| accepted.iter().any(|value| value.contains(name));
    has("text/plain") && !has("application/openmetrics-text")
}

/// The same numbers. In this format a family has the name of its samples, and there is no type for what
/// only informs.
pub(super) fn of(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len() + 1024);
    let mut lines = openmetrics.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            continue;
        }
        let described = line.strip_prefix("# HELP ");
        let described = described.and_then(|rest| rest.split_once(' '));
        let kind = lines.peek().and_then(|next| next.strip_prefix("# TYPE "));
        let kind = kind.and_then(|rest| rest.split_once(' '));
        let (Some((name, help)), Some((_, kind))) = (described, kind) else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let (suffix, kind) = match kind {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            other => ("", other),
        };
        let family = format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
        text.push_str(&family);
        lines.next();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_the_name_of_its_samples() {
        let openmetrics = "# HELP a_build The program\n# TYPE a_build info\na_build_info{v=\"1\"} 1\n\
            # HELP a_sent Sent\n# TYPE a_sent counter\na_sent_total{q=\"x\"} 3\n\
            # HELP a_s Time\n# TYPE a_s histogram\na_s_sum 1.5\na_s_bucket{le=\"+Inf\"} 1\n# EOF\n";
        let classic = "# HELP a_build_info The program\n# TYPE a_build_info gauge\na_build_info{v=\"1\"} 1\n\
            # HELP a_sent_total Sent\n# TYPE a_sent_total counter\na_sent_total{q=\"x\"} 3\n\
            # HELP a_s Time\n# TYPE a_s histogram\na_s_sum 1.5\na_s_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(of(openmetrics), classic);
    }

    #[test]
    fn whoever_takes_openmetrics_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        for (accept, is_classic) in [
            (prometheus, false),
            ("*/*", false),
            ("text/plain", true),
            ("text/plain;version=0.0.4, */*;q=0.1", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(is_wanted(&headers), is_classic, "{accept}");
        }
        assert!(!is_wanted(&HeaderMap::new()));
    }
}
