//! The OpenAPI document: made from the table of operations and from the types of bodies, and from nothing else (EXE-017).
//!
//! It is served at `/openapi.json` and committed as `docs/openapi.json`; a test makes it again and compares.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::call::{Answered, Call, json as answer};
use super::operations::{Answer, Code, OPERATIONS, Operation, Parameter, STREAMED};
use super::problem::Problem;
use super::schemas::Schemas;
use crate::api::ErrorKind::{Internal, Invalid, Overloaded, PermissionDenied, Unavailable};
use crate::errors;

/// Codes that every operation may answer with.
const EVERYWHERE: &[Code] = &[
    ("unauthenticated", PermissionDenied),
    ("id-invalid", Invalid),
    ("unknown-field", Invalid),
    ("field-invalid", Invalid),
    ("headers-too-large", Invalid),
    ("too-many-requests", Overloaded),
    ("store-unavailable", Unavailable),
    ("internal", Internal),
];
/// Codes that every operation with a body may answer with.
const WITH_BODY: &[Code] = &[
    ("json-invalid", Invalid),
    ("json-duplicate-key", Invalid),
    ("json-too-deep", Invalid),
    ("json-not-unicode", Invalid),
    ("number-not-exact", Invalid),
    ("field-missing", Invalid),
    ("json-too-large", Invalid),
    ("content-type-unsupported", Invalid),
    ("body-too-slow", Invalid),
];

/// `GET /openapi.json`
pub(super) fn get(_: Call) -> Answered {
    Box::pin(async { answer(StatusCode::OK, &document()) })
}

/// The whole document.
pub(crate) fn document() -> Value {
    let mut schemas = Schemas::new();
    let problem = schemas.written.subschema_for::<Problem>().to_value();
    for streamed in STREAMED {
        streamed(&mut schemas.written);
    }
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in OPERATIONS {
        let described = described(operation, &problem, &mut schemas);
        paths.entry(operation.path).or_default().insert(operation.verb.as_str().to_owned(), described);
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "signalbox",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Governed agent runs over HTTP. The same runs are served over gRPC on the same port. Who \
                            calls is what the bearer token says, never what a body says. Bodies are read strictly: \
                            unknown fields, duplicate keys and numbers that a double cannot hold are refused. Every \
                            error is a problem in the form of RFC 9457; its `code` is stable. Every answer names its \
                            request in `x-request-id`.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "security": [{ "bearer": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
        },
    });
    schemas.put_in(&mut document);
    document
}

fn described(operation: &Operation, problem: &Value, schemas: &mut Schemas) -> Value {
    let mut parameters: Vec<Value> = path_parameters(operation.path);
    parameters.extend(operation.query.iter().map(|parameter| parameter_of("query", parameter)));
    parameters.extend(operation.headers.iter().map(|parameter| parameter_of("header", parameter)));
    let mut responses = Map::new();
    for answer in operation.answers {
        responses.insert(answer.status.to_owned(), response(answer, &mut schemas.written));
    }
    for (status, codes) in problems(operation) {
        let about = codes.iter().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(", ");
        let content = json!({ "application/problem+json": { "schema": problem } });
        responses.insert(status.to_string(), json!({ "description": about, "content": content }));
    }
    let mut described = json!({
        "operationId": operation.id,
        "description": operation.about,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = operation.body {
        let content = json!({ "application/json": { "schema": body(&mut schemas.read) } });
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    if operation.open {
        described["security"] = json!([]);
    }
    described
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            // Operators choose the ids of switches; all the others are ours.
            let schema = match name {
                "switchId" => json!({ "type": "string" }),
                _ => json!({ "type": "string", "format": "uuid" }),
            };
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect()
}

fn parameter_of(place: &str, parameter: &Parameter) -> Value {
    let one = json!({ "type": parameter.kind });
    let schema = if parameter.repeated { json!({ "type": "array", "items": one }) } else { one };
    json!({
        "name": parameter.name,
        "in": place,
        "required": parameter.required,
        "description": parameter.about,
        "schema": schema,
    })
}

fn response(answer: &Answer, generator: &mut SchemaGenerator) -> Value {
    if answer.media.is_empty() {
        return json!({ "description": answer.about });
    }
    let described = answer.schema.map_or_else(|| json!({}), |schema| json!({ "schema": schema(generator) }));
    let mut content = Map::new();
    content.insert(answer.media.to_owned(), described);
    json!({ "description": answer.about, "content": content })
}

// Codes by the status that the one table gives them.
fn problems(operation: &Operation) -> BTreeMap<u16, BTreeSet<&'static str>> {
    let mut codes: Vec<Code> = operation.problems.to_vec();
    if !operation.open {
        codes.extend(EVERYWHERE);
    }
    if operation.body.is_some() {
        codes.extend(WITH_BODY);
    }
    let mut by_status: BTreeMap<u16, BTreeSet<&'static str>> = BTreeMap::new();
    for (code, kind) in codes {
        by_status.entry(errors::http_status_of(code, kind)).or_default().insert(code);
    }
    by_status
}
