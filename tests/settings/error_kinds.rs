//! Error kinds are values: they can be compared, copied and put into sets, and each has its method
//! `is_…`.

use lambda_lock::{Budget, ErrorKind};
use lambda_lock_testkit::{Table, secs};
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
    assert!(late.is_out_of_time() && held.is_held() && wrong.is_invalid_request());
    assert_eq!((late.needed(), late.remaining()), (Some(Duration::from_millis(1)), Some(Duration::ZERO)));
    assert!(held.held().is_some_and(|held| held.holder == lock.owner()));
    for error in [&late, &wrong] {
        assert!(error.held().is_none() && error.failed_writes().is_empty() && error.failure().is_none(), "{error}");
        assert_eq!(error.invalid_attribute(), None);
    }
    lock.release().await.unwrap();
}
