//! Processes that are restored from one snapshot: whatever was drawn before it, all of them have.

use crate::LEASE;
use lambda_lock_testkit::Table;

#[tokio::test(start_paused = true)]
async fn processes_of_one_snapshot_have_different_default_owners_and_grants() {
    let table = Table::new();
    let (mut one, other) = (table.process(), table.process());
    one.clock = other.clock.twin();
    // The clients are built before the snapshot, from the same state.
    let clients = [&one, &other].map(|process| process.builder().build().unwrap());
    one.clock.reseed();
    other.clock.reseed();

    let [first, second] = clients.each_ref().map(|locks| locks.acquire("k").lease(LEASE).try_once());
    let first = first.await.unwrap().granted().unwrap();
    let (owner, version) = (first.owner().to_owned(), table.attribute("k", "recordVersionNumber").unwrap());
    first.release().await.unwrap();
    let second = second.await.unwrap().granted().unwrap();

    let name = |owner: &str| owner.split_once('/').unwrap().0.to_owned();
    assert!(name(&owner).starts_with("lambda-lock-"), "{owner}");
    assert_ne!(name(&owner), name(second.owner()));
    assert_ne!(Some(version), table.attribute("k", "recordVersionNumber"));
    second.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_default_owner_of_a_client_stays_the_same() {
    let table = Table::new();
    let locks = table.process().builder().build().unwrap();

    let mut names = Vec::new();
    for key in ["a", "b"] {
        let lock = locks.clone().acquire(key).lease(LEASE).try_once().await.unwrap().granted().unwrap();
        names.push(lock.owner().split_once('/').unwrap().0.to_owned());
        lock.release().await.unwrap();
    }

    assert_eq!(names[0], names[1]);
}
