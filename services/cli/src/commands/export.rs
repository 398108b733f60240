//! `runs export`: a run's whole journal on standard output, in the form that `verify` reads without a server.

use std::io::{BufWriter, Write};

use signalbox_proto::v1;
use uuid::Uuid;

use crate::client::Client;
use crate::failure::Failure;
use crate::journal_file::JournalWriter;

/// Exports to standard output; always JSON lines.
pub(crate) async fn run(client: Client, id: Uuid) -> Result<(), Failure> {
    write(client, id, BufWriter::new(std::io::stdout())).await
}

/// Exports to anywhere.
pub(crate) async fn write(mut client: Client, id: Uuid, to: impl Write) -> Result<(), Failure> {
    let run_id = id.to_string();
    let mut stream = client.export_run(v1::ExportRunRequest { run_id: run_id.clone() }).await?.into_inner();
    let Some(first) = stream.message().await? else {
        return Err(Failure::new("answer-invalid", "the server sent no journal"));
    };
    let mut writer = JournalWriter::begin(to, &run_id, &first.tenant_id, &first.run_key)?;
    let mut events = first.events;
    loop {
        for event in events {
            writer.event(event)?;
        }
        match stream.message().await? {
            Some(message) => events = message.events,
            None => return writer.end(),
        }
    }
}
