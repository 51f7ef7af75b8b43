//! The OpenAPI document of the API, made from its handlers.

use axum::http::StatusCode;
use axum::response::Response;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{Modify, OpenApi};

use super::{
    answer, events, get, health, list, messages, metrics, queues, schemas, send, topics, webhooks,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "dqhost",
        description = "Send messages, look at queues, and steer them.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(
        send::send,
        topics::send,
        webhooks::receive,
        list::list,
        get::get,
        messages::cancel,
        messages::reschedule,
        messages::redrive,
        messages::delete_dead,
        queues::all_stats,
        queues::stats,
        events::events,
        queues::pause,
        queues::resume,
        metrics::metrics,
        health::livez,
        health::readyz,
    ),
    components(schemas(schemas::Message, schemas::ProblemDocument, schemas::QueueStats)),
    modifiers(&Bearer, &Names),
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

/// What names in paths and queries may be.
struct Names;

impl Modify for Names {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let items = document.paths.paths.values_mut();
        let operations = items.flat_map(|item| [&mut item.get, &mut item.post, &mut item.delete]);
        let parameters = operations.flatten().filter_map(|of| of.parameters.as_mut());
        for parameter in parameters.flatten() {
            let RefOr::T(parameter) = parameter else {
                continue;
            };
            let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema else {
                continue;
            };
            match parameter.name.as_str() {
                "queue" | "topic" => schema.pattern = Some("^[A-Za-z0-9._-]{1,64}$".to_owned()),
                "state" => schema.enum_values = Some(list::STATES.map(Into::into).to_vec()),
                _ => {}
            }
        }
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
