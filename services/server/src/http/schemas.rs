//! The schemas of the OpenAPI document: what is read and what is written, side by side (EXE-017).
//!
//! One type has two schemas: a field that may be left out of what is sent is there in what is answered. Where they differ,
//! what is read is called `…Sent`.

use std::collections::BTreeSet;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// Where a document keeps its schemas.
const PLACE: &str = "#/components/schemas/";
/// What the name of a schema ends with that describes only what is read.
const READ: &str = "Sent";

/// Both makers of schemas.
pub(super) struct Schemas {
    /// Of what is sent to us.
    pub(super) read: SchemaGenerator,
    /// Of what we answer.
    pub(super) written: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12()
            .with(|settings| settings.definitions_path = PLACE.trim_start_matches('#').trim_end_matches('/').into());
        Self { read: settings.clone().into_generator(), written: settings.for_serialize().into_generator() }
    }

    /// Puts every schema that was asked for in the document. Bodies of requests refer to what is read.
    pub(super) fn put_in(mut self, document: &mut Value) {
        let read = self.read.take_definitions(true);
        let mut all = self.written.take_definitions(true);
        let own = differing(&read, &all);
        for (name, mut schema) in read {
            rename(&mut schema, &own);
            if own.contains(&name) {
                all.insert(format!("{name}{READ}"), schema);
            } else {
                all.entry(name).or_insert(schema);
            }
        }
        for operation in document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut()) {
            for described in operation.as_object_mut().into_iter().flat_map(|verbs| verbs.values_mut()) {
                if let Some(body) = described.get_mut("requestBody") {
                    rename(body, &own);
                }
            }
        }
        let mut all = Value::Object(all);
        in_plain_words(&mut all);
        document["components"]["schemas"] = all;
    }
}

// Names of types whose schema, or that of anything they refer to, is another when read than when written.
fn differing(read: &Map<String, Value>, written: &Map<String, Value>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    loop {
        let more: Vec<String> = read
            .iter()
            .filter(|(name, _)| !found.contains(*name))
            .filter(|(name, schema)| match written.get(*name) {
                Some(other) => other != *schema || refers_to(schema, &found),
                None => false,
            })
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

fn refers_to(schema: &Value, names: &BTreeSet<String>) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(key, value)| match (key.as_str(), value) {
            ("$ref", Value::String(to)) => to.strip_prefix(PLACE).is_some_and(|name| names.contains(name)),
            _ => refers_to(value, names),
        }),
        Value::Array(items) => items.iter().any(|item| refers_to(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn rename(schema: &mut Value, names: &BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), &mut *value) {
                    ("$ref", Value::String(to)) => {
                        if to.strip_prefix(PLACE).is_some_and(|name| names.contains(name)) {
                            to.push_str(READ);
                        }
                    }
                    _ => rename(value, names),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

// Comments link to other items of the code, which nobody outside can follow.
fn in_plain_words(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), &mut *value) {
                    ("description", Value::String(text)) => *text = text.replace("[`", "`").replace("`]", "`"),
                    _ => in_plain_words(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(in_plain_words),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
