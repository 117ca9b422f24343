//! The last words of a broker whose runtime ends: what its tasks did not get to write, and what is given back after them.
//!
//! Tasks are dropped with their runtime, in any order with those who hold tickets. The socket of one session, the
//! leader's, stays behind; it is written to without waiting, and by nobody's task. Nothing is read: no answer is told.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use rustls::ClientConnection;

use crate::core::requests::SessionId;

/// What is read of a socket before it is closed, at most.
const UNREAD_MAX: usize = 64 * READ_BUFFER;
const READ_BUFFER: usize = 4 * 1024;

/// The session on which last words are said, if any. Words and socket may come in any order.
#[derive(Default)]
pub(crate) struct Parting {
    /// The greatest that was named, and so the latest; 0 is none.
    session: SessionId,
    /// Said before its task had to leave the socket.
    words: Vec<u8>,
    socket: Option<Socket>,
    /// The socket is closed once it is there and all is said.
    over: bool,
}

impl Parting {
    fn begin(&mut self, session: SessionId) {
        if session > self.session {
            *self = Self { session, ..Self::default() };
        }
    }

    pub(crate) fn say(&mut self, session: SessionId, words: &[u8]) {
        self.begin(session);
        if session < self.session {
            return;
        }
        match &mut self.socket {
            Some(socket) => socket.say(words),
            None => self.words.extend_from_slice(words),
        }
    }

    /// The task of a session leaves its socket, which is closed unless it `stays`.
    pub(crate) fn take(&mut self, session: SessionId, mut socket: Socket, stays: bool) {
        if stays {
            self.begin(session);
        }
        if session == self.session {
            socket.say(&std::mem::take(&mut self.words));
            self.socket = Some(socket).filter(|_| !self.over);
        }
    }

    /// The broker has another runtime.
    pub(crate) fn rejoin(&mut self) {
        self.over = true;
        self.socket = None;
    }
}

/// The socket of a session whose task is gone.
pub(crate) struct Socket {
    tcp: TcpStream,
    tls: Option<Box<ClientConnection>>,
    unwritten: Vec<u8>,
}

impl Socket {
    /// `tcp` does not block. `unwritten`: what the task had taken and not written.
    pub(crate) fn new(tcp: TcpStream, tls: Option<Box<ClientConnection>>, unwritten: Vec<u8>) -> Self {
        let mut socket = Self { tcp, tls, unwritten };
        socket.say(&[]);
        socket
    }

    fn say(&mut self, words: &[u8]) {
        self.unwritten.extend_from_slice(words);
        // What the kernel does not take now may go with the next words; otherwise leases end what it was about.
        if let Err(error) = self.write() {
            log::debug!("{} bytes of last words are left: {error}", self.unwritten.len());
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.unwritten.is_empty() {
            let size = match &mut self.tls {
                Some(tls) => tls.writer().write(&self.unwritten)?,
                None => self.tcp.write(&self.unwritten)?,
            };
            self.unwritten.drain(..size);
            self.flush()?;
            if size == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            tls.write_tls(&mut self.tcp)?;
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        self.write()?;
        self.tcp.shutdown(Shutdown::Write)?;
        // A socket that is closed with bytes unread is reset, and takes what the server has yet to read along.
        let mut buffer = [0; READ_BUFFER];
        let mut unread = 0;
        while unread < UNREAD_MAX {
            match self.tcp.read(&mut buffer)? {
                0 => break,
                size => unread += size,
            }
        }
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // That there is nothing more to read is an error of its own kind; whatever it is, this is the end.
        self.close().ok();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A socket as a task leaves it, and the server's end.
    fn pair(unwritten: &[u8]) -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nonblocking(true).unwrap();
        (Socket::new(client, None, unwritten.to_vec()), listener.accept().unwrap().0)
    }

    fn read_to_end(server: &mut TcpStream) -> String {
        let mut said = String::new();
        server.read_to_string(&mut said).unwrap();
        said
    }

    #[test]
    fn words_and_socket_come_in_any_order_and_what_the_task_left_is_first() {
        let mut parting = Parting::default();
        let (socket, mut server) = pair(b"left ");
        parting.say(5, b"early ");
        parting.take(5, socket, true);
        parting.say(5, b"late");
        parting.rejoin();
        assert_eq!(read_to_end(&mut server), "left early late");
    }

    #[test]
    fn a_socket_that_is_left_after_the_broker_has_another_runtime_is_closed_with_all_said() {
        let mut parting = Parting::default();
        let (socket, mut server) = pair(b"");
        parting.say(5, b"early");
        parting.rejoin();
        parting.take(5, socket, false);
        assert_eq!(read_to_end(&mut server), "early");
        // And one of another session at once.
        let (socket, mut server) = pair(b"left");
        parting.take(6, socket, false);
        assert_eq!(read_to_end(&mut server), "left");
    }

    #[test]
    fn the_latest_session_takes_the_place_of_an_earlier_one() {
        let mut parting = Parting::default();
        let (first, mut server) = pair(b"");
        parting.take(5, first, true);
        let (second, mut next) = pair(b"");
        parting.take(9, second, true);
        parting.say(5, b"too late");
        parting.say(9, b"in time");
        assert_eq!(read_to_end(&mut server), "");
        drop(parting);
        assert_eq!(read_to_end(&mut next), "in time");
    }

    #[test]
    fn what_is_unread_does_not_take_the_last_words_along() {
        let (mut socket, mut server) = pair(b"");
        server.write_all(b"unread").unwrap();
        let mut peeked = [0; 1];
        while socket.tcp.peek(&mut peeked).is_err() {}
        socket.say(b"words");
        drop(socket);
        assert_eq!(read_to_end(&mut server), "words");
    }
}
