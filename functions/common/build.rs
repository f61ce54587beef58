//! Picks Amazon's root certificates out of Mozilla's. With all of Mozilla's the first answer takes 23 % longer, see
//! `proof/bench/cold-start/README.md`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::error::Error;
use std::path::Path;

/// The subjects of the root certificates that AWS's endpoints use, as Amazon Trust Services publishes
/// them.
const SUBJECTS: [&str; 5] = [
    "Amazon Root CA 1",
    "Amazon Root CA 2",
    "Amazon Root CA 3",
    "Amazon Root CA 4",
    "Starfield Services Root Certificate Authority - G2",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let mut pem = String::new();
    for subject in SUBJECTS {
        let named = |der: &[u8]| der.windows(subject.len()).any(|window| window == subject.as_bytes());
        let mut found = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().filter(|certificate| named(certificate));
        let (Some(certificate), None) = (found.next(), found.next()) else {
            return Err(format!("{subject:?} is not the subject of exactly one root certificate of Mozilla").into());
        };
        let text = BASE64_STANDARD.encode(certificate);
        pem.push_str(&format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"));
    }
    let target = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(Path::new(&target).join("amazon-roots.pem"), pem)?;
    Ok(())
}
