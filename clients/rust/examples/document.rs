//! The example of the library's page, as printed there, against the address that is the first argument.

use std::time::Duration;
use ticketing::TicketBroker;

#[tokio::main]
#[rustfmt::skip]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:5225".to_owned());
let broker = TicketBroker::connect([address]);
broker.wait_ready(Duration::from_secs(5)).await;

let ticket = broker.acquire(
    "key",
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(2), // least work + pause + the end of the database transaction
).await?;
let token = ticket.token();
// compare and advance the high-water mark, and write, in one database transaction
println!("{token}");
ticket.release().await?;
Ok(())
}
