//! A small HTTP server: answers until it is told to stop, and may break a connection instead.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Serves until the other half of `stopped` is dropped; then every connection is closed. An answer that is
/// an error closes its connection without a word.
pub(crate) async fn serve<A, F>(listener: TcpListener, mut stopped: oneshot::Receiver<()>, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = anyhow::Result<Response<Full<Bytes>>>> + Send,
{
    // Dropped at the end of this function, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
            // Nothing is ever sent: the answer comes when the other half is dropped.
            _ = &mut stopped => return,
        };
        let answer = service_fn(answer.clone());
        connections.spawn(async move {
            // A connection that breaks is its client's business.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
        while connections.try_join_next().is_some() {}
    }
}
