//! `config`: what a node is told, from where, and whether it would accept it. Nothing secret is shown.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use signalbox_domain::redact::redact_text;
use signalbox_runtime::NodeConfig;
use signalbox_server::RequestRate;
use signalbox_tools::client::CONCURRENCY_DEFAULT;
use toml::{Table, Value};
use url::Url;

use super::serve::ServeArgs;
use crate::args::DATA_DEFAULT;
use crate::config::{Config, LISTEN_DEFAULT};
use crate::failure::Failure;
use crate::output::Out;
use crate::toml_file;

/// What stands where a secret would.
const MASK: &str = "***";
/// Parts of names whose values are secret, unless the name says that it only points at one.
const SECRET_WORDS: [&str; 5] = ["password", "secret", "token", "apikey", "privatekey"];
/// Endings of names that point at a secret or name one.
const POINTERS: [&str; 6] = ["id", "ids", "file", "env", "url", "seconds"];

/// `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Shows what `serve` would run with under the same flags, and where each value comes from; secrets are masked.
    #[command(after_help = "Examples:
  signalbox config show
  signalbox config show --config signalbox.toml --output yaml")]
    Show(ServeArgs),
    /// Checks a configuration file as `serve` does, without serving.
    #[command(after_help = "Example:\n  signalbox config check signalbox.toml")]
    Check(CheckFileArgs),
}

/// `config check`.
#[derive(Debug, Args)]
pub(crate) struct CheckFileArgs {
    /// The file.
    file: PathBuf,
}

/// One value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    key: String,
    value: String,
    from: &'static str,
}

/// Shows or checks.
pub(crate) fn run(command: ConfigCommand, out: &mut Out) -> Result<(), Failure> {
    match command {
        ConfigCommand::Show(args) => show(&args, out),
        ConfigCommand::Check(args) => check(&args, out),
    }
}

fn show(args: &ServeArgs, out: &mut Out) -> Result<(), Failure> {
    let (config, table) = match &args.config {
        Some(path) => {
            let config = Config::read(path)?;
            // It was read and found good a moment ago.
            let text = toml_file::text_of(path).map_err(|problem| Failure::usage("config-unreadable", problem))?;
            (config, toml_file::parse(&text).map_err(|problem| Failure::usage("config-invalid", problem))?)
        }
        None => (Config::default(), Table::new()),
    };
    let rows = rows(args, &config, &table);
    if out.is_json() {
        return out.json(&json!({ "file": args.config, "values": rows }));
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| vec![row.key, row.from.to_owned(), row.value]).collect();
    out.table(&["KEY", "FROM", "VALUE"], &rows)
}

fn check(args: &CheckFileArgs, out: &mut Out) -> Result<(), Failure> {
    let config = Config::read(&args.file)?;
    let counts = [
        ("switches", config.switches.len()),
        ("budgets", config.budgets.len()),
        ("throttles", config.throttles.len()),
        ("grants", config.grants.len()),
        ("secrets", config.secrets.len()),
        ("webhookSecrets", config.webhook_secrets.len()),
        ("sealingKeys", config.sealing_keys.len()),
        ("models", config.models.len()),
        ("executors", config.executors.len()),
        ("exemptions", config.exemptions.len()),
    ];
    if out.is_json() {
        let entries: serde_json::Map<_, _> =
            counts.map(|(name, count)| (name.to_owned(), json!(count))).into_iter().collect();
        return out.json(&json!({ "file": args.file, "valid": true, "entries": entries }));
    }
    let there: Vec<_> =
        counts.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}")).collect();
    let there = if there.is_empty() { "no governance entries".to_owned() } else { there.join(", ") };
    out.line(&format!("{} is valid: {there}", args.file.display()))
}

fn rows(args: &ServeArgs, config: &Config, table: &Table) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut put = |key: &str, value: String, from| rows.push(Row { key: key.to_owned(), value, from });
    let from = |flag: bool, file: bool| match (flag, file) {
        (true, _) => "flag",
        (false, true) => "file",
        (false, false) => "default",
    };
    let listen = args.listen.or(config.listen).unwrap_or(LISTEN_DEFAULT);
    put("listen", listen.to_string(), from(args.listen.is_some(), config.listen.is_some()));
    let data = args.data.clone().or_else(|| config.data.clone()).unwrap_or_else(|| PathBuf::from(DATA_DEFAULT));
    put("data", data.display().to_string(), from(args.data.is_some(), config.data.is_some()));
    let store = args.store.as_ref().or(config.store.as_ref());
    let in_environment =
        args.store.as_ref().map(|store| store.as_str().to_owned()) == std::env::var("SIGNALBOX_STORE").ok();
    let store_from = match &args.store {
        Some(_) if in_environment => "SIGNALBOX_STORE",
        Some(_) | None => from(args.store.is_some(), config.store.is_some()),
    };
    put(
        "store",
        store.map_or_else(|| "SQLite in the data folder".to_owned(), |store| masked_url(store.as_str())),
        store_from,
    );
    let bus = args.bus.as_ref().map(|bus| masked_url(bus.as_str()));
    let bus_in_file = table.get("bus").and_then(|bus| bus.get("url")).is_some();
    if let Some(bus) = &bus {
        let in_environment =
            args.bus.as_ref().map(|bus| bus.as_str().to_owned()) == std::env::var("SIGNALBOX_BUS").ok();
        put("bus.url", bus.clone(), if in_environment { "SIGNALBOX_BUS" } else { "flag" });
    } else if !bus_in_file {
        put("bus.url", "none: nodes of one store find each other's changes in it".to_owned(), "default");
    }
    if let Some(collector) = &args.otlp {
        let in_environment = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok().as_ref() == Some(collector);
        put("traces.collector", collector.clone(), if in_environment { "OTEL_EXPORTER_OTLP_ENDPOINT" } else { "flag" });
    } else if config.traces.is_none() {
        put("traces.collector", "none: nobody is told what runs do".to_owned(), "default");
    }
    for (key, value, said) in limits(config) {
        put(&format!("limits.{key}"), value, from(false, said));
    }
    for (key, value) in table {
        if !matches!(key.as_str(), "listen" | "data" | "store" | "limits") {
            flatten(key, value, &mut rows);
        }
    }
    // What the flag says stands in its place.
    for (key, is_said) in [("bus.url", bus.is_some()), ("traces.collector", args.otlp.is_some())] {
        rows.retain(|row| !is_said || row.key != key || row.from != "file");
    }
    rows
}

fn limits(config: &Config) -> [(&'static str, String, bool); 8] {
    let (said, served) = (&config.limits, config.serve_limits());
    let rate = |of: fn(RequestRate) -> u32| match served.requests {
        Some(rate) => of(rate).to_string(),
        None => "as many as a caller likes".to_owned(),
    };
    let active = said.runs_active_max.unwrap_or_else(|| NodeConfig::default().runs_active_max);
    let calls = said.calls_per_executor_max.unwrap_or(CONCURRENCY_DEFAULT);
    let bytes = said.store_bytes_max.map_or_else(|| "as the disk allows".to_owned(), |bytes| bytes.to_string());
    [
        ("runsActiveMax", active.to_string(), said.runs_active_max.is_some()),
        ("callsPerExecutorMax", calls.to_string(), said.calls_per_executor_max.is_some()),
        ("watchesMax", served.watches_max.to_string(), said.watches_max.is_some()),
        ("watchBuffer", served.watch.buffer.to_string(), said.watch_buffer.is_some()),
        ("watchStallSeconds", served.watch.stall.as_secs().to_string(), said.watch_stall_seconds.is_some()),
        ("requestsPerSecond", rate(|rate| rate.per_second), said.requests_per_second.is_some()),
        ("requestsBurst", rate(|rate| rate.burst), said.requests_burst.is_some()),
        ("storeBytesMax", bytes, said.store_bytes_max.is_some()),
    ]
}

/// Every leaf of a value under its path.
fn flatten(path: &str, value: &Value, rows: &mut Vec<Row>) {
    match value {
        Value::Table(table) => {
            for (key, value) in table {
                flatten(&format!("{path}.{key}"), value, rows);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_table) => {
            for (index, item) in items.iter().enumerate() {
                flatten(&format!("{path}[{index}]"), item, rows);
            }
        }
        Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_) => {
            rows.push(Row { key: path.to_owned(), value: masked(path, value), from: "file" });
        }
    }
}

fn masked(path: &str, value: &Value) -> String {
    let name = path.rsplit('.').next().unwrap_or(path).to_lowercase();
    let points = POINTERS.iter().any(|ending| name.ends_with(ending));
    let is_text = matches!(value, Value::String(_) | Value::Array(_));
    if is_text && !points && SECRET_WORDS.iter().any(|word| name.contains(word)) {
        return MASK.to_owned();
    }
    let text = match value {
        Value::String(text) if text.contains("://") => masked_url(text),
        Value::String(text) => text.clone(),
        Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => value.to_string(),
    };
    redact_text(&text).into_owned()
}

/// An address without its password and without what stands in its query, which may be one as well.
fn masked_url(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return MASK.to_owned() };
    if url.password().is_some() && url.set_password(Some(MASK)).is_err() {
        return MASK.to_owned();
    }
    if url.query().is_some() {
        url.set_query(Some(MASK));
    }
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, args: &ServeArgs) -> Vec<Row> {
        rows(args, &Config::parse(text).unwrap(), &text.parse().unwrap())
    }

    fn no_args() -> ServeArgs {
        ServeArgs { data: None, store: None, bus: None, listen: None, ops_listen: None, otlp: None, config: None }
    }

    #[test]
    fn each_value_says_where_it_comes_from() {
        let args = ServeArgs { data: Some("d".into()), ..no_args() };
        let rows = of("data = \"e\"\nlisten = \"127.0.0.1:9\"\n[limits]\nwatchesMax = 7\n", &args);
        let row = |key: &str| rows.iter().find(|row| row.key == key).map(|row| (row.value.as_str(), row.from)).unwrap();
        assert_eq!(row("data"), ("d", "flag"));
        assert_eq!(row("listen"), ("127.0.0.1:9", "file"));
        assert_eq!((row("limits.watchesMax"), row("limits.watchBuffer")), (("7", "file"), ("256", "default")));
        assert_eq!(row("store"), ("SQLite in the data folder", "default"));
    }

    #[test]
    fn no_secret_is_shown() {
        let rows = of("store = \"postgres://ann:FAKE-password@db.example/box?password=FAKE-too\"", &no_args());
        let all = format!("{rows:?}");
        let bus = ServeArgs { bus: Some("redis://:FAKE-password@bus.example".parse().unwrap()), ..no_args() };
        let in_file = "[bus]\nurl = \"rediss://ann:FAKE-password@file.example\"";
        for (text, args, host) in
            [("", &bus, "bus.example"), (in_file, &no_args(), "file.example"), (in_file, &bus, "bus.example")]
        {
            let rows: Vec<_> = of(text, args).into_iter().filter(|row| row.key == "bus.url").collect();
            assert!(rows.len() == 1 && rows[0].value.contains(host) && !rows[0].value.contains("FAKE"), "{rows:?}");
        }
        assert!(!all.contains("FAKE") && all.contains("ann") && all.contains("db.example"), "{all}");
        for (path, value) in [("a.clientSecret", "FAKE"), ("a.password", "FAKE"), ("identity.apiKey", "FAKE")] {
            assert_eq!(masked(path, &Value::String(value.to_owned())), MASK, "{path}");
        }
        for (path, value) in [("secrets[0].secretId", "mail"), ("a.tokenFile", "t"), ("secrets[0].from.env", "MAIL")] {
            assert_eq!(masked(path, &Value::String(value.to_owned())), value, "{path}");
        }
        assert_eq!(masked("identity.apiKeys", &Value::Boolean(true)), "true", "a yes or no is no secret");
        assert_eq!(masked_url("postgres://nonsense:FAKE@"), MASK);
    }
}
