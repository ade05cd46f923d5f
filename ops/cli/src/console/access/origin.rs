//! Requests that another site makes a browser send.

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Uri};

use crate::console::answer::{Answer, Refusal};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses what changes something and comes from another site; and where nobody logs in, every request under a name
/// that is not this machine's, which a page elsewhere may have made to point here.
pub(super) fn check(request: &Request, url: Option<&str>, takes_login: bool) -> Answer<()> {
    let headers = request.headers();
    let ours = url.and_then(authority);
    let host = text(headers, &HOST);
    if !takes_login && !host.is_some_and(|it| is_loopback(it) || ours.as_deref() == Some(it)) {
        return Err(Refusal::forbidden("without a login, the console answers to 127.0.0.1 and localhost alone"));
    }
    if request.method().is_safe() {
        return Ok(());
    }
    let fits = match text(headers, &ORIGIN) {
        Some(origin) => {
            let origin = authority(origin);
            origin.is_some() && (origin.as_deref() == host || origin == ours)
        }
        None if headers.contains_key(ORIGIN) => false,
        None => text(headers, &FETCH_SITE).is_none_or(|it| it == "same-origin" || it == "none"),
    };
    let refused = "this form comes from another site; behind a proxy, set console.url to the address that browsers see";
    if fits { Ok(()) } else { Err(Refusal::forbidden(refused)) }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Host and port of an origin; none of "null".
fn authority(origin: &str) -> Option<String> {
    let uri = origin.parse::<Uri>().ok()?;
    uri.scheme()?;
    Some(uri.authority()?.as_str().to_owned())
}

fn is_loopback(host: &str) -> bool {
    let name = host.strip_prefix('[').and_then(|it| it.split_once(']')).map(|it| it.0);
    let name = name.unwrap_or_else(|| host.rsplit_once(':').map_or(host, |it| it.0));
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Method;

    use super::*;

    fn allowed(method: Method, headers: &[(&str, &str)], url: Option<&str>, takes_login: bool) -> bool {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(Body::empty()).unwrap(), url, takes_login).is_ok()
    }

    #[test]
    fn forms_of_other_sites_are_refused() {
        let host = ("host", "127.0.0.1:8780");
        let ours = Some("https://sekali.example.com");
        for (headers, url, expected) in [
            (vec![host], None, true),
            (vec![host, ("origin", "http://127.0.0.1:8780")], None, true),
            (vec![host, ("origin", "http://127.0.0.1:9999")], None, false),
            (vec![host, ("origin", "https://evil.example")], None, false),
            (vec![host, ("origin", "null")], None, false),
            (vec![host, ("origin", "")], None, false),
            (vec![host, ("sec-fetch-site", "cross-site")], None, false),
            (vec![host, ("sec-fetch-site", "same-site")], None, false),
            (vec![host, ("sec-fetch-site", "same-origin")], None, true),
            (vec![host, ("origin", "https://sekali.example.com")], ours, true),
            (vec![host, ("origin", "https://sekali.example.com.evil.example")], ours, false),
        ] {
            assert_eq!(allowed(Method::POST, &headers, url, true), expected, "{headers:?}");
        }
        assert!(allowed(Method::GET, &[host, ("origin", "https://evil.example")], None, true));
    }

    #[test]
    fn a_name_that_was_made_to_point_here_is_refused_where_nobody_logs_in() {
        for (host, expected) in [
            ("localhost:8780", true),
            ("127.0.0.1:8780", true),
            ("[::1]:8780", true),
            ("evil.example:8780", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            assert_eq!(allowed(Method::GET, &[("host", host)], None, false), expected, "{host}");
        }
        assert!(!allowed(Method::GET, &[], None, false));
        assert!(allowed(Method::GET, &[("host", "evil.example")], None, true), "there the login decides");
    }
}
