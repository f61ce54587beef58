//! Counts the requests and bytes between lock clients and DynamoDB. The clients may be written in
//! any language.

use crate::proxy::{self, Answer, Handle, Serving, Upstream};
use hyper::Request;
use hyper::body::{Body, Bytes};
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A proxy on a loopback port that counts requests and bytes.
///
/// It serves until it is dropped.
pub struct CountingProxy {
    counter: Arc<Counter>,
    serving: Serving,
}

/// The requests and bytes of some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of requests of each operation, such as `UpdateItem`. Retries count.
    pub requests: BTreeMap<String, u64>,
    /// The bytes of all requests: headers, as HTTP/1.1 writes them, and bodies.
    pub bytes_sent: u64,
    /// The bytes of all responses, counted in the same way.
    pub bytes_received: u64,
}

impl Counts {
    /// Returns the number of requests of all operations.
    pub fn total(&self) -> u64 {
        self.requests.values().sum()
    }
}

struct Counter {
    upstream: Upstream,
    counts: Mutex<Counts>,
}

impl CountingProxy {
    /// Starts a proxy in front of an endpoint such as `http://127.0.0.1:8000`.
    ///
    /// # Errors
    /// Returns an error if the endpoint is not valid, or if there is no free loopback port.
    pub async fn start(upstream: &str) -> anyhow::Result<Self> {
        let counter = Arc::new(Counter { upstream: Upstream::new(upstream)?, counts: Mutex::default() });
        let serving = proxy::serve(Arc::clone(&counter)).await?;
        Ok(Self { counter, serving })
    }

    /// The endpoint's URL.
    pub fn endpoint(&self) -> &str {
        &self.serving.endpoint
    }

    /// Returns the counts since the last call of this method.
    pub fn take(&self) -> Counts {
        std::mem::take(&mut self.counter.counts())
    }
}

impl fmt::Debug for CountingProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingProxy").field("endpoint", &self.serving.endpoint).finish_non_exhaustive()
    }
}

impl Counter {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle for Counter {
    async fn handle(&self, request: Request<Bytes>) -> anyhow::Result<Answer> {
        let (Parts { headers, .. }, body) = request.into_parts();
        // `DynamoDB_20120810.UpdateItem` is the version of the API and the operation.
        let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        {
            let mut counts = self.counts();
            *counts.requests.entry(operation).or_default() += 1;
            counts.bytes_sent += "POST / HTTP/1.1\r\n".len() as u64 + written(&headers) + body.len() as u64;
        }
        let answer = self.upstream.forward(headers, body).await?;
        let bytes = "HTTP/1.1 200 OK\r\n".len() as u64 + written(answer.headers());
        self.counts().bytes_received += bytes + answer.body().size_hint().lower();
        Ok(answer)
    }
}

/// Returns the size of `name: value` and a line end for each header, and of an empty line.
fn written(headers: &HeaderMap) -> u64 {
    let line = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        name.as_str().len() + ": \r\n".len() + value.len()
    };
    (headers.iter().map(line).sum::<usize>() + "\r\n".len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalDynamoDb, client};
    use std::time::Duration;

    #[tokio::test]
    async fn every_request_is_counted_once_with_its_bytes() {
        let dynamodb = LocalDynamoDb::in_memory().await.unwrap();
        let proxy = CountingProxy::start(dynamodb.endpoint()).await.unwrap();
        let locks = lambda_lock::LockClient::builder(client(proxy.endpoint()), "locks").build().unwrap();
        locks.operator().create_table().await.unwrap();
        proxy.take();
        let lock = locks.acquire("k").lease(Duration::from_secs(5)).try_once().await.unwrap().granted().unwrap();
        locks.operator().peek("k").await.unwrap();
        lock.release().await.unwrap();
        let counts = proxy.take();
        assert_eq!(counts.requests, BTreeMap::from([("UpdateItem".to_owned(), 2), ("GetItem".to_owned(), 1)]));
        assert_eq!(counts.total(), 3);
        // Each request has a table name and a signature, and each response has at least a checksum.
        assert!(counts.bytes_sent > 3 * 300 && counts.bytes_received > 3 * 50, "{counts:?}");
        assert_eq!(proxy.take(), Counts::default());
    }
}
