//! One connection.

use std::io;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::{Mail, MailFault, RecipientFault, Shared};

/// Longest line, and longest message.
const LINE_BYTES_MAX: u64 = 64 * 1024;
const MAIL_BYTES_MAX: usize = 4 * 1024 * 1024;

struct Session<'a> {
    stream: BufReader<TcpStream>,
    shared: &'a Shared,
    sender: Option<String>,
    recipients: Vec<String>,
}

/// Whether the conversation goes on.
enum Next {
    Line,
    End,
}

pub(super) async fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut session = Session { stream: BufReader::new(stream), shared, sender: None, recipients: Vec::new() };
    session.say("220 localhost test mail server").await?;
    while let Some(line) = session.line().await? {
        if let Next::End = session.obey(&line).await? {
            break;
        }
    }
    Ok(())
}

impl Session<'_> {
    async fn obey(&mut self, line: &str) -> io::Result<Next> {
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        match verb.as_str() {
            "EHLO" => self.say("250-localhost\r\n250-8BITMIME\r\n250 SMTPUTF8").await?,
            "HELO" | "NOOP" => self.say("250 ok").await?,
            "RSET" => {
                self.forget();
                self.say("250 ok").await?;
            }
            "MAIL" => {
                self.forget();
                self.sender = Some(address(line));
                self.say("250 ok").await?;
            }
            "RCPT" if self.sender.is_some() => return self.recipient(address(line)).await,
            "DATA" if !self.recipients.is_empty() => return self.mail().await,
            "RCPT" | "DATA" => self.say("503 not now").await?,
            "QUIT" => {
                self.say("221 bye").await?;
                return Ok(Next::End);
            }
            _ => self.say("502 not here").await?,
        }
        Ok(Next::Line)
    }

    async fn recipient(&mut self, recipient: String) -> io::Result<Next> {
        match self.shared.judge_recipient(&recipient) {
            None => {
                self.recipients.push(recipient);
                self.say("250 ok").await?;
            }
            // Real ones quote the address, too.
            Some(RecipientFault::Refuse(code)) => self.say(&format!("{code} <{recipient}> refused by a rule")).await?,
            Some(RecipientFault::Stall) => return self.stall().await,
        }
        Ok(Next::Line)
    }

    async fn mail(&mut self) -> io::Result<Next> {
        self.say("354 go on").await?;
        let mut text = String::new();
        loop {
            let Some(line) = self.line().await? else { return Ok(Next::End) };
            if line == "." {
                break;
            }
            // A dot at the beginning of a line was doubled.
            text.push_str(line.strip_prefix('.').unwrap_or(&line));
            text.push('\n');
            if MAIL_BYTES_MAX < text.len() {
                self.say("552 too large").await?;
                return Ok(Next::End);
            }
        }
        let mail = Mail {
            number: 0,
            message_id: header(&text, "message-id"),
            sender: self.sender.take().unwrap_or_default(),
            recipients: std::mem::take(&mut self.recipients),
            text,
            at: Instant::now(),
            fault: None,
        };
        match self.shared.judge(mail) {
            None => self.say("250 taken").await?,
            Some(MailFault::Refuse(code)) => self.say(&format!("{code} refused by a rule")).await?,
            Some(MailFault::Drop | MailFault::DeliverAndDrop) => return Ok(Next::End),
            Some(MailFault::DeliverAndStall) => return self.stall().await,
        }
        Ok(Next::Line)
    }

    /// Until the client goes away, or the server is healed.
    async fn stall(&mut self) -> io::Result<Next> {
        let stalled = self.shared.stalled();
        stalled.run_until_cancelled(tokio::io::copy(&mut self.stream, &mut tokio::io::sink())).await.transpose()?;
        Ok(Next::End)
    }

    fn forget(&mut self) {
        self.sender = None;
        self.recipients.clear();
    }

    async fn say(&mut self, text: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(format!("{text}\r\n").as_bytes()).await
    }

    /// The next line without its end; `None` when the client has gone.
    async fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
        if line.pop() != Some(b'\n') {
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned()))
    }
}

/// What stands between the angle brackets.
fn address(line: &str) -> String {
    let inner = line.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inner.map(|(address, _)| address).unwrap_or_default().to_owned()
}

/// A header of a message, unfolded.
fn header(text: &str, name: &str) -> Option<String> {
    let mut found: Option<String> = None;
    for line in text.lines().take_while(|it| !it.is_empty()) {
        if line.starts_with([' ', '\t']) {
            if let Some(value) = &mut found {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if found.is_some() {
            break;
        } else {
            let named = line.split_once(':').filter(|(it, _)| it.eq_ignore_ascii_case(name));
            found = named.map(|(_, value)| value.trim().to_owned());
        }
    }
    found.map(|it| it.trim().to_owned())
}
