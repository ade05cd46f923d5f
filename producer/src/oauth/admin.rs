//! Tokens for administration clients.

use std::ffi::CString;
use std::ptr;

use rdkafka::admin::AdminClient;
use rdkafka::types::RDKafkaRespErr;

use crate::{Error, ErrorKind, KafkaCauses};

/// Room for the client's sentence about a token that it does not take.
const REASON_BYTES: usize = 512;

impl KafkaCauses {
    /// Hands a token to an administration client that logs in with one; does nothing for another. Call it before each
    /// request: nobody polls such a client, so that it cannot ask. Blocks for as long as the provider of tokens does.
    ///
    /// # Errors
    /// There is no token to be had, or the client does not take it.
    pub fn admin_login(&self, admin: &AdminClient<KafkaCauses>) -> Result<(), Error> {
        let Some(token) = self.token() else { return Ok(()) };
        let refused = |why: String| Error::new(ErrorKind::Kafka, "get a token for kafka").because(why);
        let token = token.map_err(|it| refused(it.to_string()))?;
        let texts = (CString::new(token.token), CString::new(token.principal_name));
        let (Ok(value), Ok(principal)) = texts else {
            return Err(refused("the token has a NUL character in it".to_owned()));
        };
        let mut reason = vec![0_u8; REASON_BYTES];
        // The one call of the client library that its Rust wrapper does not have, and without which an administration
        // client can never log in this way (rust-rdkafka#757).
        #[allow(unsafe_code)]
        // SAFETY: the client outlives the call, since it is borrowed; the texts end with NUL and are copied by the callee;
        // the buffer has the length that is named, and there are no extensions.
        let code = unsafe {
            rdkafka::bindings::rd_kafka_oauthbearer_set_token(
                admin.inner().native_ptr(),
                value.as_ptr(),
                token.lifetime_ms,
                principal.as_ptr(),
                ptr::null_mut(),
                0,
                reason.as_mut_ptr().cast(),
                reason.len(),
            )
        };
        if code == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Ok(());
        }
        let length = reason.iter().position(|it| *it == 0).unwrap_or(reason.len());
        Err(refused(String::from_utf8_lossy(&reason[..length]).into_owned()))
    }
}
