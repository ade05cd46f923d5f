use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::*;

struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(server: &MailServer) -> Client {
        let mut client = Client(BufReader::new(TcpStream::connect(server.address()).await.unwrap()));
        assert_eq!(client.answer().await.as_deref(), Some("220"));
        client
    }

    /// Code of the next answer; `None` at the end of the connection.
    async fn answer(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).await.unwrap_or(0) == 0 {
                return None;
            }
            if line.as_bytes().get(3) == Some(&b' ') {
                return Some(line[..3].to_owned());
            }
        }
    }

    async fn say(&mut self, line: &str) -> Option<String> {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
        self.answer().await
    }

    async fn send(&mut self, id: &str, recipient: &str) -> Option<String> {
        assert_eq!(self.say("EHLO me").await.as_deref(), Some("250"));
        assert_eq!(self.say("MAIL FROM:<a@example.org>").await.as_deref(), Some("250"));
        let taken = self.say(&format!("RCPT TO:<{recipient}>")).await;
        if taken.as_deref() != Some("250") {
            return taken;
        }
        assert_eq!(self.say("DATA").await.as_deref(), Some("354"));
        self.say(&format!("Subject: x\r\nmessage-id:\r\n <{id}>\r\n\r\n..dot\r\nbody\r\n.")).await
    }
}

#[tokio::test]
async fn what_is_sent_is_kept() {
    let server = MailServer::start().await.unwrap();
    let mut client = Client::connect(&server).await;
    assert_eq!(client.say("DATA").await.as_deref(), Some("503"));
    assert_eq!(client.send("1@x", "b@example.org").await.as_deref(), Some("250"));
    assert_eq!(client.send("2@x", "c@example.org").await.as_deref(), Some("250"), "on the same connection");
    assert_eq!(client.say("QUIT").await.as_deref(), Some("221"));
    let mails = server.delivered();
    assert_eq!((mails.len(), server.connections()), (2, 1));
    assert_eq!(mails[0].message_id.as_deref(), Some("<1@x>"));
    assert_eq!((mails[0].sender.as_str(), mails[0].number), ("a@example.org", 1));
    assert_eq!(mails[1].recipients, ["c@example.org"]);
    assert!(mails[0].text.ends_with("\n\n.dot\nbody\n"), "{:?}", mails[0].text);
}

#[tokio::test]
async fn rules_say_what_goes_wrong() {
    let server = MailServer::start().await.unwrap();
    server.on_recipient(|it| it.starts_with("no").then_some(RecipientFault::Refuse(550)));
    server.on_mail(|it| match it.number {
        2 => Some(MailFault::Refuse(451)),
        3 => Some(MailFault::DeliverAndDrop),
        4 => Some(MailFault::Drop),
        5 => Some(MailFault::DeliverAndStall),
        _ => None,
    });
    let mut client = Client::connect(&server).await;
    assert_eq!(client.send("0@x", "no@example.org").await.as_deref(), Some("550"));
    assert_eq!(client.send("1@x", "b@example.org").await.as_deref(), Some("250"));
    assert_eq!(client.send("2@x", "b@example.org").await.as_deref(), Some("451"));
    assert_eq!(client.send("3@x", "b@example.org").await, None);
    assert_eq!(Client::connect(&server).await.send("4@x", "b@example.org").await, None);
    let mut stalled = Client::connect(&server).await;
    let silent = timeout(Duration::from_millis(100), stalled.send("5@x", "b@example.org")).await;
    assert!(silent.is_err());
    let ids: Vec<_> = server.delivered().into_iter().filter_map(|it| it.message_id).collect();
    assert_eq!(ids, ["<1@x>", "<3@x>", "<5@x>"]);
    server.heal();
    assert_eq!(stalled.answer().await, None);
    assert_eq!(Client::connect(&server).await.send("6@x", "no@example.org").await.as_deref(), Some("250"));
}
