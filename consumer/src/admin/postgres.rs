//! The database as an operator sees it.

use deadpool_postgres::{Object, Pool, PoolError};
use sekali_producer::{Error, ErrorKind, SqlError};
use tokio_postgres::error::SqlState;

/// A connection, or a sentence that says why there is none.
pub(crate) async fn connect(pool: &Pool) -> Result<Object, Error> {
    pool.get().await.map_err(|error| explain(&error))
}

fn explain(error: &PoolError) -> Error {
    let PoolError::Backend(error) = error else {
        let doing = "reach postgresql: nothing answers in time; check postgres.url and the network, or raise \
                     postgres.connect_timeout";
        return Error::new(ErrorKind::Postgres, doing);
    };
    let cause = SqlError::of(error);
    let doing = match cause.state() {
        Some(state) if *state == SqlState::INVALID_PASSWORD => {
            "log in to postgresql: the password is wrong, or postgres.ssl_cert_file names another user; check \
             postgres.password and postgres.url"
        }
        Some(state) if *state == SqlState::INVALID_AUTHORIZATION_SPECIFICATION => unauthorized(error),
        Some(state) if *state == SqlState::INVALID_CATALOG_NAME => {
            "open the database: it does not exist; create it, or correct its name in postgres.url"
        }
        Some(state) if *state == SqlState::INSUFFICIENT_PRIVILEGE => {
            "open the database: the user may not connect; grant it CONNECT"
        }
        Some(state) if *state == SqlState::TOO_MANY_CONNECTIONS => {
            "connect to postgresql: it has no connection left; raise max_connections or lower \
             postgres.pool_max_connections of all processes"
        }
        Some(_) => "connect to postgresql",
        None if cause.to_string().contains("password missing") => {
            "log in to postgresql: it asks for a password; set postgres.password or postgres.password_file"
        }
        None if cause.to_string().contains("TLS") => unprotected(&cause.to_string()),
        None => "reach postgresql: check postgres.url, that the server runs, and the network",
    };
    Error::new(ErrorKind::Postgres, doing).because(cause)
}

/// The server has one code for several things; its words, which name user and address, are only looked at.
fn unauthorized(error: &tokio_postgres::Error) -> &'static str {
    let said = error.as_db_error().map_or("", |it| it.message());
    if said.contains("certificate") {
        "log in to postgresql: the server wants a certificate that fits the user; set postgres.ssl_cert_file and \
         postgres.ssl_key_file to one whose common name is the user of postgres.url"
    } else if said.contains("no encryption") || said.contains("SSL off") {
        "log in to postgresql: the server takes encrypted connections only, or not this user from here; add \
         sslmode=verify-full to postgres.url, and check pg_hba.conf"
    } else {
        "log in to postgresql: the user does not exist or may not connect; check postgres.url and pg_hba.conf"
    }
}

fn unprotected(said: &str) -> &'static str {
    if said.contains("does not support TLS") {
        "encrypt the connection to postgresql: the server does not offer it; set ssl = on there, or sslmode=disable in \
         postgres.url where the network is trusted"
    } else if said.contains("not valid for") {
        "trust postgresql: its certificate was issued for another name than the host of postgres.url; use the name of the \
         certificate, or sslmode=verify-ca where one authority signs for this server alone"
    } else if said.contains("invalid peer certificate") {
        "trust postgresql: its certificate does not come from an authority that is known here, or is out of date; set \
         postgres.ssl_root_cert_file to the authority's certificate"
    } else {
        "encrypt the connection to postgresql: check sslmode in postgres.url, and postgres.ssl_cert_file if the server \
         asks for a certificate"
    }
}
