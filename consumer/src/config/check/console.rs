//! A console that others can reach, or that changes something, knows who comes in.

use axum::http::{HeaderName, Uri};
use secrecy::ExposeSecret;

use super::Checks;

/// What can be guessed is no login.
const TOKEN_BYTES_MIN: usize = 16;
const LOGIN: &str = "console.token_file, or console.user_header with console.trusted_proxies";

impl Checks<'_> {
    pub(super) fn console(&mut self) {
        let it = &self.config.console;
        let login = it.token.is_some() || it.token_file.is_some() || it.user_header.is_some();
        if !login && !it.listen.ip().is_loopback() {
            self.problem("console", "listen", format!("is reachable by others, and takes a login: set {LOGIN}"));
        }
        if !login && !it.read_only {
            self.problem("console", "read_only", format!("= false takes a login, for the audit: set {LOGIN}"));
        }
        if it.token.is_some() && it.token_file.is_some() {
            self.problem("console", "token", "and console.token_file are both set: keep one of them");
        }
        if it.token.as_ref().is_some_and(|it| it.secret().expose_secret().len() < TOKEN_BYTES_MIN) {
            self.problem(
                "console",
                "token",
                format!("must have at least {TOKEN_BYTES_MIN} bytes: openssl rand -hex 32"),
            );
        }
        match &it.user_header {
            Some(_) if it.trusted_proxies.is_empty() => {
                let what = "is believed of console.trusted_proxies alone: list the addresses of the proxy";
                self.problem("console", "user_header", what);
            }
            Some(name) if HeaderName::from_bytes(name.as_bytes()).is_err() => {
                self.problem("console", "user_header", "is no name of a header");
            }
            None if !it.trusted_proxies.is_empty() => {
                let what = "are trusted with nothing: set console.user_header to the header that names who comes in";
                self.problem("console", "trusted_proxies", what);
            }
            _ => {}
        }
        if it.url.as_deref().is_some_and(|it| !is_origin(it)) {
            self.problem(
                "console",
                "url",
                "must be scheme, host and port alone, such as \"https://sekali.example.com\"",
            );
        }
        if it.mask.iter().any(|it| !it.starts_with('/')) {
            self.problem("console", "mask", "must be JSON pointers, which begin with a slash: \"/customer/email\"");
        }
    }
}

fn is_origin(url: &str) -> bool {
    let uri = url.parse::<Uri>();
    let scheme = url.starts_with("https://") || url.starts_with("http://");
    scheme
        && !url.ends_with('/')
        && uri.is_ok_and(|it| it.authority().is_some() && it.path() == "/" && it.query().is_none())
}
