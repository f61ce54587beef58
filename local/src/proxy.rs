//! What the proxies in front of DynamoDB, and other small servers, share: listening, and passing requests on.

use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HOST, HeaderMap};
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::future::poll_fn;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

pub(crate) type Answer = Response<Full<Bytes>>;

/// What a server does with a request. An error resets the connection, without an answer.
pub(crate) trait Handle: Send + Sync + 'static {
    fn handle(&self, request: Request<Bytes>) -> impl Future<Output = anyhow::Result<Answer>> + Send;
}

/// A server on a loopback port, which serves from when it is made until it is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) endpoint: String,
    /// Dropped together with this value, which is what stops the proxy and closes its connections.
    _stop: oneshot::Sender<()>,
}

/// Begins to serve on a port that the system chooses.
pub(crate) async fn serve(handler: Arc<impl Handle>) -> anyhow::Result<Serving> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("no loopback port could be had")?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(accept(listener, handler, stopped));
    Ok(Serving { endpoint, _stop: stop })
}

async fn accept(listener: TcpListener, handler: Arc<impl Handle>, mut stopped: oneshot::Receiver<()>) {
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
        connections.spawn(connection(stream, Arc::clone(&handler)));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, handler: Arc<impl Handle>) {
    let answer = service_fn(|request: Request<Incoming>| {
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            handler.handle(Request::from_parts(head, body.collect().await?.to_bytes())).await
        })
    });
    // Small answers at once. A connection that breaks is its client's business.
    let _ = stream.set_nodelay(true);
    let mut serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    if poll_fn(|context| serving.poll_without_shutdown(context)).await.is_err() {
        // Closed like this, it is reset.
        let _ = serving.into_parts().io.into_inner().set_zero_linger();
    }
}

/// The DynamoDB behind a proxy.
pub(crate) struct Upstream {
    uri: Uri,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Upstream {
    pub(crate) fn new(endpoint: &str) -> anyhow::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let uri = endpoint.parse().with_context(|| format!("{endpoint} is no endpoint"))?;
        Ok(Self { uri, client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    pub(crate) async fn forward(&self, headers: HeaderMap, body: Bytes) -> anyhow::Result<Answer> {
        let mut request = Request::post(self.uri.clone()).body(Full::new(body))?;
        *request.headers_mut() = headers;
        // The client writes the one that fits.
        request.headers_mut().remove(HOST);
        let (head, body) = self.client.request(request).await?.into_parts();
        Ok(Answer::from_parts(head, Full::new(body.collect().await?.to_bytes())))
    }
}
