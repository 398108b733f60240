//! The wire contract: readable by whoever implements it, and never broken for whoever already has.
//!
//! `proto/signalbox.v1.lock` lists what was promised, one line for each message, field, value and call. A new line is added
//! with `UPDATE_PROTO_LOCK=1`; a line that is gone or says something else fails always, since a client built yesterday
//! would read tomorrow's bytes wrongly.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, ServiceDescriptorProto,
};

use crate::workspace::{counts, files, none};

const PACKAGE: &str = "signalbox.v1";
const LOCK: &str = "proto/signalbox.v1.lock";
const UPDATE: &str = "UPDATE_PROTO_LOCK";

/// Every .proto file of ours, compiled, with its comments.
fn contract() -> Vec<FileDescriptorProto> {
    let folder = signalbox_tests::root().join("proto");
    let names: Vec<String> = files("proto", &[".proto"])
        .into_iter()
        .map(|file| Path::new(&file.path).strip_prefix("proto").unwrap().to_string_lossy().into_owned())
        .collect();
    let mut compiler = protox::Compiler::new([&folder]).unwrap();
    compiler.include_source_info(true).include_imports(false);
    compiler.open_files(&names).unwrap();
    compiler.file_descriptor_set().file
}

// --- reading ------------------------------------------------------------------------------------------------------------

/// What is visited, with its full name and the path that leads to its comment.
enum Item<'a> {
    Message(&'a DescriptorProto),
    Field(&'a DescriptorProto, &'a FieldDescriptorProto),
    Enum(&'a EnumDescriptorProto),
    Value(&'a EnumDescriptorProto, &'a str, i32),
    Service(&'a ServiceDescriptorProto),
    Rpc(&'a prost_types::MethodDescriptorProto),
}

/// Numbers by which a path in the source info names the parts of a file (google/protobuf/descriptor.proto).
mod part {
    pub(crate) const FILE_MESSAGE: i32 = 4;
    pub(crate) const FILE_ENUM: i32 = 5;
    pub(crate) const FILE_SERVICE: i32 = 6;
    pub(crate) const MESSAGE_FIELD: i32 = 2;
    pub(crate) const MESSAGE_MESSAGE: i32 = 3;
    pub(crate) const MESSAGE_ENUM: i32 = 4;
    pub(crate) const ENUM_VALUE: i32 = 2;
    pub(crate) const SERVICE_RPC: i32 = 2;
}

fn index(i: usize) -> i32 {
    i32::try_from(i).unwrap()
}

fn visit(file: &FileDescriptorProto, see: &mut dyn FnMut(&str, &[i32], Item<'_>)) {
    for (i, message) in file.message_type.iter().enumerate() {
        visit_message(PACKAGE, &[part::FILE_MESSAGE, index(i)], message, see);
    }
    for (i, item) in file.enum_type.iter().enumerate() {
        visit_enum(PACKAGE, &[part::FILE_ENUM, index(i)], item, see);
    }
    for (i, service) in file.service.iter().enumerate() {
        let name = format!("{PACKAGE}.{}", service.name());
        let path = [part::FILE_SERVICE, index(i)];
        see(&name, &path, Item::Service(service));
        for (j, rpc) in service.method.iter().enumerate() {
            let path = [&path[..], &[part::SERVICE_RPC, index(j)]].concat();
            see(&format!("{name}/{}", rpc.name()), &path, Item::Rpc(rpc));
        }
    }
}

fn visit_message(parent: &str, path: &[i32], message: &DescriptorProto, see: &mut dyn FnMut(&str, &[i32], Item<'_>)) {
    // A map field is an entry message that nobody wrote; the field itself says all there is.
    if message.options.as_ref().is_some_and(|options| options.map_entry()) {
        return;
    }
    let name = format!("{parent}.{}", message.name());
    see(&name, path, Item::Message(message));
    for (i, field) in message.field.iter().enumerate() {
        let path = [path, &[part::MESSAGE_FIELD, index(i)]].concat();
        see(&format!("{name}.{}", field.name()), &path, Item::Field(message, field));
    }
    for (i, nested) in message.nested_type.iter().enumerate() {
        visit_message(&name, &[path, &[part::MESSAGE_MESSAGE, index(i)]].concat(), nested, see);
    }
    for (i, nested) in message.enum_type.iter().enumerate() {
        visit_enum(&name, &[path, &[part::MESSAGE_ENUM, index(i)]].concat(), nested, see);
    }
}

fn visit_enum(parent: &str, path: &[i32], item: &EnumDescriptorProto, see: &mut dyn FnMut(&str, &[i32], Item<'_>)) {
    let name = format!("{parent}.{}", item.name());
    see(&name, path, Item::Enum(item));
    for (i, value) in item.value.iter().enumerate() {
        let path = [path, &[part::ENUM_VALUE, index(i)]].concat();
        see(&format!("{name}.{}", value.name()), &path, Item::Value(item, value.name(), value.number()));
    }
}

fn is_documented(file: &FileDescriptorProto, path: &[i32]) -> bool {
    let locations = file.source_code_info.iter().flat_map(|info| &info.location);
    locations.filter(|location| location.path == path).any(|location| {
        !location.leading_comments().trim().is_empty() || !location.trailing_comments().trim().is_empty()
    })
}

fn is_lower_snake(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.contains("__")
        && !name.ends_with('_')
}

fn is_upper_camel(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric())
}

fn upper_snake(camel: &str) -> String {
    let mut name = String::new();
    for (i, c) in camel.chars().enumerate() {
        if i > 0 && c.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

// --- the lint -----------------------------------------------------------------------------------------------------------

#[test]
fn every_proto_file_is_of_the_package_and_lies_where_it_says() {
    for file in contract() {
        assert_eq!(file.package(), PACKAGE, "{}", file.name());
        assert!(file.name().starts_with("signalbox/v1/"), "{}", file.name());
        assert_eq!(file.syntax(), "proto3", "{}", file.name());
    }
}

#[test]
fn every_proto_file_is_part_of_the_generated_code() {
    let build = fs::read_to_string(signalbox_tests::root().join("proto/build.rs")).unwrap();
    let found = contract().iter().filter(|f| !build.contains(f.name())).map(|f| f.name().to_owned()).collect();
    none(found, "name the file in proto/build.rs:");
}

#[test]
fn everything_on_the_wire_is_documented() {
    let mut found = Vec::new();
    for file in contract() {
        let rpcs: BTreeSet<String> =
            file.service.iter().flat_map(|s| &s.method).map(|rpc| rpc.name().to_owned()).collect();
        // The request and the response of a call are described where the call is.
        let belongs_to_rpc = |name: &str| {
            let stem = name.strip_suffix("Request").or_else(|| name.strip_suffix("Response"));
            stem.is_some_and(|stem| rpcs.contains(stem))
        };
        visit(&file, &mut |name, path, item| {
            let exempt = matches!(item, Item::Message(message) if belongs_to_rpc(message.name()));
            if !exempt && !is_documented(&file, path) {
                found.push(format!("{}: {name}", file.name()));
            }
        });
    }
    none(found, "write a comment above each of these:");
}

#[test]
fn names_on_the_wire_follow_one_form() {
    let mut found = Vec::new();
    for file in contract() {
        visit(&file, &mut |name, _, item| {
            let wrong = match item {
                Item::Message(message) => !is_upper_camel(message.name()),
                Item::Enum(item) => !is_upper_camel(item.name()),
                Item::Service(service) => !is_upper_camel(service.name()),
                Item::Rpc(rpc) => !is_upper_camel(rpc.name()),
                Item::Field(_, field) => !is_lower_snake(field.name()),
                Item::Value(item, value, _) => !value.starts_with(&format!("{}_", upper_snake(item.name()))),
            };
            if wrong {
                found.push(name.to_owned());
            }
        });
    }
    none(found, "UpperCamel for types and calls, lower_snake for fields, ENUM_NAME_VALUE for values:");
}

#[test]
fn the_zero_of_every_enum_means_that_nothing_was_said() {
    let mut found = Vec::new();
    for file in contract() {
        visit(&file, &mut |name, _, item| {
            if let Item::Value(item, value, 0) = item
                && value != format!("{}_UNSPECIFIED", upper_snake(item.name()))
            {
                found.push(name.to_owned());
            }
        });
    }
    none(found, "a field left out reads as zero, so zero must be _UNSPECIFIED:");
}

#[test]
fn every_call_has_a_request_and_a_response_of_its_own() {
    let mut found = Vec::new();
    let mut types = Vec::new();
    for file in contract() {
        visit(&file, &mut |name, _, item| {
            if let Item::Rpc(rpc) = item {
                types.extend([rpc.input_type().to_owned(), rpc.output_type().to_owned()]);
                let named = |kind: &str| format!(".{PACKAGE}.{}{kind}", rpc.name());
                if rpc.input_type() != named("Request") || rpc.output_type() != named("Response") {
                    found.push(name.to_owned());
                }
            }
        });
    }
    found
        .extend(counts(types).into_iter().filter(|(_, n)| *n > 1).map(|(name, n)| format!("{name} is used {n} times")));
    none(found, "so that one call can grow without another:");
}

// --- the promise --------------------------------------------------------------------------------------------------------

fn promises() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for file in contract() {
        visit(&file, &mut |name, _, item| {
            lines.insert(match item {
                Item::Message(_) => format!("message {name}"),
                Item::Enum(_) => format!("enum {name}"),
                Item::Service(_) => format!("service {name}"),
                Item::Value(_, _, number) => format!("value {name} = {number}"),
                Item::Field(message, field) => format!("field {name} = {}: {}", field.number(), shape(message, field)),
                Item::Rpc(rpc) => {
                    let stream = |on: bool| if on { "stream " } else { "" };
                    format!(
                        "rpc {name}: {}{} -> {}{}",
                        stream(rpc.client_streaming()),
                        rpc.input_type(),
                        stream(rpc.server_streaming()),
                        rpc.output_type()
                    )
                }
            });
        });
    }
    lines
}

/// How a field lies in the bytes, and in which choice.
fn shape(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let label = if field.proto3_optional() {
        "optional "
    } else if field.label() == Label::Repeated {
        "repeated "
    } else {
        ""
    };
    let kind = match field.r#type() {
        Type::Message | Type::Enum | Type::Group => {
            map_entry(message, field).unwrap_or_else(|| field.type_name().to_owned())
        }
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    };
    let choice = match field.oneof_index {
        Some(i) if !field.proto3_optional() => {
            format!(" in {}", message.oneof_decl[usize::try_from(i).unwrap()].name())
        }
        _ => String::new(),
    };
    format!("{label}{kind}{choice}")
}

fn map_entry(message: &DescriptorProto, field: &FieldDescriptorProto) -> Option<String> {
    let name = field.type_name().rsplit('.').next()?;
    let entry = message.nested_type.iter().find(|nested| nested.name() == name)?;
    entry.options.as_ref().filter(|options| options.map_entry())?;
    let sides: Vec<String> = entry.field.iter().map(|side| shape(entry, side)).collect();
    Some(format!("map<{}>", sides.join(", ")))
}

#[test]
fn nothing_that_was_promised_on_the_wire_is_taken_back() {
    const HEAD: &str =
        "# What the wire contract promises. Lines are added with UPDATE_PROTO_LOCK=1 make test, never taken out.";
    let path = signalbox_tests::root().join(LOCK);
    let promised: BTreeSet<String> = fs::read_to_string(&path)
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    let now = promises();
    let broken = promised.difference(&now).cloned().collect();
    none(broken, "a client built on these would break; put them back, or start signalbox.v2:");
    let new: Vec<String> = now.difference(&promised).cloned().collect();
    if std::env::var_os(UPDATE).is_some() {
        let lines: Vec<&str> = std::iter::once(HEAD).chain(now.iter().map(String::as_str)).collect();
        fs::write(&path, lines.join("\n") + "\n").unwrap();
    } else {
        none(new, "new promises; if they are meant, run once with UPDATE_PROTO_LOCK=1 and commit the file:");
    }
}

#[test]
fn the_generated_code_is_that_of_the_contract() {
    use prost_types::FileDescriptorSet;
    use signalbox_proto::v1::FILE_DESCRIPTOR_SET;
    let built: FileDescriptorSet = prost::Message::decode(FILE_DESCRIPTOR_SET).unwrap();
    let names = |files: &[FileDescriptorProto]| -> BTreeSet<String> {
        files.iter().map(|f| f.name().to_owned()).filter(|name| name.starts_with("signalbox/")).collect()
    };
    assert_eq!(names(&built.file), names(&contract()));
}
