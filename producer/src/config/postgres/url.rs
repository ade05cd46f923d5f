//! What a connection URL says about TLS. The client library knows three of the words, and none of the files.

use secrecy::{ExposeSecret, SecretString};
use tokio_postgres::config::Host;

use crate::{Error, ErrorKind};

/// How a connection is protected, by libpq's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SslMode {
    /// Never encrypted.
    Disable,
    /// Encrypted when the server offers it; nobody is asked who he is.
    Prefer,
    /// Encrypted or not at all; nobody is asked who he is.
    Require,
    /// The certificate comes from a known authority.
    VerifyCa,
    /// And it was issued for the host of the URL.
    VerifyFull,
}

/// Words of libpq that name a file or a secret, and what to use here.
const REPLACED: [(&str, &str); 4] = [
    ("sslrootcert", "use postgres.ssl_root_cert_file"),
    ("sslcert", "use postgres.ssl_cert_file"),
    ("sslkey", "use postgres.ssl_key_file"),
    ("sslpassword", "give postgres.ssl_key_file without a password"),
];

/// Reads a URL, or libpq's keywords. The text of errors never shows it.
pub(super) fn parse(url: &SecretString) -> Result<(tokio_postgres::Config, SslMode), Error> {
    let refused = |doing: String| Error::new(ErrorKind::Config, doing);
    let (rest, parameters) = split(url.expose_secret());
    for (key, remedy) in REPLACED {
        if parameters.iter().any(|it| it.0 == key) {
            return Err(refused(format!("use postgres.url: {key} is not read from it; {remedy}")));
        }
    }
    // The parser's own text may quote a part of the password.
    let mut config: tokio_postgres::Config = rest.parse().map_err(|_| {
        refused(
            "read postgres.url: not a connection url; expected postgres://user@host:5432/database, with special \
             characters in percent form"
                .to_owned(),
        )
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(refused("use postgres.url: it names no host".to_owned()));
    }
    let mode = match parameters.iter().rfind(|it| it.0 == "sslmode") {
        Some((_, word)) => mode(word).ok_or_else(|| {
            refused("use postgres.url: sslmode must be disable, prefer, require, verify-ca or verify-full".to_owned())
        })?,
        // A key in percent form is seen by the client library alone.
        None => match config.get_ssl_mode() {
            tokio_postgres::config::SslMode::Disable => SslMode::Disable,
            tokio_postgres::config::SslMode::Require => SslMode::Require,
            _ => SslMode::Prefer,
        },
    };
    // As for libpq: what never leaves the machine is not encrypted, whatever the mode.
    let is_local = config.get_hosts().iter().all(|it| !matches!(it, Host::Tcp(_))) && config.get_hostaddrs().is_empty();
    config.ssl_mode(match mode {
        _ if is_local => tokio_postgres::config::SslMode::Disable,
        SslMode::Disable => tokio_postgres::config::SslMode::Disable,
        SslMode::Prefer => tokio_postgres::config::SslMode::Prefer,
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => tokio_postgres::config::SslMode::Require,
    });
    Ok((config, mode))
}

fn mode(word: &str) -> Option<SslMode> {
    Some(match word {
        "disable" => SslMode::Disable,
        // Without TLS first and with it when that is refused: nearly the same, and never safer.
        "prefer" | "allow" => SslMode::Prefer,
        "require" => SslMode::Require,
        "verify-ca" => SslMode::VerifyCa,
        "verify-full" => SslMode::VerifyFull,
        _ => return None,
    })
}

/// The text without `sslmode` and its like, and these.
fn split(text: &str) -> (String, Vec<(String, String)>) {
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        split_url(text)
    } else {
        split_words(text)
    }
}

fn is_ours(key: &str) -> bool {
    key == "sslmode" || REPLACED.iter().any(|it| it.0 == key)
}

fn split_url(text: &str) -> (String, Vec<(String, String)>) {
    // As the parser: everything up to the first @ is the login, whatever is in it.
    let login = text.find('@').unwrap_or_default();
    let Some(at) = text[login..].find('?').map(|it| login + it) else { return (text.to_owned(), Vec::new()) };
    let pairs = text[at + 1..].split('&').map(|it| (it, it.split_once('=').unwrap_or((it, ""))));
    let (ours, others): (Vec<_>, Vec<_>) = pairs.partition(|(_, (key, _))| is_ours(key));
    let others: Vec<&str> = others.into_iter().map(|it| it.0).collect();
    let ours = ours.into_iter().map(|(_, (key, value))| (key.to_owned(), value.to_owned())).collect();
    let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
    (format!("{}{query}", &text[..at]), ours)
}

/// Keywords: `key = value` or `key='it''s \'quoted\''`. What is malformed is left for the parser to refuse.
fn split_words(text: &str) -> (String, Vec<(String, String)>) {
    let (mut others, mut ours) = (String::new(), Vec::new());
    let mut rest = text.trim_start();
    while let Some((key, after)) = rest.split_once('=') {
        let after = after.trim_start();
        let Some((value, length)) = word(after) else { break };
        if is_ours(key.trim()) {
            ours.push((key.trim().to_owned(), value));
        } else {
            others.push_str(&format!("{key}={} ", &after[..length]));
        }
        rest = after[length..].trim_start();
    }
    others.push_str(rest);
    (others, ours)
}

/// The value at the beginning of a text, and how long it is there.
fn word(text: &str) -> Option<(String, usize)> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(usize::from(quoted)) {
        match letter {
            _ if escaped => {
                value.push(letter);
                escaped = false;
            }
            '\\' => escaped = true,
            '\'' if quoted => return Some((value, at + 1)),
            _ if !quoted && letter.is_whitespace() => return Some((value, at)),
            _ => value.push(letter),
        }
    }
    (!quoted).then_some((value, text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<(tokio_postgres::Config, SslMode), String> {
        parse(&SecretString::from(url)).map_err(|it| it.chain())
    }

    #[test]
    fn every_word_of_libpq_is_understood_in_both_forms() {
        for (word, expected) in [
            ("disable", SslMode::Disable),
            ("allow", SslMode::Prefer),
            ("prefer", SslMode::Prefer),
            ("require", SslMode::Require),
            ("verify-ca", SslMode::VerifyCa),
            ("verify-full", SslMode::VerifyFull),
        ] {
            for url in [
                format!("postgres://u:p?w@h/d?sslmode={word}"),
                format!("postgresql://h/d?application_name=x&sslmode={word}&target_session_attrs=read-write"),
                format!("host=h sslmode={word} user=u"),
                format!("host = h sslmode = '{word}'"),
            ] {
                let (config, mode) = read(&url).unwrap();
                assert_eq!(mode, expected, "{url}");
                assert_eq!(config.get_hosts().len(), 1, "{url}");
            }
        }
        assert_eq!(read("postgres://u@h/d").unwrap().1, SslMode::Prefer);
        let (config, mode) = read("postgres://u:sslmode=disable@h/d?application_name=x&sslmode=verify-full").unwrap();
        assert_eq!((config.get_application_name(), mode), (Some("x"), SslMode::VerifyFull));
        assert_eq!(config.get_password(), Some(&b"sslmode=disable"[..]));
        let (config, mode) = read("host=h password='a sslmode=disable \\'b' sslmode=require").unwrap();
        assert_eq!((config.get_password(), mode), (Some(&b"a sslmode=disable 'b"[..]), SslMode::Require));
    }

    #[test]
    fn a_key_in_percent_form_does_not_weaken() {
        assert_eq!(read("postgres://u@h/d?sslmod%65=require").unwrap().1, SslMode::Require);
        // The client library does not know the word.
        assert!(read("postgres://u@h/d?sslmod%65=verify-full").is_err());
    }

    #[test]
    fn a_socket_of_this_machine_is_not_encrypted() {
        for (url, expected) in [
            ("host=/run/postgresql sslmode=verify-full", tokio_postgres::config::SslMode::Disable),
            ("host=/run/postgresql,h sslmode=verify-full", tokio_postgres::config::SslMode::Require),
        ] {
            assert_eq!(read(url).unwrap().0.get_ssl_mode(), expected, "{url}");
        }
    }

    #[test]
    fn files_belong_into_keys_of_their_own() {
        for (url, key) in [
            ("postgres://u:hunter2@h/d?sslmode=verify-full&sslrootcert=/hunter2", "postgres.ssl_root_cert_file"),
            ("host=h sslcert=/hunter2", "postgres.ssl_cert_file"),
            ("host=h sslkey=/hunter2", "postgres.ssl_key_file"),
            ("host=h sslpassword=hunter2", "without a password"),
            ("host=h sslmode=hunter2", "sslmode must be disable, prefer"),
        ] {
            let said = read(url).unwrap_err();
            assert!(said.contains(key) && !said.contains("hunter2"), "{said}");
        }
    }
}
