//! Answers that last: a watch goes on for as long as its credential is good, and not longer.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, future, stream};
use http::HeaderMap;
use tokio::sync::oneshot;

use super::{Identify, UNAUTHENTICATED};
use crate::errors::Refusal;

/// How often the credential behind an open answer is looked at again. With the time that the row of an API key is believed
/// it stays under the five seconds within which a key that was taken back is good for nothing.
const LOOK_AGAIN_EVERY: Duration = Duration::from_millis(2_500);

/// The same answer, ended with `unauthenticated` in the form that `told` gives it, once its credential is no longer good.
pub(crate) fn while_good<T: Send + 'static, E: Send + 'static>(
    answer: BoxStream<'static, Result<T, E>>,
    identity: Arc<dyn Identify>,
    headers: HeaderMap,
    told: fn(Refusal) -> E,
) -> BoxStream<'static, Result<T, E>> {
    if !identity.credentials_end() {
        return answer;
    }
    let (last_word, heard) = oneshot::channel();
    let over = async move {
        // Whoever reads may have gone; then nobody needs the error.
        let _ = last_word.send(no_longer(identity.as_ref(), &headers).await);
    };
    let end = stream::once(heard).filter_map(|refusal| future::ready(refusal.ok()));
    answer.take_until(Box::pin(over)).chain(end.map(move |refusal| Err(told(refusal)))).boxed()
}

// A store that cannot be asked says nothing about the credential: the answer goes on.
async fn no_longer(identity: &dyn Identify, headers: &HeaderMap) -> Refusal {
    loop {
        tokio::time::sleep(LOOK_AGAIN_EVERY).await;
        match identity.identify(headers).await {
            Err(refusal) if refusal.code() == UNAUTHENTICATED => return refusal,
            Ok(_) | Err(_) => {}
        }
    }
}
