//! `wasi:http` for components, over connections that are kept alive as in an SDK. The implementation in wasmtime
//! connects again for each request.

use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error as _;
use std::sync::Arc;
use std::{fmt, io};
use tokio::time::timeout;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::p2::types::{HostFutureIncomingResponse, IncomingResponse, OutgoingRequestConfig};
use wasmtime_wasi_http::p2::{HttpResult, WasiHttpHooks, hyper_request_error};

type Body = http_body_util::combinators::UnsyncBoxBody<hyper::body::Bytes, Broken>;

/// Connections that are kept alive: plain HTTP, and TLS for `https`.
pub struct Connections(Client<HttpsConnector<HttpConnector>, Body>);

/// The roots that this machine trusts: its own, or those in the file of `SSL_CERT_FILE`. Without any roots, plain HTTP
/// still works and every TLS connection fails.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

impl Connections {
    pub fn trusting(roots: RootCertStore) -> anyhow::Result<Self> {
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        // Head and body are written separately. With Nagle's algorithm the body would wait 40 ms for the
        // acknowledgement of the head.
        connector.set_nodelay(true);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(connector);
        // The HTTP client must not repeat requests, because then the outcome of an attempt would be unknown. The lock
        // repeats requests itself.
        Ok(Self(Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build(connector)))
    }
}

impl WasiHttpHooks for Connections {
    fn send_request(
        &mut self,
        request: hyper::Request<HyperOutgoingBody>,
        config: OutgoingRequestConfig,
    ) -> HttpResult<HostFutureIncomingResponse> {
        let answer = self.0.request(request.map(|body| body.map_err(Broken).boxed_unsync()));
        let handle = wasmtime_wasi::runtime::spawn(async move {
            let Ok(answer) = timeout(config.first_byte_timeout, answer).await else {
                return Ok(Err(ErrorCode::ConnectionReadTimeout));
            };
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => return Ok(Err(no_answer(&error))),
            };
            let resp = answer.map(|body| body.map_err(hyper_request_error).boxed_unsync());
            let between_bytes_timeout = config.between_bytes_timeout;
            Ok(Ok(IncomingResponse { resp, worker: None, between_bytes_timeout }))
        });
        Ok(HostFutureIncomingResponse::pending(handle))
    }
}

/// Why no response came. TLS errors keep their text, because the user can fix them.
fn no_answer(error: &Error) -> ErrorCode {
    let mut source = error.source();
    while let Some(cause) = source {
        match cause.downcast_ref::<rustls::Error>() {
            Some(rustls::Error::InvalidCertificate(_)) => return ErrorCode::TlsCertificateError,
            Some(_) => return ErrorCode::TlsProtocolError,
            None => source = inside(cause),
        }
    }
    if error.is_connect() { ErrorCode::ConnectionRefused } else { ErrorCode::ConnectionTerminated }
}

/// The source of an error. The error inside an `io::Error` is not its `source()`, so it is read separately.
fn inside<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a (dyn std::error::Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

/// A request body that ended early, as an error type that hyper accepts.
#[derive(Debug)]
struct Broken(ErrorCode);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Broken {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::ServerConfig;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use std::convert::Infallible;
    use std::time::Duration;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use wasmtime_wasi::p2::Pollable;

    /// Starts a server with a self-signed certificate, and returns its port and the certificate.
    async fn server() -> (u16, CertificateDer<'static>) {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            while let Ok((stream, _)) = listener.accept().await {
                // A client that does not trust the certificate closes the connection.
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let service = service_fn(async |_| Ok::<_, Infallible>(hyper::Response::new("over TLS".to_owned())));
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            }
        });
        (port, cert.der().clone())
    }

    async fn asked(roots: RootCertStore, scheme: &str, port: u16) -> Result<String, ErrorCode> {
        let body = http_body_util::Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync();
        let request = hyper::Request::get(format!("{scheme}://localhost:{port}/")).body(body).unwrap();
        let patience = Duration::from_secs(10);
        let config = OutgoingRequestConfig {
            use_tls: scheme == "https",
            connect_timeout: patience,
            first_byte_timeout: patience,
            between_bytes_timeout: patience,
        };
        let mut answer = Connections::trusting(roots).unwrap().send_request(request, config).unwrap();
        answer.ready().await;
        let answer = answer.unwrap_ready().unwrap()?;
        let body = answer.resp.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn https_goes_through_tls_to_a_server_that_is_trusted() {
        let (port, certificate) = server().await;
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        assert_eq!(asked(roots, "https", port).await.unwrap(), "over TLS");
    }

    #[tokio::test]
    async fn a_server_that_is_not_trusted_is_refused_with_the_reason() {
        let (port, _) = server().await;
        let refused = asked(system_roots(), "https", port).await;
        assert!(matches!(refused, Err(ErrorCode::TlsCertificateError)), "{refused:?}");
    }

    #[tokio::test]
    async fn a_plain_http_request_to_a_tls_server_fails() {
        let (port, _) = server().await;
        let refused = asked(system_roots(), "http", port).await;
        assert!(matches!(refused, Err(ErrorCode::ConnectionTerminated)), "{refused:?}");
    }
}
