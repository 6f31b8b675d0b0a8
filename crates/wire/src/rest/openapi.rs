//! The OpenAPI document of the table.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::ErrorBody;
use super::table::{
    PATH_PARAMETERS, ParameterKind, ROUTES, Route, RouteAccess, RouteAnswer, RouteBody, RouteParameter,
};
use crate::PROTOCOL_VERSION;
use crate::error::ERRORS;

const ABOUT: &str = "What scripts can do with a Quarterdeck hub without a WebSocket. Sign in with \
    `Authorization: Bearer …` (the owner token, an access token, or that of `POST /auth/login`) or with the cookie of a \
    browser. Every failed call answers with a sentence for people (`error`) and a `code` for programs; `x-error-codes` \
    lists the codes. Streams are at `/ws/mux` (docs/protocol.md); everything a stream's command can do, `POST /api/commands` \
    can do too.";

/// The whole document.
pub fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    // Made once and repeated as a reference, so that clients generate one error type.
    let error = generator.subschema_for::<ErrorBody>().to_value();
    let mut paths = Map::new();
    for route in ROUTES {
        let operation = operation(route, &mut generator, &error);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(methods) = path {
            methods.insert(route.method.to_owned(), operation);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Quarterdeck", "version": PROTOCOL_VERSION, "description": ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "x-error-codes": ERRORS,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "qd_login"},
            },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator, error: &Value) -> Value {
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "tags": [tag(route.path)],
        "parameters": parameters(route),
        "responses": responses(route, generator, error),
    });
    match route.body {
        RouteBody::None => {}
        RouteBody::Json(schema) => {
            let content = json!({"application/json": {"schema": schema(generator).to_value()}});
            operation["requestBody"] = json!({"required": true, "content": content});
        }
        RouteBody::Bytes => {
            operation["requestBody"] = json!({"required": true, "content": {"application/octet-stream": {}}});
        }
    }
    match route.access {
        // An empty list lifts the requirement that the document states for all paths.
        RouteAccess::Open => operation["security"] = json!([]),
        RouteAccess::Known => {}
        RouteAccess::Needs(permission) => operation["x-permission"] = json!(permission.as_str()),
        RouteAccess::OfCommand => operation["x-permission"] = json!("of the command"),
    }
    operation
}

/// The part of the hub a path is about.
fn tag(path: &str) -> &str {
    let mut parts = path.trim_start_matches('/').split('/');
    match parts.next() {
        Some("api") => parts.next().map_or("hub", |part| part.trim_end_matches(".json")),
        Some("auth" | "login" | "logout") => "logins",
        _ => "hub",
    }
}

/// The names in braces.
pub fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn parameters(route: &Route) -> Vec<Value> {
    let of_path = path_parameters(route.path).map(|name| {
        let about = PATH_PARAMETERS.iter().find(|(known, _)| *known == name).map(|(_, about)| about);
        json!({"name": name, "in": "path", "required": true, "description": about,
            "schema": {"type": "string"}})
    });
    let of_query = route.query.iter().map(|parameter| {
        json!({"name": parameter.name, "in": "query", "required": parameter.required,
            "description": parameter.about, "schema": kind(parameter)})
    });
    of_path.chain(of_query).collect()
}

fn kind(parameter: &RouteParameter) -> Value {
    match parameter.kind {
        ParameterKind::Text => json!({"type": "string"}),
        ParameterKind::Integer => json!({"type": "integer"}),
        ParameterKind::Flag => json!({"type": "boolean"}),
        ParameterKind::Word(words) => json!({"type": "string", "enum": words}),
    }
}

/// The answer and the problems. What follows from body, query and access is said here; a route lists only its own.
fn responses(route: &Route, generator: &mut SchemaGenerator, error: &Value) -> Value {
    let mut responses = Map::new();
    let mut answer = json!({"description": "Done."});
    match route.answer {
        RouteAnswer::Empty => {}
        RouteAnswer::Json(schema) => {
            answer["content"] = json!({"application/json": {"schema": schema(generator).to_value()}});
        }
        RouteAnswer::Bytes => answer["content"] = json!({"application/octet-stream": {}}),
        RouteAnswer::Document(forms, schema) => {
            answer["content"] = json!({"application/json": {"schema": schema(generator).to_value()}});
            for form in forms {
                answer["content"][*form] = json!({"schema": {"type": "string"}});
            }
        }
        RouteAnswer::OpenApi => {
            answer["content"] = json!({"application/json": {"schema": {"type": "object"}}})
        }
    }
    responses.insert(route.status.to_string(), answer);
    let mut problem = |status: u16, about: &str| {
        let content = json!({"application/json": {"schema": error}});
        responses.insert(status.to_string(), json!({"description": about, "content": content}));
    };
    if !matches!(route.body, RouteBody::None) || !route.query.is_empty() {
        problem(400, "A parameter or the body is not as described.");
    }
    match route.access {
        RouteAccess::Open => {}
        RouteAccess::Known => problem(401, "Not signed in."),
        RouteAccess::Needs(_) | RouteAccess::OfCommand => {
            problem(401, "Not signed in.");
            problem(403, "The access does not have the permission.");
        }
    }
    route.problems.iter().for_each(|(status, about)| problem(*status, about));
    Value::Object(responses)
}
