//! The promises of `LockLayer`, tested on an embedded DynamoDB.

use lambda_lock::lambda::{LockLayer, LockServiceError, Locked};
use lambda_lock::{Budget, LockClient};
use lambda_lock_functions::test_support::{DynamoDb, context, pause};
use lambda_lock_testkit::takes;
use lambda_runtime::{Context, Diagnostic, Error, LambdaEvent, service_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Barrier;
use tower::{Layer, Service, ServiceExt};

fn event(key: &str, context: Context) -> LambdaEvent<String> {
    LambdaEvent::new(key.to_owned(), context)
}

fn by_payload(locks: &LockClient) -> LockLayer<fn(&String) -> lambda_lock::LockKey> {
    LockLayer::new(locks.clone(), |key: &String| key.into())
}

async fn holder(locks: &LockClient, key: &str) -> Option<String> {
    let row = locks.operator().peek(key).await.ok().flatten();
    row.filter(|row| !row.released).map(|row| row.holder)
}

#[tokio::test]
async fn the_lock_is_held_while_the_handler_runs_and_free_afterwards() {
    let locks = DynamoDb::start().await.locks(&[]);
    let inside = locks.clone();
    let service = by_payload(&locks).layer(service_fn(move |event: LambdaEvent<Locked<String>>| {
        let locks = inside.clone();
        async move {
            let held = locks.operator().peek(&event.payload.payload).await?.unwrap();
            assert!(!held.released);
            assert_eq!(held.fencing_token, Some(event.payload.grant.fencing_token()));
            Ok::<_, Error>(held.holder)
        }
    }));
    let mut context = context(30.0);
    context.request_id = "r-1".to_owned();
    let owner = service.oneshot(event("k", context)).await.unwrap();
    assert!(owner.starts_with("a-function:$LATEST/r-1/"), "{owner}");
    assert_eq!(holder(&locks, "k").await, None);
}

#[tokio::test]
async fn a_handler_that_fails_releases_the_lock_and_returns_its_error() {
    let locks = DynamoDb::start().await.locks(&[]);
    let handler = service_fn(async |_: LambdaEvent<Locked<String>>| Err::<(), _>(Diagnostic::from("no paper")));
    let error = by_payload(&locks).layer(handler).oneshot(event("k", context(30.0))).await.unwrap_err();
    assert_eq!(Diagnostic::from(error).error_message, "no paper");
    assert_eq!(holder(&locks, "k").await, None);
}

#[tokio::test]
async fn a_handler_is_not_polled_after_the_end_of_its_lease() {
    takes(Duration::from_millis(1300)..Duration::from_millis(1503), async || {
        let locks = DynamoDb::start().await.locks(&[]);
        let started = Instant::now();
        let polled = Arc::new(AtomicU32::new(0));
        let last = Arc::clone(&polled);
        let handler = service_fn(move |_: LambdaEvent<Locked<String>>| {
            let last = Arc::clone(&last);
            async move {
                loop {
                    last.store(started.elapsed().as_millis() as u32, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                #[allow(unreachable_code)]
                Ok::<(), Error>(())
            }
        });

        let guard = by_payload(&locks).grace(Duration::from_millis(100));
        let error = guard.layer(handler).oneshot(event("k", context(1.4))).await.unwrap_err();

        assert_eq!(Diagnostic::from(error).error_type, "WorkFailed");
        // The deadline is in whole milliseconds. It is counted from a moment before `started`.
        let took = Duration::from_millis(polled.load(Ordering::Relaxed).into());
        assert_eq!(holder(&locks, "k").await, None);
        took
    })
    .await;
}

#[tokio::test]
async fn a_handler_without_cut_goes_on_after_the_end_of_its_lease() {
    let locks = DynamoDb::start().await.locks(&[]);
    let inside = locks.clone();
    let handler = service_fn(move |event: LambdaEvent<Locked<String>>| {
        let locks = inside.clone();
        async move {
            pause(Duration::from_millis(2_600)).await;
            let held = locks.operator().peek(&event.payload.payload).await?.unwrap();
            assert!(!held.released && held.lease_ends_at.unwrap() < SystemTime::now(), "{held:?}");
            Ok::<_, Error>("done")
        }
    });

    let guard = by_payload(&locks).grace(Duration::from_millis(100)).without_cut();
    let answer = guard.layer(handler).oneshot(event("k", context(2.0))).await;

    assert_eq!(answer.unwrap(), "done");
    assert_eq!(holder(&locks, "k").await, None, "it was released");
}

fn of_tenant(tenant: &str, seconds: f64) -> Context {
    let mut context = context(seconds);
    context.tenant_id = Some(tenant.to_owned());
    context
}

#[tokio::test]
async fn each_tenant_has_a_lock_of_its_own() {
    let locks = DynamoDb::start().await.locks(&[]);
    // Both are inside their handlers at once, with one service, client and process.
    let (both, inside) = (Arc::new(Barrier::new(2)), locks.clone());
    let mut service = by_payload(&locks).per_tenant().layer(service_fn(move |event: LambdaEvent<Locked<String>>| {
        let (both, locks) = (both.clone(), inside.clone());
        async move {
            both.wait().await;
            // The grant has the key of the row, so that any client of the table can resume it.
            let grant = event.payload.grant;
            let _ = locks.resume(grant.clone()).await?.save();
            Ok::<_, Error>(grant.key().to_string())
        }
    }));

    let first = service.ready().await.unwrap().call(event("k", of_tenant("blue", 30.0)));
    let second = service.ready().await.unwrap().call(event("k", of_tenant("a/b", 30.0)));
    let (first, second) = tokio::join!(first, second);

    assert_eq!((first.unwrap().as_str(), second.unwrap().as_str()), ("blue/k", "a=2Fb/k"));
    for row in ["blue/k", "a=2Fb/k"] {
        assert!(locks.operator().peek(row).await.unwrap().unwrap().released, "{row}");
    }
}

#[tokio::test]
async fn a_tenant_s_lock_that_is_held_is_named_by_its_row() {
    let locks = DynamoDb::start().await.locks(&[]);
    let lease = Duration::from_secs(30);
    let held = locks.prefixed("blue/").unwrap().acquire("k").lease(lease).try_once().await.unwrap().granted().unwrap();
    let handler = service_fn(async |_: LambdaEvent<Locked<String>>| Ok::<_, Error>(()));
    let guard = by_payload(&locks).per_tenant();

    for (waits, guard) in
        [(true, guard.clone().reserve(Duration::from_millis(9_900))), (false, guard.without_waiting())]
    {
        let error = guard.layer(handler).oneshot(event("k", of_tenant("blue", 10.0))).await.unwrap_err();

        assert!(error.to_string().starts_with("the lock blue/k is held by "), "waits: {waits}: {error}");
    }
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_layer_per_tenant_refuses_an_invocation_without_one() {
    let (server, runs) = (DynamoDb::start().await, Arc::new(AtomicU32::new(0)));
    let counted = runs.clone();
    let handler = service_fn(move |_: LambdaEvent<Locked<String>>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Error>(()) }
    });

    let guarded = by_payload(&server.locks(&[])).per_tenant().layer(handler);
    let diagnostic = Diagnostic::from(guarded.oneshot(event("k", context(10.0))).await.unwrap_err());

    assert_eq!(diagnostic.error_type, "InvalidRequest");
    assert!(diagnostic.error_message.contains("no tenant id"), "{diagnostic:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    let rows = server.client().scan().table_name("locks").send().await.unwrap();
    assert_eq!(rows.count, 0, "no request was sent");
}

#[tokio::test]
async fn a_result_under_a_lost_lock_is_an_error() {
    let locks = DynamoDb::start().await.locks(&[]);
    let inside = locks.clone();
    let handler = service_fn(move |event: LambdaEvent<Locked<String>>| {
        let locks = inside.clone();
        async move {
            let stolen = locks.reclaim(event.payload.grant).lease(Duration::from_secs(30)).await?;
            Ok::<_, Error>(stolen.save())
        }
    });

    let error = by_payload(&locks).layer(handler).oneshot(event("k", context(30.0))).await.unwrap_err();

    assert_eq!(Diagnostic::from(error).error_type, "LockLost");
}

/// A handler's own error, with the lock's error as its source.
#[derive(Debug)]
struct NotBilled(lambda_lock::Error);

impl std::fmt::Display for NotBilled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the bill was not written")
    }
}

impl std::error::Error for NotBilled {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[tokio::test]
async fn a_lock_error_that_a_handler_returns_keeps_its_name() {
    let locks = DynamoDb::start().await.locks(&[]);
    let other = locks.acquire("inner").owner("somebody").lease(Duration::from_secs(30)).try_once().await.unwrap();
    for wrapped in [false, true] {
        let inside = locks.clone();
        let service = by_payload(&locks).layer(service_fn(move |event: LambdaEvent<Locked<String>>| {
            let locks = inside.clone();
            async move {
                let budget = Budget::lasting(Duration::from_millis(100)).reserve(Duration::from_millis(100));
                let inner = locks.acquire("inner").owner(event.context.request_id).within(&budget).await;
                if wrapped {
                    inner.map_err(NotBilled)?.release().await?;
                } else {
                    inner?.release().await?;
                }
                Ok::<_, Error>(())
            }
        }));
        let error = service.oneshot(event("k", context(30.0))).await.unwrap_err();
        let diagnostic = Diagnostic::from(error);
        assert_eq!(diagnostic.error_type, "LockHeld", "{wrapped}: {diagnostic:?}");
        assert!(diagnostic.error_message.contains("is held by \"somebody\""), "{diagnostic:?}");
        assert_eq!(diagnostic.error_message.starts_with("the bill was not written: "), wrapped, "{diagnostic:?}");
    }
    other.granted().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_boxed_error_that_is_not_a_lock_error_is_returned_as_without_the_layer() {
    let locks = DynamoDb::start().await.locks(&[]);
    let handler = service_fn(async |_: LambdaEvent<Locked<String>>| Err::<(), Error>("no paper".into()));
    let error = by_payload(&locks).layer(handler).oneshot(event("k", context(30.0))).await.unwrap_err();
    assert_eq!(Diagnostic::from(error), Diagnostic::from(Error::from("no paper")));
}

#[tokio::test]
async fn a_held_lock_is_an_error_by_name_or_the_answer_that_the_caller_chose() {
    let locks = DynamoDb::start().await.locks(&[]);
    let other = locks.acquire("k").owner("somebody").lease(Duration::from_secs(30)).try_once().await.unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = service_fn(move |_: LambdaEvent<Locked<String>>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Error>("handled".to_owned()) }
    });
    let layer = by_payload(&locks).without_waiting();
    let error = layer.layer(handler.clone()).oneshot(event("k", context(30.0))).await.unwrap_err();
    assert!(matches!(&error, LockServiceError::Lock(error) if error.is_held()));
    assert_eq!(Diagnostic::from(error).error_type, "LockHeld");

    let answering = layer.when_held(|held| format!("held by {}", held.holder)).layer(handler);
    assert_eq!(answering.clone().oneshot(event("k", context(30.0))).await.unwrap(), "held by somebody");
    assert_eq!(runs.load(Ordering::Relaxed), 0);

    other.granted().unwrap().release().await.unwrap();
    assert_eq!(answering.oneshot(event("k", context(30.0))).await.unwrap(), "handled");
}

#[tokio::test]
async fn a_lock_that_is_released_meanwhile_is_waited_for() {
    let locks = DynamoDb::start().await.locks(&[]);
    let other = locks.acquire("k").lease(Duration::from_secs(30)).try_once().await.unwrap().granted().unwrap();
    let service =
        by_payload(&locks).layer(service_fn(async |_: LambdaEvent<Locked<String>>| Ok::<_, Error>("handled")));
    let release = async {
        pause(Duration::from_millis(100)).await;
        other.release().await
    };
    let (released, answer) = tokio::join!(release, service.oneshot(event("k", context(30.0))));
    released.unwrap();
    assert_eq!(answer.unwrap(), "handled");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is the promise")]
async fn waiting_ends_when_only_the_reserve_is_left() {
    let locks = DynamoDb::start().await.locks(&[]);
    let other = locks.acquire("k").lease(Duration::from_secs(30)).try_once().await.unwrap();
    let handler = service_fn(async |_: LambdaEvent<Locked<String>>| Ok::<_, Error>(()));
    let service = by_payload(&locks).reserve(Duration::from_millis(9_700)).layer(handler);
    let started = Instant::now();
    let error = service.oneshot(event("k", context(10.0))).await.unwrap_err();
    assert!((0.2..4.5).contains(&started.elapsed().as_secs_f64()), "{:?}", started.elapsed());
    assert_eq!(Diagnostic::from(error).error_type, "LockHeld");
    other.granted().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn several_invocations_in_one_environment_are_told_apart() {
    let locks = DynamoDb::start().await.locks(&[]);
    // Both handlers run at the same time, with one service, client and process.
    let (both, inside) = (Arc::new(Barrier::new(2)), locks.clone());
    let mut service = by_payload(&locks).layer(service_fn(move |event: LambdaEvent<Locked<String>>| {
        let (both, locks) = (both.clone(), inside.clone());
        async move {
            both.wait().await;
            Ok::<_, Error>(holder(&locks, &event.payload.payload).await)
        }
    }));
    let invocation = |id: &str| {
        let mut context = context(30.0);
        context.request_id = id.to_owned();
        context
    };
    let first = service.ready().await.unwrap().call(event("a", invocation("r-1")));
    let second = service.ready().await.unwrap().call(event("b", invocation("r-2")));
    let (first, second) = tokio::join!(first, second);
    let (first, second) = (first.unwrap().unwrap(), second.unwrap().unwrap());
    assert!(first.starts_with("a-function:$LATEST/r-1/"), "{first}");
    assert!(second.starts_with("a-function:$LATEST/r-2/"), "{second}");
}

#[tokio::test]
async fn an_event_without_a_key_and_an_invocation_without_a_deadline_are_invalid_requests() {
    let locks = DynamoDb::start().await.locks(&[]);
    let handler = service_fn(async |_: LambdaEvent<Locked<String>>| Ok::<_, Error>(()));
    let service = by_payload(&locks).layer(handler);
    for (key, context) in [("", context(30.0)), ("k", Context::default())] {
        let error = service.clone().oneshot(event(key, context)).await.unwrap_err();
        assert_eq!(Diagnostic::from(error).error_type, "InvalidRequest", "{key:?}");
    }
}

#[tokio::test]
async fn a_layer_that_does_not_wait_answers_at_once() {
    let locks = DynamoDb::start().await.locks(&[]);
    let held = locks.acquire("k").lease(Duration::from_secs(60)).try_once().await.unwrap().granted().unwrap();
    let handler = service_fn(async |_: LambdaEvent<Locked<String>>| Ok::<_, Error>(()));
    let started = Instant::now();

    let error = by_payload(&locks).without_waiting().layer(handler).oneshot(event("k", context(10.0))).await;

    assert_eq!(Diagnostic::from(error.unwrap_err()).error_type, "LockHeld");
    assert!(started.elapsed() < Duration::from_millis(4_500), "it waited: {:?}", started.elapsed());
    held.release().await.unwrap();
}

/// Accepts a call only after it was polled ready for it, as tower permits.
struct Readied(bool);

impl Clone for Readied {
    fn clone(&self) -> Self {
        Self(false)
    }
}

impl Service<LambdaEvent<Locked<String>>> for Readied {
    type Response = ();
    type Error = Error;
    type Future = std::future::Ready<Result<(), Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Error>> {
        self.0 = true;
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: LambdaEvent<Locked<String>>) -> Self::Future {
        assert!(std::mem::take(&mut self.0), "called before it was ready");
        std::future::ready(Ok(()))
    }
}

#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let locks = DynamoDb::start().await.locks(&[]);
    let mut service = by_payload(&locks).layer(Readied(false));
    for _ in 0..2 {
        let answer = service.ready().await.unwrap().call(event("k", context(10.0))).await;
        assert!(answer.is_ok());
    }
}

#[tokio::test]
async fn a_boxed_error_of_the_layer_keeps_its_name() {
    let locks = DynamoDb::start().await.locks(&[]);
    let other = locks.acquire("k").lease(Duration::from_secs(30)).try_once().await.unwrap().granted().unwrap();
    let handler = service_fn(async |_: LambdaEvent<Locked<String>>| Ok::<(), std::fmt::Error>(()));
    let guarded = by_payload(&locks).without_waiting().layer(handler);

    let error = guarded.oneshot(event("k", context(10.0))).await.unwrap_err();

    let boxed: Error = Box::new(error);
    assert_eq!(lambda_lock::lambda::diagnostic(boxed).error_type, "LockHeld");
    other.release().await.unwrap();
}
