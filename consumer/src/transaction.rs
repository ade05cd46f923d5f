//! The transaction that a handler writes through.

use std::future::Future;
use std::ops::Deref;

use deadpool_postgres::ClientWrapper;
use sekali_producer::Contract;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

/// The open transaction of a batch: the inbox rows are in it, and the business change belongs into it.
///
/// Dereferences to [`tokio_postgres::Client`] for all of its statements. It can neither be committed nor rolled back by
/// a handler: the runtime seals it.
pub struct Transaction<'a> {
    client: &'a ClientWrapper,
    contract: Option<&'a Contract>,
}

impl<'a> Transaction<'a> {
    /// Wraps a connection on which `BEGIN` was sent.
    pub(crate) fn over(client: &'a ClientWrapper) -> Transaction<'a> {
        Transaction { client, contract: None }
    }

    /// The same for a handler: what it enqueues is held against the contract.
    pub(crate) fn under(contract: Option<&'a Contract>, client: &'a ClientWrapper) -> Transaction<'a> {
        Transaction { client, contract }
    }

    /// Prepares a statement once per connection.
    ///
    /// # Errors
    /// As [`tokio_postgres::Client::prepare`].
    pub async fn prepare_cached(&self, sql: &str) -> Result<Statement, tokio_postgres::Error> {
        self.client.prepare_cached(sql).await
    }

    /// Executes a statement that is prepared once per connection; the number of rows it changed.
    ///
    /// # Errors
    /// As [`tokio_postgres::Client::execute`].
    pub async fn execute_cached(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, tokio_postgres::Error> {
        let statement = self.client.prepare_cached(sql).await?;
        self.client.execute(&statement, values).await
    }

    /// Queries with a statement that is prepared once per connection.
    ///
    /// # Errors
    /// As [`tokio_postgres::Client::query`].
    pub async fn query_cached(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = self.client.prepare_cached(sql).await?;
        self.client.query(&statement, values).await
    }

    /// Runs `work` under a savepoint: when it fails, its statements are undone and the transaction goes on. Without one,
    /// the first failing statement aborts the whole transaction.
    ///
    /// # Errors
    /// The outer error is the savepoint's own; the inner one is that of `work`.
    pub async fn savepoint<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, tokio_postgres::Error> {
        self.client.batch_execute("SAVEPOINT sekali").await?;
        let result = work.await;
        let end = if result.is_ok() {
            "RELEASE SAVEPOINT sekali"
        } else {
            "ROLLBACK TO SAVEPOINT sekali; RELEASE SAVEPOINT sekali"
        };
        self.client.batch_execute(end).await?;
        Ok(result)
    }
}

impl Deref for Transaction<'_> {
    type Target = tokio_postgres::Client;

    fn deref(&self) -> &tokio_postgres::Client {
        self.client
    }
}

impl sekali_producer::InTransaction for Transaction<'_> {
    fn connection(&self) -> &(impl tokio_postgres::GenericClient + Sync) {
        &**self.client
    }

    fn contract(&self) -> Option<&Contract> {
        self.contract
    }
}
