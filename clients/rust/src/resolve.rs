//! From `host:port` to socket addresses, anew for each connection.
//!
//! Names are looked up on a thread of our own that nothing waits for: the runtime's blocking pool is joined when a
//! runtime is dropped, which with a dead name server would take as long as that does.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use tokio::sync::oneshot;

/// Looks up one name; one look-up at most is under way.
pub(crate) struct Resolver {
    host: String,
    port: u16,
    pending: Option<oneshot::Receiver<io::Result<Vec<SocketAddr>>>>,
}

impl Resolver {
    pub(crate) fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port, pending: None }
    }

    /// All addresses of the name, in the system's order. A call that is dropped leaves its look-up to the next one.
    pub(crate) async fn addresses(&mut self) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        let pending = match self.pending.take() {
            Some(pending) => pending,
            None => self.start()?,
        };
        let found = self.pending.insert(pending).await;
        self.pending = None;
        let found = found.map_err(|_| io::Error::other("the look-up of the name was given up"))??;
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(found)
    }

    fn start(&self) -> io::Result<oneshot::Receiver<io::Result<Vec<SocketAddr>>>> {
        let (found, pending) = oneshot::channel();
        let target = (self.host.clone(), self.port);
        std::thread::Builder::new().name("ticketing-resolve".to_owned()).spawn(move || {
            // Nobody may be there any more.
            drop(found.send(target.to_socket_addrs().map(Iterator::collect)));
        })?;
        Ok(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn numbers_are_no_names_and_names_have_addresses() {
        let found = Resolver::new("fd00::2", 5225).addresses().await.unwrap();
        assert_eq!(found, ["[fd00::2]:5225".parse().unwrap()]);
        let found = Resolver::new("localhost", 5225).addresses().await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 5225), "{found:?}");
        assert!(Resolver::new("name.invalid", 1).addresses().await.is_err());
    }
}
