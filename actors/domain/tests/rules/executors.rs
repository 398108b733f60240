//! Executors that are registered at run time: what they may claim, by whom, and where they may be.

use serde_json::{Value, json};
use signalbox_domain::catalog::{self, Recovery};
use signalbox_domain::governance::egress::HostExemption;
use signalbox_domain::identity::Role;
use signalbox_domain::quantity::{BudgetCategory, Micros};
use signalbox_domain::registry::{
    DescribedTool, ExecutorRegistration, RegisteredExecutor, check_address, check_described, may_register_executor,
    may_retire_executor, schemas_digest,
};
use signalbox_domain::time::UnixMs;

use crate::common::tool;

fn document() -> Value {
    json!({"executorId": "cal", "address": "https://cal.example:7421", "toolIds": ["calendar.read", "file.read"]})
}

fn registration() -> ExecutorRegistration {
    ExecutorRegistration::parse(document().to_string().as_bytes()).unwrap()
}

fn described(id: &str) -> DescribedTool {
    let entry = catalog::entry(&tool(id)).unwrap();
    DescribedTool {
        tool_id: id.to_owned(),
        semver: "1.2.0".to_owned(),
        input_schema: entry.input_schema.clone(),
        output_schema: entry.output_schema.clone(),
        ceiling: entry.ceiling.clone(),
        recovery: entry.recovery,
    }
}

fn both() -> Vec<DescribedTool> {
    vec![described("calendar.read"), described("file.read")]
}

fn codes(tools: &[DescribedTool]) -> Vec<&'static str> {
    check_described(&registration(), tools).unwrap_err().into_iter().map(|fault| fault.code.code()).collect()
}

fn registered() -> RegisteredExecutor {
    RegisteredExecutor {
        registration: registration(),
        tools: check_described(&registration(), &both()).unwrap(),
        registered_by: "olga".parse().unwrap(),
        registered_at_unix_ms: UnixMs(1),
        retired_at_unix_ms: None,
    }
}

#[test]
fn an_executor_is_taken_for_exactly_what_it_was_registered_for() {
    let served = check_described(&registration(), &both()).unwrap();
    assert_eq!(served.iter().map(|tool| tool.tool_id.as_str()).collect::<Vec<_>>(), ["calendar.read", "file.read"]);
    assert_eq!(served[0].semver, "1.2.0");
    let more = [both(), vec![described("web.fetch")]].concat();
    assert_eq!(codes(&more), ["executor-tool-not-registered"]);
    let unknown = DescribedTool { tool_id: "rm.rf".to_owned(), ..described("file.read") };
    assert_eq!(codes(&[both(), vec![unknown]].concat()), ["executor-tool-unknown"]);
    let odd = DescribedTool { tool_id: "\u{0}__proto__ ".to_owned(), ..described("file.read") };
    assert_eq!(codes(&[both(), vec![odd]].concat()), ["executor-tool-unknown"]);
    assert_eq!(codes(&both()[..1]), ["executor-tool-missing"]);
    assert_eq!(codes(&[]), ["executor-tool-missing", "executor-tool-missing"]);
    assert_eq!(codes(&[both(), both()].concat()), ["executor-tool-twice", "executor-tool-twice"]);
}

#[test]
fn an_executor_claims_nothing_beyond_the_catalog() {
    let with = |change: fn(&mut DescribedTool)| {
        let mut tools = both();
        change(&mut tools[1]);
        codes(&tools)
    };
    assert_eq!(with(|tool| tool.semver = "latest".to_owned()), ["executor-version-invalid"]);
    assert_eq!(
        with(|tool| tool.ceiling = tool.ceiling.clone().with(BudgetCategory::CostUnits, Micros::units(2))),
        ["executor-ceiling-exceeds-catalog"]
    );
    assert_eq!(
        with(|tool| tool.ceiling = tool.ceiling.clone().with(BudgetCategory::GpuMinutes, Micros(1))),
        ["executor-ceiling-exceeds-catalog"]
    );
    assert_eq!(with(|tool| tool.recovery = Recovery::AtMostOnce), ["executor-recovery-differs"]);
    for schema in [
        json!({"type": "array"}),
        json!(true),
        json!({"type": "object", "properties": {}}),
        json!({"type": "object", "properties": {"path": {"type": "number"}}}),
        json!({"type": "object", "required": ["path", "user"], "properties": {"path": {"type": "string"}}}),
    ] {
        let mut tools = both();
        tools[1].input_schema = schema.clone();
        assert_eq!(codes(&tools), ["executor-schema-differs"], "{schema}");
    }
    assert_eq!(with(|tool| tool.output_schema = json!({"type": "string"})), ["executor-schema-differs"]);
    // It may take more than the catalog asks it to.
    let mut wider = both();
    wider[1].input_schema = json!({"type": ["object", "null"], "properties": {"path": {}, "from": {"type": "number"}}});
    assert!(check_described(&registration(), &wider).is_ok());
}

#[test]
fn everything_that_is_wrong_with_a_description_is_told_at_once() {
    let mut tools = both();
    tools[0].recovery = Recovery::AtMostOnce;
    tools[1].semver = "x".to_owned();
    tools.push(described("web.fetch"));
    assert_eq!(
        codes(&tools),
        ["executor-recovery-differs", "executor-version-invalid", "executor-tool-not-registered"]
    );
}

#[test]
fn schemas_that_were_agreed_on_are_held_to_by_their_digest() {
    let digest = schemas_digest(&both()).unwrap();
    let pinned = ExecutorRegistration { schemas_digest: Some(digest.clone()), ..registration() };
    assert!(check_described(&pinned, &both()).is_ok());
    let mut turned = both();
    turned.reverse();
    assert_eq!(schemas_digest(&turned), Some(digest), "the order of a description is no part of it");
    let mut other = both();
    other[1].input_schema["properties"]["from"] = json!({"type": "number"});
    let faults = check_described(&pinned, &other).unwrap_err();
    assert_eq!(faults[0].code.code(), "executor-schemas-digest-differs");
}

#[test]
fn an_address_inside_is_refused_unless_the_configuration_exempts_its_host() {
    for address in [
        "http://127.0.0.1:7421",
        "http://localhost:7421",
        "http://2130706433:7421",
        "http://[::1]:7421",
        "http://10.0.0.1:7421",
        "http://169.254.169.254",
        "https://user:pw@cal.example",
        "ftp://cal.example",
        "unix:/tmp/s",
        "cal.example:7421",
        "https://cal.example/path",
        "https://cal.example/?q",
        "",
    ] {
        assert_eq!(check_address(address, &[]).unwrap_err().code(), "executor-address-refused", "{address}");
    }
    assert!(check_address("https://cal.example:7421", &[]).is_ok());
    let exempt = |host: &str, cidr: &str| HostExemption { host: host.to_owned(), cidr: cidr.parse().unwrap() };
    assert!(check_address("http://127.0.0.1:7421", &[exempt("127.0.0.1", "127.0.0.0/8")]).is_ok());
    assert!(check_address("http://169.254.169.254", &[exempt("169.254.169.254", "169.254.0.0/16")]).is_err());
}

#[test]
fn only_a_platform_operator_registers_and_no_tool_is_served_twice() {
    let register = |role, reason: &str, known: &[RegisteredExecutor]| {
        may_register_executor(&registration(), reason, role, known).map_err(|denial| denial.code().to_owned())
    };
    for role in Role::ALL {
        assert_eq!(register(role, "why", &[]).is_ok(), role == Role::PlatformOperator, "{role:?}");
    }
    let role = Role::PlatformOperator;
    assert_eq!(register(role, " ", &[]), Err("reason-required".to_owned()));
    assert_eq!(register(role, "why", &[registered()]), Err("executor-exists".to_owned()));
    let mut other = registered();
    other.registration.executor_id = "other".parse().unwrap();
    assert_eq!(register(role, "why", &[other.clone()]), Err("tool-bound-twice".to_owned()));
    other.retired_at_unix_ms = Some(UnixMs(2));
    assert_eq!(register(role, "why", &[other.clone()]), Ok(()));
    let retire =
        |id: &str| may_retire_executor(&id.parse().unwrap(), "why", role, &[registered(), other.clone()]).map(|_| ());
    assert_eq!(retire("cal"), Ok(()));
    assert_eq!(retire("other").unwrap_err().code(), "executor-already-retired");
    assert_eq!(retire("none").unwrap_err().code(), "no-such-executor");
}

#[test]
fn a_hostile_registration_is_refused_by_its_code() {
    let with = |key: &str, value: Value| {
        let mut all = document();
        all[key] = value;
        all.to_string()
    };
    for (text, code) in [
        (with("__proto__", json!({})), "executor-invalid"),
        (with("token", json!("FAKE-not-a-secret")), "executor-invalid"),
        (with("toolIds", json!([])), "executor-invalid"),
        (with("toolIds", json!(["rm.rf"])), "executor-tool-unknown"),
        (with("schemasDigest", json!("abc")), "executor-invalid"),
        (with("address", json!("a".repeat(600))), "executor-invalid"),
        (with("executorId", json!("a\u{0}b")), "executor-invalid"),
        ("{\"executorId\":\"a\",\"executorId\":\"b\"}".to_owned(), "json-duplicate-key"),
        ("[".repeat(20), "json-too-deep"),
        (" ".repeat(20_000), "json-too-large"),
    ] {
        assert_eq!(
            ExecutorRegistration::parse(text.as_bytes()).unwrap_err().code(),
            code,
            "{}",
            &text[..60.min(text.len())]
        );
    }
    let in_clear = json!({"executorId": "c", "address": "http://c.example", "toolIds": ["file.read"], "tlsId": "t"});
    assert!(ExecutorRegistration::parse(in_clear.to_string().as_bytes()).is_err());
}
