//! The JSON schema of the file, from the same keys that the file is checked with.

use serde_json::{Map, Value, json};

use super::keys::{self, Key, Kind};
use super::schedules;
use crate::cli::limits;
use crate::cli::number::AUTO;
use crate::dashboard::{NamedAction, actions};

/// Names of queues, as [`crate::message::QueueName`] takes them.
const QUEUE_NAME: &str = "^[A-Za-z0-9._-]{1,64}$";

/// The schema with a line end for each part of it.
pub(super) fn text() -> String {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dqhost.toml",
        "description": "Settings of the store, the host and its queues. A key is a flag without its dashes.",
        "type": "object",
        "additionalProperties": false,
        "properties": properties(&keys::of_host(), true),
        "not": {"required": ["db", "redis"]},
        "$defs": {"keys": {"type": ["string", "array"], "items": {"type": "string"}, "minLength": 1, "minItems": 1}},
        "dependentRequired": {"redis-cert": ["redis-key"], "redis-key": ["redis-cert"]},
    });
    format!("{schema:#}")
}

fn properties(keys: &[Key], is_host: bool) -> Value {
    let mut properties: Map<String, Value> = Map::new();
    for key in keys {
        properties.insert(key.name().to_owned(), property(key, is_host));
    }
    if is_host {
        let mut queue = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": self::properties(&keys::of_queue(), false),
        });
        queue["properties"]["schedule"] = json!({
            "description": "A message at regular times; [[queue.NAME.schedule]] for each.",
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": false,
                "required": ["name"],
                "oneOf": [{"required": ["cron"]}, {"required": ["every"]}],
                "properties": self::properties(&schedules::of_schedule(), false),
            },
        });
        properties.insert("dashboard".to_owned(), dashboard());
        properties.insert(
            "queue".to_owned(),
            json!({
                "description": "A table for each queue. Its keys come before those at the top.",
                "type": "object",
                "additionalProperties": false,
                "patternProperties": {QUEUE_NAME: queue},
            }),
        );
    }
    properties.into()
}

/// The keys of the dashboard.
fn dashboard() -> Value {
    let property = |action: NamedAction| {
        let default = match action.keys.as_slice() {
            [key] => Value::from(key.as_str()),
            keys => Value::from(keys),
        };
        let property = json!({
            "$ref": "#/$defs/keys",
            "description": action.help,
            "default": default,
        });
        (action.name.to_owned(), property)
    };
    let properties: Map<String, Value> = actions().into_iter().map(property).collect();
    json!({
        "description": "The dashboard.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "keys": {
                "description": "Actions of the dashboard with their keys: a character, or a name such as ctrl-r, alt-left, enter, f5.",
                "type": "object",
                "additionalProperties": false,
                "properties": properties,
            },
        },
    })
}

fn property(key: &Key, is_host: bool) -> Value {
    let arg = key.arg();
    let mut property = match key.kind() {
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Number => json!({"type": "integer", "minimum": 0}),
        Kind::NumberOrAuto => {
            json!({"anyOf": [{"const": AUTO}, {"type": "integer", "minimum": 0}]})
        }
        Kind::List => json!({"type": "array", "items": {"type": "string"}}),
        Kind::Table => table(key, is_host),
        Kind::Text if key.is_handler() => handler(),
        Kind::Text => {
            let values = arg.get_possible_values();
            let names: Vec<&str> = values
                .iter()
                .map(clap::builder::PossibleValue::get_name)
                .collect();
            if names.is_empty() {
                json!({"type": "string"})
            } else {
                json!({"type": "string", "enum": names})
            }
        }
    };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    property["description"] = help.into();
    let default = arg
        .get_default_values()
        .first()
        .and_then(|value| value.to_str());
    if let Some(default) = default {
        property["default"] = match key.kind() {
            Kind::Number => default.parse::<u64>().map_or(Value::Null, Value::from),
            Kind::Flag => (default == "true").into(),
            _ => default.into(),
        };
    }
    property
}

/// Where a handler comes from: a text, or an address with its digest.
fn handler() -> Value {
    let [url, digest] = super::handler::KEYS;
    let mut properties = Map::new();
    properties.insert(
        url.to_owned(),
        json!({
            "description": "Where a server has the handler.",
            "type": "string",
            "pattern": "^(https?|oci)://[^#]+$",
        }),
    );
    properties.insert(
        digest.to_owned(),
        json!({
            "description": "What the server has to have: no other file is loaded.",
            "type": "string",
            "pattern": "^sha256:[0-9A-Fa-f]{64}$",
        }),
    );
    json!({
        "type": ["string", "object"],
        "additionalProperties": false,
        "required": super::handler::KEYS,
        "properties": properties,
    })
}

fn table(key: &Key, is_host: bool) -> Value {
    let value = json!({"type": ["string", "integer", "boolean"]});
    if key.name() != "limit" {
        return json!({"type": "object", "additionalProperties": value});
    }
    let mut properties = Map::new();
    for (name, what) in limits::names() {
        if is_host || !limits::is_of_host(name) {
            let value = json!({"type": ["string", "integer"], "description": what});
            properties.insert(name.to_owned(), value);
        }
    }
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_schema_in_the_documentation_is_what_the_program_prints() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/dqhost.schema.json");
        let text = text() + "\n";
        if std::env::var_os("DQHOST_UPDATE_DOCS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == text,
            "docs/dqhost.schema.json is not what the keys are: DQHOST_UPDATE_DOCS=1 cargo test --lib schema"
        );
    }

    #[test]
    fn a_file_with_every_default_of_the_schema_is_taken() {
        let schema: Value = serde_json::from_str(&text()).unwrap();
        let queue = &schema["properties"]["queue"]["patternProperties"][QUEUE_NAME];
        for (properties, keys) in [
            (&schema["properties"], keys::of_host()),
            (&queue["properties"], keys::of_queue()),
        ] {
            let mut defaults = 0;
            for key in keys {
                let property = &properties[key.name()];
                assert!(
                    !property["description"].as_str().unwrap().is_empty(),
                    "{}",
                    key.name()
                );
                let Some(default) = property.get("default") else {
                    continue;
                };
                defaults += 1;
                let text = format!("key = {default}");
                let table = toml::de::DeTable::parse(&text).unwrap().into_inner();
                let value = table.values().next().unwrap();
                let values = key.values(value.get_ref(), Path::new("")).unwrap();
                for value in &values {
                    key.check(value).unwrap();
                }
            }
            assert!(defaults > 4);
        }
    }
}
