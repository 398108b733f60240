//! Compiles the .proto files with `protox`, so that no system package is needed.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "signalbox/v1/dashboard.proto",
        "signalbox/v1/feedback_service.proto",
        "signalbox/v1/governance_service.proto",
        "signalbox/v1/grants.proto",
        "signalbox/v1/identity_service.proto",
        "signalbox/v1/pipeline_service.proto",
        "signalbox/v1/registry_service.proto",
        "signalbox/v1/run_service.proto",
        "signalbox/v1/schedule_service.proto",
        "signalbox/v1/throttles.proto",
        "signalbox/v1/tool_executor.proto",
        "signalbox/v1/webhook_service.proto",
    ];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["."])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("signalbox_v1.bin"), prost::Message::encode_to_vec(&descriptors))?;
    // It may carry secrets: `src/lib.rs` says what is printed of it.
    let carries_secrets = [".signalbox.v1.ExecuteRequest", ".signalbox.v1.CreateApiKeyResponse"];
    tonic_prost_build::configure().bytes(".").skip_debug(carries_secrets).compile_fds(descriptors)?;
    Ok(())
}
