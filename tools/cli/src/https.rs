//! How requests leave this machine: through which proxy, and which certificates are trusted. As the AWS command line does it.

use crate::exit::Failure;
use aws_config::profile::ProfileSet;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_http_client::{Builder, Connector};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::error::Error;
use std::iter::successors;

/// Each scheme has a proxy of its own, or none.
#[derive(Debug)]
struct ByScheme<T> {
    http: T,
    https: T,
}

impl HttpClient for ByScheme<SharedHttpClient> {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let [http, https] = [&self.http, &self.https].map(|client| client.http_connector(settings, components));
        SharedHttpConnector::new(ByScheme { http, https })
    }
}

impl HttpConnector for ByScheme<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let is_plain = request.uri().starts_with("http:");
        let host = request.uri().parse().ok().and_then(|uri: http::Uri| Some(uri.host()?.to_owned()));
        let called = if is_plain { self.http.call(request) } else { self.https.call(request) };
        HttpConnectorFuture::new(async move { called.await.map_err(|error| with_host(error, host)) })
    }
}

/// Names the host that could not be looked up: it may be that of a wrong Region.
fn with_host(error: ConnectorError, host: Option<String>) -> ConnectorError {
    let mut links = successors(Some(&error as &dyn Error), |error| (*error).source());
    match (links.find(|link| link.to_string() == "dns error"), host) {
        (Some(dns), Some(host)) => {
            let why = dns.source().unwrap_or(dns);
            ConnectorError::io(
                format!("{host}, or the proxy to it, is not found: check the Region and the endpoint ({why})").into(),
            )
        }
        _ => error,
    }
}

/// What sends all requests of a command, also those for credentials.
pub(crate) fn client(profile: Option<&ProfileSet>) -> Result<SharedHttpClient, Failure> {
    let trusted = match bundle(profile) {
        Some((from, path)) => trust(from, &path)?,
        None => TlsContext::default(),
    };
    let through = |proxy: ProxyConfig| {
        let trusted = trusted.clone();
        Builder::new().build_with_connector_fn(move |settings, components| {
            let mut connector = Connector::builder().proxy_config(proxy.clone());
            connector.set_connector_settings(settings.cloned());
            connector.set_sleep_impl(components.and_then(RuntimeComponents::sleep_impl));
            connector.tls_provider(Provider::Rustls(CryptoMode::Ring)).tls_context(trusted.clone()).build()
        })
    };
    let (http, https) = (proxy("HTTP_PROXY", ProxyConfig::http)?, proxy("HTTPS_PROXY", ProxyConfig::https)?);
    Ok(SharedHttpClient::new(ByScheme { http: through(http), https: through(https) }))
}

/// The proxy that a variable names, in small letters too.
fn proxy<E>(name: &str, of: impl FnOnce(String) -> Result<ProxyConfig, E>) -> Result<ProxyConfig, Failure> {
    let without = variable("NO_PROXY").unwrap_or_default();
    let Some(url) = variable(name).filter(|_| without.trim() != "*") else { return Ok(ProxyConfig::disabled()) };
    let url = if url.contains("://") { url } else { format!("http://{url}") };
    // The URL may have a password, so it is not quoted.
    let config = of(url).map_err(|_| {
        Failure::Usage(format!("{name} is no URL of a proxy: give one such as http://proxy.example.com:3128"))
    })?;
    Ok(config.no_proxy(without))
}

fn variable(name: &str) -> Option<String> {
    let names = [name.to_lowercase(), name.to_owned()];
    names.into_iter().filter_map(|name| std::env::var(name).ok()).find(|value| !value.is_empty())
}

/// The file with the certificates that are trusted instead of this machine's, and what names it.
fn bundle(profile: Option<&ProfileSet>) -> Option<(&'static str, String)> {
    let of_variable = std::env::var("AWS_CA_BUNDLE").ok().map(|path| ("AWS_CA_BUNDLE", path));
    let of_profile = || profile?.get("ca_bundle").map(|path| ("ca_bundle of the profile", path.to_owned()));
    of_variable.or_else(of_profile).filter(|(_, path)| !path.is_empty())
}

const END: &str = "-----END CERTIFICATE-----";

/// Trusts the certificates of a file. Large bundles have some that cannot be used, which are left out.
fn trust(from: &str, path: &str) -> Result<TlsContext, Failure> {
    let file = std::fs::read(path)
        .map_err(|error| Failure::Usage(format!("{from} names {path:?}, which cannot be read: {error}")))?;
    let file = String::from_utf8_lossy(&file);
    let is_usable = |pem: &&str| {
        CertificateDer::from_pem_slice(pem.as_bytes()).is_ok_and(|one| RootCertStore::empty().add(one).is_ok())
    };
    let usable: Vec<_> = file.split_inclusive(END).filter(is_usable).collect();
    if usable.is_empty() {
        return Err(Failure::Usage(format!(
            "{from} names {path:?}, which has no certificate: give a file with certificates as PEM"
        )));
    }
    let store = usable.into_iter().fold(TrustStore::empty(), TrustStore::with_pem_certificate);
    let built = TlsContext::builder().with_trust_store(store).build();
    built.map_err(|error| Failure::Usage(format!("{from} names {path:?}, which cannot be used: {error}")))
}
