//! What is written about a mail.

use sekali_consumer::deadpool_postgres::Pool;
use sekali_consumer::schemas::events::EmailRequested;
use sekali_consumer::tokio_postgres::types::Type;
use sekali_consumer::{Failure, Transaction};
use uuid::Uuid;

/// A mail that was sent stays so. An attempt after the first keeps the `Message-ID` of the first, also when the domain
/// of the sender was changed in between.
const BEGIN: &str = "INSERT INTO public.email_delivery AS row \
     (key, email_type, user_id, period, message_id, status, attempts) VALUES ($1, $2, $3, $4, $5, 'sending', 1) \
     ON CONFLICT (key) DO UPDATE SET status = 'sending', attempts = row.attempts + 1, updated_at = now() \
     WHERE row.status <> 'sent' \
     RETURNING message_id";

const REFUSED: &str = "UPDATE public.email_delivery SET status = 'failed', updated_at = now() \
     WHERE key = $1 AND status = 'sending'";

/// Inserts where somebody has deleted the note: what was sent is written in any case.
const SENT: &str = "INSERT INTO public.email_delivery (key, email_type, user_id, period, message_id, status, attempts) \
     VALUES ($1, $2, $3, $4, $5, 'sent', 1) ON CONFLICT (key) DO UPDATE SET status = 'sent', updated_at = now()";

/// Notes of attempts, over connections of their own: no transaction is open while a mail is sent.
pub(super) struct Deliveries {
    pool: Pool,
}

impl Deliveries {
    pub(super) fn new(pool: Pool) -> Deliveries {
        Deliveries { pool }
    }

    /// Notes that an attempt begins. The `Message-ID` to send under, or nothing when the mail was sent before.
    pub(super) async fn begin(
        &self,
        key: Uuid,
        event: &EmailRequested,
        message_id: &str,
    ) -> Result<Option<String>, Failure> {
        let client = self.pool.get().await?;
        let values = [
            (&key as &(dyn tokio_postgres::types::ToSql + Sync), Type::UUID),
            (&event.email_type, Type::TEXT),
            (&event.user_id, Type::TEXT),
            (&event.period, Type::TEXT),
            (&message_id, Type::TEXT),
        ];
        let row = client.query_typed_opt(BEGIN, &values).await?;
        Ok(row.map(|it| it.get(0)))
    }

    /// Notes that the mail server has refused. What counts is the decision on the message: without a database that
    /// waits, too, and the note stays behind.
    pub(super) async fn refused(&self, key: Uuid) {
        let noted = async {
            let client = self.pool.get().await?;
            client.query_typed_opt(REFUSED, &[(&key, Type::UUID)]).await?;
            Ok::<(), Failure>(())
        };
        if noted.await.is_err() {
            tracing::debug!("a refused mail was not noted");
        }
    }
}

/// Writes that a mail was sent, in the transaction that decides its message.
pub(super) async fn sent(
    key: Uuid,
    event: &EmailRequested,
    message_id: &str,
    tx: &Transaction<'_>,
) -> Result<(), Failure> {
    tx.execute_cached(SENT, &[&key, &event.email_type, &event.user_id, &event.period, &message_id]).await?;
    Ok(())
}
