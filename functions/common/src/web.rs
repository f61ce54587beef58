//! HTTP to servers other than AWS, for a function's own work. It uses the HTTP client of the DynamoDB
//! client. It uses the system's root certificates, because those servers do not use Amazon's.

use crate::environment::ConfigError;
use crate::failure::with_causes;
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::http::{HttpConnector, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use std::net::IpAddr;
use std::time::Duration;

/// The most bytes that are read of a response, so that a faulty server cannot fill the memory.
const LARGEST: usize = 1024 * 1024;

/// The response of a server.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Another server. Connections are kept from one invocation to the next.
#[derive(Clone, Debug)]
pub struct Web {
    url: String,
    connector: SharedHttpConnector,
}

impl Web {
    /// Creates a client for a server whose paths begin with this URL. The variable `name` has the URL.
    /// Sends no request. Reads the system's certificates only if the URL begins with `https://`.
    pub fn new(name: &str, url: &str) -> Result<Self, ConfigError> {
        let scheme = url.parse::<http::Uri>().ok().filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
        let connector = match scheme.as_ref().and_then(|uri| uri.scheme_str()) {
            Some("http") => aws_smithy_http_client::ConnectorBuilder::default().build_http(),
            Some("https") => Connector::builder().tls_provider(Provider::Rustls(CryptoMode::Ring)).build(),
            _ => {
                return Err(ConfigError::new(format!(
                    "{name} is {url:?}: give a URL that begins with http:// or https://"
                )));
            }
        };
        Ok(Self { url: url.trim_end_matches('/').to_owned(), connector: SharedHttpConnector::new(connector) })
    }

    /// Whether requests go over the network without TLS.
    pub fn is_readable_by_others(&self) -> bool {
        let uri = self.url.parse::<http::Uri>().unwrap_or_default();
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let of_this_machine = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        uri.scheme_str() != Some("https") && !of_this_machine
    }

    /// Posts JSON to a path and waits this long for the response. An error means that there was no
    /// readable response, so the outcome of the request is unknown.
    pub async fn post(
        &self,
        path: &str,
        headers: &[(&'static str, String)],
        json: String,
        patience: Duration,
    ) -> Result<Answered, NoAnswer> {
        let mut request = HttpRequest::new(SdkBody::from(json));
        let prepared = request.set_method("POST").and_then(|()| request.set_uri(format!("{}{path}", self.url)));
        prepared.map_err(|error| NoAnswer(error.to_string()))?;
        request.headers_mut().insert("content-type", "application/json");
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.clone());
        }
        match tokio::time::timeout(patience, self.answer(request)).await {
            Ok(answered) => answered,
            Err(_) => Err(NoAnswer(format!("no response within {patience:?}"))),
        }
    }

    async fn answer(&self, request: HttpRequest) -> Result<Answered, NoAnswer> {
        let response = self.connector.call(request).await.map_err(|error| NoAnswer(with_causes(&error)))?;
        let status = response.status().as_u16();
        let mut parts = ByteStream::new(response.into_body());
        let mut body = Vec::new();
        while let Some(part) = parts.try_next().await.map_err(|error| NoAnswer(with_causes(&error)))? {
            body.extend_from_slice(&part);
            if body.len() > LARGEST {
                return Err(NoAnswer(format!("the response has more than {LARGEST} bytes")));
            }
        }
        Ok(Answered { status, body })
    }
}

/// Why there is no response.
#[derive(Clone, Debug)]
pub struct NoAnswer(String);

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoAnswer {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The system's root certificates are read when the first connection is made, or before.
    #[tokio::test]
    async fn an_unreachable_gateway_gives_no_answer_with_tls_and_without() {
        for url in ["http://127.0.0.1:1", "https://127.0.0.1:1/v1/"] {
            let web = Web::new("URL", url).unwrap();
            let answered = web.post("/charges", &[], "{}".to_owned(), Duration::from_secs(5)).await;
            assert!(answered.is_err(), "{url}: {answered:?}");
        }
    }

    #[test]
    fn an_invalid_url_is_refused_with_the_name_of_its_variable() {
        for url in ["pay.example.com", "ftp://pay.example.com", "https://", "http:///charges", "no url"] {
            let error = Web::new("URL", url).unwrap_err().to_string();
            assert!(error.starts_with("URL is "), "{url}: {error}");
        }
    }
}
