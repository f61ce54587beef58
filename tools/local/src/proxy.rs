//! Shared code of the proxies and other small servers: listening, and forwarding requests.

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

/// How a server handles a request. An error resets the connection without a response.
pub(crate) trait Handle: Send + Sync + 'static {
    fn handle(&self, request: Request<Bytes>) -> impl Future<Output = anyhow::Result<Answer>> + Send;
}

/// A server on a loopback port. It serves until it is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) endpoint: String,
    /// Dropping it stops the server and closes its connections.
    _stop: oneshot::Sender<()>,
}

/// Starts a server on a port that the system chooses.
pub(crate) async fn serve(handler: Arc<impl Handle>) -> anyhow::Result<Serving> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("there is no free loopback port")?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(accept(listener, handler, stopped));
    Ok(Serving { endpoint, _stop: stop })
}

async fn accept(listener: TcpListener, handler: Arc<impl Handle>, mut stopped: oneshot::Receiver<()>) {
    // All connections are dropped with this at the end of the function.
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
            // Nothing is sent. This ends when the other half is dropped.
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
    // Sends small responses at once. A broken connection is left to its client.
    let _ = stream.set_nodelay(true);
    let mut serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    if poll_fn(|context| serving.poll_without_shutdown(context)).await.is_err() {
        // With this setting, closing the connection resets it.
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
        let uri = endpoint.parse().with_context(|| format!("{endpoint} is not a valid endpoint"))?;
        Ok(Self { uri, client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    pub(crate) async fn forward(&self, headers: HeaderMap, body: Bytes) -> anyhow::Result<Answer> {
        let mut request = Request::post(self.uri.clone()).body(Full::new(body))?;
        *request.headers_mut() = headers;
        // The client sets the right host.
        request.headers_mut().remove(HOST);
        let (head, body) = self.client.request(request).await?.into_parts();
        Ok(Answer::from_parts(head, Full::new(body.collect().await?.to_bytes())))
    }
}
