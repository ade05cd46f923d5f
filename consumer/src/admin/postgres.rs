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
            "log in to postgresql: the password is wrong; check postgres.password and postgres.url"
        }
        Some(state) if *state == SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            "log in to postgresql: the user does not exist or may not connect; check postgres.url and pg_hba.conf"
        }
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
        None => "reach postgresql: check postgres.url, that the server runs, and the network",
    };
    Error::new(ErrorKind::Postgres, doing).because(cause)
}
