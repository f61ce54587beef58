//! Error kinds are values: they can be compared, copied and put into sets, and each has its method
//! `is_…`.

use lambda_lock::once::Started;
use lambda_lock::{Budget, Error, ErrorKind};
use lambda_lock_testkit::{Fault, Table, case, millis, secs};
use std::collections::HashSet;
use std::time::Duration;

const LEASE: Duration = secs(20);

#[tokio::test(start_paused = true)]
async fn a_kind_is_a_value_and_its_data_stays_with_the_error() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let lock = locks.acquire("k").within(&Budget::lasting(LEASE)).await.unwrap();

    let none = Budget::lasting(Duration::ZERO);
    let late = locks.acquire("other").within(&none).await.unwrap_err();
    let held = locks.acquire("k").within(&Budget::lasting(LEASE).reserve(LEASE)).await.unwrap_err();
    let wrong = locks.acquire("").within(&Budget::lasting(LEASE)).await.unwrap_err();

    let kinds: HashSet<ErrorKind> = [late.kind(), held.kind(), wrong.kind(), held.kind()].into();
    assert_eq!(kinds, [ErrorKind::OutOfTime, ErrorKind::Held, ErrorKind::InvalidRequest].into());
    assert!(late.kind() == ErrorKind::OutOfTime && held.is_held() && wrong.kind() == ErrorKind::InvalidRequest);
    assert_eq!((late.needed(), late.remaining()), (Some(Duration::from_millis(1)), Some(Duration::ZERO)));
    assert!(held.refusal().is_some_and(|refusal| refusal.holder == lock.owner()));
    for error in [&late, &wrong] {
        assert!(error.refusal().is_none() && error.failed_writes().is_empty() && error.failure().is_none(), "{error}");
        assert_eq!(error.invalid_attribute(), None);
    }
    lock.release().await.unwrap();
}

/// Whether a text can pass for nothing but one short line.
fn is_one_short_line(error: &Error) -> bool {
    let text = error.to_string();
    text.len() < 1_000 && !text.chars().any(char::is_control) && !text.contains('\u{202e}')
}

#[tokio::test(start_paused = true)]
async fn no_key_and_no_holder_forges_a_line_of_the_text_of_an_error() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    for key in ["k\n2026-11-27 ERROR forged".to_owned(), "\u{202e}k\u{1b}[2J".to_owned(), "k".repeat(2_000)] {
        let _case = case(&key);
        let held =
            locks.acquire(key.as_str()).lease(LEASE).owner(key.as_str()).try_once().await.unwrap().granted().unwrap();
        let hurried = || process.budget(LEASE).reserve(LEASE);
        let work = || locks.once(key.as_str()).lease(LEASE);
        let Started::Attempt(attempt) = work().start::<u8>().await.unwrap() else { panic!("nobody did it before") };
        attempt.fail(&1).await.unwrap();
        let again = work().start::<u8>().await.unwrap_err();
        process.next(vec![Fault::RequestLost; 200]);
        let unknown = locks.operator().peek(key.as_str()).await.unwrap_err();
        let unavailable = locks.acquire(key.as_str()).lease(LEASE).try_once().await.unwrap_err();
        process.clear();
        for error in [
            locks.acquire(key.as_str()).within(&hurried()).await.unwrap_err(),
            locks.acquire_all([key.as_str(), "other"]).within(&hurried()).await.unwrap_err(),
            locks.acquire(key.as_str()).within(&process.budget(millis(0))).await.unwrap_err(),
            locks.acquire(format!("once/{key}").as_str()).lease(LEASE).try_once().await.unwrap_err(),
            locks.acquire_all([key.as_str(), key.as_str()]).within(&process.budget(LEASE)).await.unwrap_err(),
            locks.acquire(key.as_str()).reclaim_own().lease(LEASE).try_once().await.unwrap_err(),
            locks.semaphore(key.as_str(), 0).acquire().lease(LEASE).try_once().await.unwrap_err(),
            again,
            unknown,
            unavailable,
        ] {
            assert!(is_one_short_line(&error), "{error:?}");
        }
        held.release().await.unwrap();
    }
}
