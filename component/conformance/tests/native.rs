//! The crate itself passes every scenario of the list. `component/check` builds the components and plays the same list
//! in their hosts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use lambda_lock_conformance::{Native, scenarios};

#[tokio::test]
async fn the_crate_itself_keeps_every_promise_of_the_list() {
    let played = scenarios::play(&Native::default(), "").await.unwrap();
    let failed: Vec<_> = played.iter().filter_map(|played| played.result.as_ref()?.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(played.len(), scenarios::all().len());
}
