//! Something between two invocations drops idle connections silently, such as a proxy or a NAT gateway: nobody answers on them
//! any more. Real time and real sockets, because it is about the connections that the SDK's HTTP client keeps.

use crate::LEASE;
use futures_util::future::join_all;
use lambda_lock::LockClient;
use lambda_lock_local::{LocalDynamoDb, client};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What stands between the client and DynamoDB.
#[derive(Debug, Default)]
struct Between {
    /// How often all idle connections were dropped.
    drops: AtomicUsize,
    connections: AtomicUsize,
    /// How many requests were sent on a dropped connection.
    swallowed: AtomicUsize,
}

impl Between {
    async fn in_front_of(dynamodb: &LocalDynamoDb) -> (Arc<Self>, String) {
        let (between, upstream) = (Arc::new(Self::default()), dynamodb.endpoint().replace("http://", ""));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let all = Arc::clone(&between);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                all.connections.fetch_add(1, Ordering::SeqCst);
                let upstream = TcpStream::connect(&upstream).await.unwrap();
                tokio::spawn(Arc::clone(&all).carry(client, upstream));
            }
        });
        (between, endpoint)
    }

    async fn carry(self: Arc<Self>, client: TcpStream, upstream: TcpStream) {
        let born = self.drops.load(Ordering::SeqCst);
        let ((mut from_client, mut to_client), (mut from_upstream, mut to_upstream)) =
            (client.into_split(), upstream.into_split());
        tokio::spawn(async move { tokio::io::copy(&mut from_upstream, &mut to_client).await });
        let mut bytes = [0; 16 * 1024];
        while let Ok(read @ 1..) = from_client.read(&mut bytes).await {
            if self.drops.load(Ordering::SeqCst) == born {
                to_upstream.write_all(&bytes[..read]).await.unwrap();
            } else {
                self.swallowed.fetch_add(1, Ordering::SeqCst);
                // It accepts whatever comes, until the client closes the connection.
                while let Ok(1..) = from_client.read(&mut bytes).await {}
            }
        }
    }
}

#[tokio::test]
async fn idle_connections_that_are_dropped_silently_cost_one_timeout() {
    for idle in [1, 5] {
        let dynamodb = LocalDynamoDb::in_memory().await.unwrap();
        let (between, endpoint) = Between::in_front_of(&dynamodb).await;
        let locks = LockClient::builder(client(&endpoint), "locks").build().unwrap();
        locks.operator().create_table().await.unwrap();
        let mut lock = locks.acquire("k").lease(LEASE).try_once().await.unwrap().granted().unwrap();
        join_all((0..idle).map(|_| locks.operator().peek("k"))).await;
        assert!(between.connections.load(Ordering::SeqCst) >= idle, "{between:?}");

        between.drops.fetch_add(1, Ordering::SeqCst);

        lock.checkpoint().await.unwrap();
        lock.release().await.unwrap();
        assert_eq!(between.swallowed.load(Ordering::SeqCst), 1, "{idle}: {between:?}");
    }
}
