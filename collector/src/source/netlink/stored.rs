//! Stored dialogues: what a real kernel was asked and what it answered, replayed in tests.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::transport::{KernelSocket, Transport};

/// Where the sequence number and the port id are in a netlink header.
const SEQUENCE: std::ops::Range<usize> = 8..12;
const SEQUENCE_AND_PORT: std::ops::Range<usize> = 8..16;

/// One question and the datagrams that answered it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::source) struct Exchange {
    #[serde(with = "hex")]
    pub(in crate::source) request: Vec<u8>,
    pub(in crate::source) replies: Vec<Datagram>,
}

/// One datagram of the kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::source) struct Datagram(#[serde(with = "hex")] pub(in crate::source) Vec<u8>);

/// What was said, in order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(in crate::source) struct Dialogue {
    pub(in crate::source) kernel: String,
    pub(in crate::source) exchanges: Vec<Exchange>,
}

/// The requests a stored dialogue was asked, as they were sent.
pub(in crate::source) type Asked = Arc<Mutex<Vec<Vec<u8>>>>;

/// Answers a request with the next stored exchange of the same request, or again with the last one.
pub(in crate::source) struct Stored {
    pub(in crate::source) asked: Asked,
    exchanges: Vec<Exchange>,
    played: HashMap<Vec<u8>, usize>,
    pending: Vec<io::Result<Vec<u8>>>,
}

impl Stored {
    pub(in crate::source) fn new(exchanges: Vec<Exchange>) -> Self {
        Self { asked: Asked::default(), exchanges, played: HashMap::new(), pending: Vec::new() }
    }

    pub(in crate::source) fn read(json: &str) -> Self {
        Self::new(serde_json::from_str::<Dialogue>(json).unwrap().exchanges)
    }

    /// A transport on which these datagrams or errors arrive unasked.
    pub(in crate::source) fn arriving(mut items: Vec<io::Result<Vec<u8>>>) -> Self {
        items.reverse();
        Self { asked: Asked::default(), exchanges: Vec::new(), played: HashMap::new(), pending: items }
    }

    /// A second transport that knows the same exchanges and notes what it is asked with this one.
    pub(in crate::source) fn beside(&self) -> Self {
        Self { asked: Arc::clone(&self.asked), ..Self::new(self.exchanges.clone()) }
    }

    /// Its last exchange, for another dialogue.
    pub(in crate::source) fn take_exchange(&mut self) -> Exchange {
        self.exchanges.pop().unwrap()
    }

    /// One more exchange.
    pub(in crate::source) fn know(&mut self, exchange: Exchange) {
        self.exchanges.push(exchange);
    }
}

/// A request without what differs from run to run.
fn anonymous(request: &[u8]) -> Vec<u8> {
    let mut bytes = request.to_vec();
    bytes[SEQUENCE_AND_PORT].fill(0);
    bytes
}

impl Transport for Stored {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.asked.lock().unwrap().push(request.to_vec());
        let key = anonymous(request);
        let same: Vec<&Exchange> = self.exchanges.iter().filter(|e| anonymous(&e.request) == key).collect();
        let played = self.played.entry(key).or_insert(0);
        let Some(exchange) = same.get(*played).or(same.last()) else { return Ok(()) };
        *played += 1;
        for Datagram(bytes) in exchange.replies.iter().rev() {
            let mut bytes = bytes.clone();
            let mut at = 0;
            while let Some(length) = bytes.get(at..at + 4) {
                let length = u32::from_ne_bytes(length.try_into().unwrap()) as usize;
                bytes[at..][SEQUENCE].copy_from_slice(&request[SEQUENCE]);
                at += length.next_multiple_of(4);
            }
            self.pending.push(Ok(bytes));
        }
        Ok(())
    }

    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        *datagram = self.pending.pop().unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))?;
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Writes down what goes through a socket.
pub(in crate::source) struct Recorder {
    pub(in crate::source) socket: KernelSocket,
    pub(in crate::source) dialogue: Arc<Mutex<Dialogue>>,
    pub(in crate::source) current: usize,
}

impl Transport for Recorder {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        let exchange = Exchange { request: request.to_vec(), replies: Vec::new() };
        let exchanges = &mut self.dialogue.lock().unwrap().exchanges;
        self.current = exchanges.len();
        exchanges.push(exchange);
        self.socket.send(request)
    }

    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        self.socket.receive(datagram)?;
        if let Some(exchange) = self.dialogue.lock().unwrap().exchanges.get_mut(self.current) {
            exchange.replies.push(Datagram(datagram.clone()));
        }
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.fd()
    }
}

mod hex {
    use std::fmt::Write as _;

    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        for byte in bytes {
            write!(text, "{byte:02x}").map_err(S::Error::custom)?;
        }
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let pairs: Vec<&str> = text.as_bytes().chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok()).collect();
        pairs.into_iter().map(|pair| u8::from_str_radix(pair, 16).map_err(D::Error::custom)).collect()
    }
}
