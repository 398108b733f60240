//! The job as a Restate handler: ten `ctx.run` steps in a row, each one GET to the tool.

use restate_sdk::prelude::*;
use serde::Deserialize;
use tokio::net::TcpSocket;

const STEPS: usize = 10;

struct Job {
    client: reqwest::Client,
    tool: String,
}

#[derive(Deserialize)]
struct Order {
    run: String,
}

#[service]
impl Job {
    #[handler]
    async fn run(&self, ctx: Context<'_>, order: Json<Order>) -> Result<String, HandlerError> {
        let run = order.into_inner().run;
        let mut length = 0;
        for step in 0..STEPS {
            let url = format!("{}/call/{run}/{step}", self.tool);
            let called = ctx.run(|| async move { Ok(self.client.get(url).send().await?.text().await?) });
            let answer: String = called.name("call").await?;
            length += answer.len();
        }
        Ok(length.to_string())
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = reqwest::Client::builder().pool_max_idle_per_host(1_024).build()?;
    let job = Job { client, tool: std::env::var("TOOL")? };
    // `HttpServer::listen_and_serve` leaves Nagle's algorithm on, which costs an idle step 40 ms. A connection has what its
    // listener has.
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_nodelay(true)?;
    socket.bind("127.0.0.1:9080".parse()?)?;
    HttpServer::new(Endpoint::builder().bind(job).build()).serve(socket.listen(1_024)?).await;
    Ok(())
}
