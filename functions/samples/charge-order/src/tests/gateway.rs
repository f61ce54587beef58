use super::{Function, order, order_with};
use crate::Deps;
use lambda_lock_functions::test_support::assert_failure;
use lambda_lock_local::gateway::Conduct;
use lambda_lock_testkit::takes;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The gateway behaves this way once, and correctly afterwards.
fn first(conduct: Conduct) -> impl Fn(&str) -> Conduct + Send + Sync {
    let asked = AtomicUsize::new(0);
    move |_| if asked.fetch_add(1, Ordering::SeqCst) == 0 { conduct.clone() } else { Conduct::Answers }
}

#[tokio::test]
async fn the_key_depends_on_the_order_id_alone() {
    let function = Function::start().await;
    // Two attempts at one order, and two orders whose ids cannot be a header value.
    let _ = function.call(order_with(json!({ "simulate": { "failAt": "record" } }))).await;
    function.call(order()).await.unwrap();
    for id in ["ö 1", "o-1\n"] {
        function.call(order_with(json!({ "orderId": id }))).await.unwrap();
    }
    let keys: Vec<_> = function.gateway.ledger().into_iter().map(|entry| entry.idempotency_key).collect();
    assert_eq!(keys[0], keys[1]);
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 3, "{keys:?}");
    assert!(keys.iter().all(|key| key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit())), "{keys:?}");
}

#[tokio::test]
async fn no_response_and_a_5xx_are_retried_with_the_same_key() {
    for conduct in [Conduct::AnswerLost, Conduct::Refuses(500), Conduct::Refuses(503)] {
        let function = Function::start().await;
        function.gateway.decide(first(conduct.clone()));
        let answer = function.call(order()).await.unwrap();
        let ledger = function.gateway.ledger();
        assert_eq!(answer["chargeId"], ledger[0].charge_id, "{conduct:?}");
        assert_eq!(function.charged().1, 1, "{conduct:?}");
        assert!(ledger.iter().all(|entry| entry.idempotency_key == ledger[0].idempotency_key));
    }
}

#[tokio::test]
async fn a_gateway_that_fails_until_the_time_is_over_is_failed_work_before_the_deadline() {
    for conduct in [Conduct::Refuses(502), Conduct::Silent] {
        takes(Duration::ZERO..Duration::from_millis(2000), async || {
            let function = Function::start().await;
            let conduct = conduct.clone();
            function.gateway.decide(move |_| conduct.clone());
            let started = Instant::now();
            let failed = function.call_within(order(), 2.0).await;
            assert_failure(failed, "WorkFailed", "may or may not have been charged");
            let took = started.elapsed();
            assert!(function.is_open().await);
            took
        })
        .await;
    }
}

/// The process may be frozen, or the machine may be busy.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the whole process must stand still")]
async fn a_pause_that_lasts_too_long_does_not_hide_that_the_outcome_is_unknown() {
    let function = Function::start().await;
    let asked = std::sync::Arc::new(tokio::sync::Notify::new());
    let asks = asked.clone();
    function.gateway.decide(move |_| {
        asks.notify_one();
        Conduct::Refuses(502)
    });
    let stands_still = async {
        asked.notified().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        std::thread::sleep(Duration::from_millis(900));
    };
    let (failed, ()) = tokio::join!(function.call_within(order(), 2.0), stands_still);
    assert_failure(failed, "WorkFailed", "may or may not have been charged");
}

#[tokio::test]
async fn a_4xx_and_an_answer_without_a_charge_id_are_failed_work_at_once() {
    for (conduct, says) in [
        (Conduct::Refuses(402), "refused the charge with status 402"),
        (Conduct::Refuses(429), "refused the charge with status 429"),
        (Conduct::Refuses(200), "has no chargeId"),
        (Conduct::Calls(String::new()), "has no chargeId"),
    ] {
        let function = Function::start().await;
        let asked = std::sync::Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        function.gateway.decide(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            conduct.clone()
        });
        assert_failure(function.call(order()).await, "WorkFailed", says);
        assert_eq!(asked.load(Ordering::SeqCst), 1, "{says}");
        assert!(function.is_open().await);
    }
}

#[tokio::test]
async fn without_a_gateway_a_stand_in_answers_the_same_for_the_same_order() {
    let mut function = Function::start().await;
    function.deps = Deps { gateway: super::deps(&function.server, &[]).unwrap().gateway, ..function.deps };
    let charge = async |id: &str| {
        let answer = function.call(order_with(json!({ "orderId": id }))).await.unwrap();
        answer["chargeId"].as_str().unwrap().to_owned()
    };
    let (first, other) = (charge("o-1").await, charge("o-2").await);
    assert!(first.starts_with("stand-in-") && first != other, "{first} {other}");
    function.server.drop_table("orders").await;
    function.server.create_table("orders", "orderId").await;
    function.server.delete("locks", "key", super::KEY).await;
    assert_eq!(charge("o-1").await, first);
    assert_eq!(function.charged(), (0, 0));
}
