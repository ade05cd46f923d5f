//! HTTP without a library that would put an unusual request right.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_secs(60);

/// Sends requests, each on a connection of its own.
#[derive(Clone)]
pub(super) struct Client {
    address: String,
    host: String,
    headers: Vec<(String, String)>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Client {
    pub(super) fn new(address: &str) -> Client {
        Client { address: address.to_owned(), host: address.to_owned(), headers: Vec::new() }
    }

    /// The same with one more header on each request.
    pub(super) fn header(mut self, name: &str, value: &str) -> Client {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same under another name of the server.
    pub(super) fn host(mut self, host: &str) -> Client {
        self.host = host.to_owned();
        self
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", b"").await
    }

    /// Posts a form.
    pub(super) async fn post(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        let pair = |(name, value): &(&str, &str)| format!("{}={}", escaped(name), escaped(value));
        let body: Vec<String> = form.iter().map(pair).collect();
        self.send("POST", path, "application/x-www-form-urlencoded", body.join("&").as_bytes()).await
    }

    pub(super) async fn post_json(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, "application/json", body.to_string().as_bytes()).await
    }

    /// The token for forms of this operator.
    pub(super) async fn csrf(&self) -> String {
        let answer = self.get("/api/v1/session").await;
        answer.json()["csrf_token"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
    }

    /// Posts a form with its token.
    pub(super) async fn act(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        let csrf = self.csrf().await;
        self.post(path, &[&[("csrf", csrf.as_str())], form].concat()).await
    }

    pub(super) async fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.host);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if method == "POST" {
            head.push_str(&format!("content-type: {kind}\r\ncontent-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let exchange = async {
            let stream = TcpStream::connect(&self.address).await?;
            let (mut reader, mut writer) = stream.into_split();
            let write = async {
                // A server that refuses a large body does not read all of it.
                let _refused = writer.write_all(&[head.as_bytes(), body].concat()).await;
            };
            let mut answer = Vec::new();
            let (read, ()) = tokio::join!(reader.read_to_end(&mut answer), write);
            if answer.is_empty() { read.map(|_| answer) } else { Ok(answer) }
        };
        let answer = tokio::time::timeout(LIMIT, exchange).await.expect("the console answers in time");
        Answer::of(&answer.unwrap_or_else(|error| panic!("{method} {path}: {error}")))
    }
}

impl Answer {
    fn of(bytes: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|it| it.split(' ').nth(1)).and_then(|it| it.parse().ok());
        let headers = lines.filter_map(|it| it.split_once(": "));
        Answer {
            status: status.unwrap_or_else(|| panic!("no status: {text}")),
            headers: headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect(),
            body: body.to_owned(),
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The token in a form of the page.
    pub(super) fn csrf(&self) -> String {
        let found = self.body.split("name=\"csrf\" value=\"").nth(1).and_then(|it| it.split('"').next());
        found.unwrap_or_else(|| panic!("no form: {}", self.body)).to_owned()
    }
}

/// Everything but letters and digits as %xx.
pub(super) fn escaped(text: &str) -> String {
    let byte = |it: u8| if it.is_ascii_alphanumeric() { char::from(it).to_string() } else { format!("%{it:02X}") };
    text.bytes().map(byte).collect()
}
