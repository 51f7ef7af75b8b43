//! The OpenAPI document as a page for people. It needs nothing from a network, and runs no script.

use std::fmt::Write as _;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::Value;

use super::{answer, openapi};

const HEAD: &str = "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>dqhost: HTTP API</title>
<meta name=\"viewport\" content=\"width=device-width\">
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, h3 { font-family: ui-monospace, monospace }
details { border: 1px solid #8886; border-radius: 6px; padding: .5rem 1rem; margin: .5rem 0 }
summary { cursor: pointer }
summary b { display: inline-block; min-width: 4rem; text-transform: uppercase }
table { border-collapse: collapse; margin: .5rem 0 }
td { border-top: 1px solid #8884; padding: .2rem 1rem .2rem 0; vertical-align: top }
</style>
<h1>dqhost: HTTP API</h1>
<p>As <a href=\"/openapi.json\">OpenAPI document</a>.</p>
";

/// What a browser may do with the page: show it.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

pub(super) async fn page() -> Response {
    let document: Value = serde_json::from_str(&openapi()).unwrap_or_default();
    let mut response = answer::with_text(StatusCode::OK, "text/html; charset=utf-8", of(&document));
    let policy = HeaderValue::from_static(POLICY);
    response
        .headers_mut()
        .insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

fn of(document: &Value) -> String {
    let mut html = HEAD.to_owned();
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let _ = writeln!(
                html,
                "<details><summary><b>{method}</b> <code>{}</code> {}</summary>",
                escaped(path),
                text(&operation["summary"])
            );
            let _ = writeln!(html, "<p>{}</p>", text(&operation["description"]));
            let parameters = operation["parameters"].as_array();
            rows(
                &mut html,
                "Parameters",
                parameters.into_iter().flatten(),
                |of| {
                    let place = format!("{} ({})", text(&of["name"]), text(&of["in"]));
                    (place, text(&of["description"]))
                },
            );
            let body = &operation["requestBody"];
            rows(&mut html, "Body", types(body), |name| {
                (escaped(name), text(&body["description"]))
            });
            let answers = operation["responses"].as_object();
            rows(&mut html, "Answers", answers.into_iter().flatten(), |of| {
                (escaped(of.0), text(&of.1["description"]))
            });
            html.push_str("</details>\n");
        }
    }
    html
}

/// The types that a body may have.
fn types(body: &Value) -> impl Iterator<Item = &String> {
    body["content"]
        .as_object()
        .into_iter()
        .flat_map(|types| types.keys())
}

fn rows<T>(
    html: &mut String,
    title: &str,
    of: impl Iterator<Item = T>,
    cells: impl Fn(T) -> (String, String),
) {
    let mut of = of.peekable();
    if of.peek().is_none() {
        return;
    }
    let _ = writeln!(html, "<h3>{title}</h3><table>");
    for (name, words) in of.map(cells) {
        let _ = writeln!(html, "<tr><td><code>{name}</code><td>{words}");
    }
    html.push_str("</table>\n");
}

fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_operations_are_on_the_page_and_words_are_no_markup() {
        let document: Value = serde_json::from_str(&openapi()).unwrap();
        let html = of(&document);
        let paths = document["paths"].as_object().unwrap();
        let operations = paths
            .values()
            .flat_map(|methods| methods.as_object().unwrap());
        assert_eq!(html.matches("<details>").count(), operations.count());
        for path in paths.keys() {
            assert!(html.contains(&format!("<code>{path}</code>")), "{path}");
        }
        assert!(
            !html.contains("http://") && !html.contains("https://"),
            "{html}"
        );
        let hostile = serde_json::json!({"paths": {"/<b>": {"get": {"summary": "\"><script>"}}}});
        let html = of(&hostile);
        assert!(html.contains("/&lt;b&gt;") && html.contains("&quot;&gt;&lt;script&gt;"));
        assert!(!html.contains("<script"));
    }
}
