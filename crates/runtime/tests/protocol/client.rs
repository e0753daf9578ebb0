//! HTTP/1.1 and Connect by hand: what is sent and read is what stands here.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzEncoder;
use serde_json::{Value, json};

use crate::daemon::Daemon;

/// Longer than anything here takes; whoever waits for it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Headers<'a> = &'a [(&'a str, &'a str)];

/// An answer whose body is still to be read.
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    connection: BufReader<TcpStream>,
    rest: Rest,
}

enum Rest {
    Length(usize),
    /// What is left of the current chunk.
    Chunks(usize),
    Done,
}

/// An answer that was read to its end.
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Daemon {
    pub(crate) fn connect(&self) -> TcpStream {
        connect_to(self.address)
    }

    pub(crate) fn open(&self, method: &str, target: &str, headers: Headers, body: &[u8]) -> Answer {
        let mut connection = self.connect();
        send(&mut connection, method, target, headers, body);
        Answer::read(connection)
    }

    pub(crate) fn request(
        &self,
        method: &str,
        target: &str,
        headers: Headers,
        body: &[u8],
    ) -> Reply {
        self.open(method, target, headers, body).finish()
    }

    pub(crate) fn get(&self, target: &str) -> Reply {
        self.request("GET", target, &[], b"")
    }

    pub(crate) fn init(&self, body: &Value) -> Reply {
        let mut connection = connect_to(self.envd);
        let body = body.to_string();
        send(&mut connection, "POST", "/init", &[], body.as_bytes());
        Answer::read(connection).finish()
    }

    pub(crate) fn unary_with(
        &self,
        method: &str,
        headers: Headers,
        message: &Value,
    ) -> (u16, Value) {
        let mut all = vec![("content-type", "application/json")];
        all.extend(headers);
        let reply = self.request("POST", method, &all, message.to_string().as_bytes());
        (reply.status, reply.json())
    }

    pub(crate) fn unary(&self, method: &str, message: &Value) -> (u16, Value) {
        self.unary_with(method, &[], message)
    }

    /// An answer that must be a success.
    pub(crate) fn call(&self, method: &str, message: &Value) -> Value {
        let (status, answer) = self.unary(method, message);
        assert_eq!(status, 200, "{method}: {answer}");
        answer
    }

    /// The code of an answer that must be an error.
    pub(crate) fn refusal(&self, method: &str, message: &Value) -> (String, String) {
        let (status, answer) = self.unary(method, message);
        assert_ne!(status, 200, "{method}: {answer}");
        let text = |name: &str| answer[name].as_str().unwrap().to_owned();
        (text("code"), text("message"))
    }

    pub(crate) fn stream_with(&self, method: &str, headers: Headers, message: &Value) -> Answer {
        let mut all = vec![("content-type", "application/connect+json")];
        all.extend(headers);
        self.open("POST", method, &all, &envelope(0, message))
    }

    pub(crate) fn stream(&self, method: &str, message: &Value) -> Answer {
        self.stream_with(method, &[], message)
    }

    /// Starts `/bin/sh -c <script>`.
    pub(crate) fn start(&self, script: &str) -> Running {
        self.start_with_request(&[], &shell(script))
    }

    pub(crate) fn start_with_request(&self, headers: Headers, request: &Value) -> Running {
        self.start_by("/process.Process/Start", headers, request)
    }

    pub(crate) fn start_by(&self, method: &str, headers: Headers, request: &Value) -> Running {
        let mut events = self.stream_with(method, headers, request);
        let first = events.message();
        let pid = first["event"]["start"]["pid"].as_u64();
        let pid = pid.unwrap_or_else(|| panic!("the first event is {first}"));
        Running { pid, events }
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, script: &str) -> Ran {
        self.start(script).finish()
    }
}

fn connect_to(address: SocketAddr) -> TcpStream {
    let connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection.set_write_timeout(Some(PATIENCE)).unwrap();
    connection
}

/// The request that starts `/bin/sh -c <script>`.
pub(crate) fn shell(script: &str) -> Value {
    json!({"process": {"cmd": "/bin/sh", "args": ["-c", script]}})
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    GzEncoder::new(bytes, Compression::fast())
        .read_to_end(&mut packed)
        .unwrap();
    packed
}

pub(crate) fn envelope(flags: u8, message: &Value) -> Vec<u8> {
    envelope_of(flags, message.to_string().as_bytes())
}

pub(crate) fn envelope_of(flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[flags], &length[..], payload].concat()
}

pub(crate) fn send(
    connection: &mut TcpStream,
    method: &str,
    target: &str,
    headers: Headers,
    body: &[u8],
) {
    let mut head = format!("{method} {target} HTTP/1.1\r\nhost: sandbox\r\n");
    let has = |name| headers.iter().any(|(known, _)| *known == name);
    if !has("content-length") && !has("transfer-encoding") {
        head += &format!("content-length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    connection.write_all(head.as_bytes()).unwrap();
    // one who is refused may be cut off before all is sent
    let _ = connection.write_all(body);
}

impl Answer {
    pub(crate) fn read(connection: TcpStream) -> Self {
        Self::read_on(BufReader::new(connection))
    }

    fn read_on(mut connection: BufReader<TcpStream>) -> Self {
        let status_line = line(&mut connection);
        let status = status_line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = line(&mut connection);
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let header = |name: &str| headers.iter().find(|(known, _)| known == name);
        let rest = if header("transfer-encoding").is_some() {
            Rest::Chunks(0)
        } else {
            let length = header("content-length").map_or(0, |(_, value)| value.parse().unwrap());
            Rest::Length(length)
        };
        Self {
            status,
            headers,
            connection,
            rest,
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub(crate) fn finish(mut self) -> Reply {
        let mut body = Vec::new();
        self.read_to_end(&mut body).unwrap();
        Reply {
            status: self.status,
            headers: self.headers,
            body,
        }
    }

    /// The next envelope of a stream.
    pub(crate) fn envelope(&mut self) -> (u8, Value) {
        let mut prefix = [0; 5];
        self.read_exact(&mut prefix).unwrap();
        let [flags, length @ ..] = prefix;
        let mut payload = vec![0; u32::from_be_bytes(length) as usize];
        self.read_exact(&mut payload).unwrap();
        (flags, serde_json::from_slice(&payload).unwrap())
    }

    pub(crate) fn message(&mut self) -> Value {
        let (flags, message) = self.envelope();
        assert_eq!(flags, 0, "{message}");
        message
    }

    /// The last envelope, after which there is nothing.
    pub(crate) fn end(mut self) -> Value {
        let (flags, end) = self.envelope();
        assert_eq!(flags, 2, "{end}");
        let mut more = Vec::new();
        self.read_to_end(&mut more).unwrap();
        assert_eq!(more, b"", "after the end of the stream");
        end
    }
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = match &mut self.rest {
            Rest::Done => return Ok(0),
            Rest::Length(left) => left,
            Rest::Chunks(left) => {
                if *left == 0 {
                    *left = usize::from_str_radix(&line(&mut self.connection), 16).unwrap();
                    if *left == 0 {
                        assert_eq!(line(&mut self.connection), "");
                        self.rest = Rest::Done;
                        return Ok(0);
                    }
                }
                left
            }
        };
        let most = buffer.len().min(*left);
        if most == 0 {
            return Ok(0);
        }
        let read = self.connection.read(&mut buffer[..most])?;
        *left -= read;
        assert!(read > 0, "the answer breaks off");
        if *left == 0 && matches!(self.rest, Rest::Chunks(_)) {
            assert_eq!(line(&mut self.connection), "");
        }
        Ok(read)
    }
}

fn line(connection: &mut impl BufRead) -> String {
    let mut line = String::new();
    connection.read_line(&mut line).unwrap();
    assert!(line.ends_with("\r\n"), "the answer breaks off: {line:?}");
    line.trim_end().to_owned()
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub(crate) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap().to_owned()
    }
}

/// A process whose events are being read.
pub(crate) struct Running {
    pub(crate) pid: u64,
    pub(crate) events: Answer,
}

/// What became of a process.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) pty: String,
    pub(crate) end: Value,
}

impl Running {
    pub(crate) fn selector(&self) -> Value {
        json!({"pid": self.pid})
    }

    /// The next event.
    pub(crate) fn event(&mut self) -> Value {
        self.events.message()["event"].take()
    }

    /// What it writes next to its standard output.
    pub(crate) fn stdout(&mut self) -> String {
        let event = self.event();
        decode(&event["data"]["stdout"])
    }

    /// Reads until the stream is over, which must be without an error.
    pub(crate) fn finish(mut self) -> Ran {
        let mut ran = Ran::default();
        while ran.end.is_null() {
            let event = self.event();
            for (field, all) in [
                ("stdout", &mut ran.stdout),
                ("stderr", &mut ran.stderr),
                ("pty", &mut ran.pty),
            ] {
                all.push_str(&decode(&event["data"][field]));
            }
            ran.end = event["end"].clone();
        }
        assert_eq!(self.events.end(), json!({}));
        ran
    }
}

/// Text of bytes in base64; nothing of nothing.
pub(crate) fn decode(value: &Value) -> String {
    let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn encode(content: impl AsRef<[u8]>) -> String {
    STANDARD.encode(content)
}

/// `Authorization` of a user.
pub(crate) fn basic(user: &str) -> String {
    format!("Basic {}", encode(format!("{user}:")))
}
