//! The OpenAPI document of the API, made from its handlers.

use axum::http::StatusCode;
use axum::response::Response;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{answer, get, health, list, messages, metrics, queues, schemas, send};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "dqhost",
        description = "Send messages, look at queues, and steer them.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(
        send::send,
        list::list,
        get::get,
        messages::cancel,
        messages::reschedule,
        messages::redrive,
        messages::delete_dead,
        queues::all_stats,
        queues::stats,
        queues::pause,
        queues::resume,
        metrics::metrics,
        health::livez,
        health::readyz,
    ),
    components(schemas(schemas::Message, schemas::ProblemDocument, schemas::QueueStats)),
    modifiers(&Bearer),
    security((), ("token" = []))
)]
struct Document;

/// Tokens, where they are needed.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

/// The document as JSON.
#[must_use]
pub fn openapi() -> String {
    Document::openapi().to_pretty_json().unwrap_or_default() + "\n"
}

pub(super) async fn document() -> Response {
    answer::with_text(StatusCode::OK, "application/json", openapi())
}
