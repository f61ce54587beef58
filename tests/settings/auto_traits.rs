//! Which public types can be sent to another thread, shared between threads, and moved while they are polled. A change
//! of this is a change of the public API that no signature shows. The compiler tests it, as in tokio's
//! `tests/async_send_sync.rs`.

use lambda_lock::{
    Acquire, Attribute, Budget, Clock, Commit, CommitOutcome, Dialect, Error, ErrorKind, FailedWrite, Instants, Lock,
    LockClient, LockClientBuilder, LockKey, LockWatch, Observation, Reclaim, ReclaimAll, Refusal, Release, ReleaseAll,
    ReleaseOutcome, ReleaseWorkflow, Renew, Resume, ResumeAll, SavedLock, Sleep, Tried, operator::PeekedLock,
};

macro_rules! pinned {
    ($($type:ty: [$($traits:tt)+];)+) => { $(traits!($type, $($traits)+);)+ };
}

macro_rules! traits {
    ($type:ty,) => {};
    ($type:ty, ! $trait:ident $($rest:tt)*) => {
        const _: fn() = || {
            // A type with the trait has both implementations, so the compiler cannot choose one.
            trait Ambiguous<A> {
                fn item() {}
            }
            struct Has;
            impl<T: ?Sized> Ambiguous<()> for T {}
            impl<T: ?Sized + $trait> Ambiguous<Has> for T {}
            let _ = <$type as Ambiguous<_>>::item;
        };
        traits!($type, $($rest)*);
    };
    ($type:ty, $trait:ident $($rest:tt)*) => {
        const _: fn() = || {
            fn has<T: ?Sized + $trait>() {}
            has::<$type>();
        };
        traits!($type, $($rest)*);
    };
}

pinned! {
    Acquire<'static>: [Send Sync Unpin];
    Attribute: [Send Sync Unpin];
    Budget: [Send Sync Unpin];
    Commit<'static>: [Send Sync Unpin];
    CommitOutcome: [Send Sync Unpin];
    Dialect: [Send Sync Unpin];
    Error: [Send Sync Unpin];
    ErrorKind: [Send Sync Unpin];
    FailedWrite: [Send Sync Unpin];
    Instants: [Send Sync Unpin];
    Lock: [Send Sync Unpin];
    LockClient: [Send Sync Unpin];
    LockClientBuilder: [Send Sync Unpin];
    LockKey: [Send Sync Unpin];
    LockWatch: [Send Sync Unpin];
    Observation: [Send Sync Unpin];
    PeekedLock: [Send Sync Unpin];
    Reclaim<'static>: [Send Sync Unpin];
    ReclaimAll<'static>: [Send Sync Unpin];
    Refusal: [Send Sync Unpin];
    Release: [Send Sync Unpin];
    ReleaseAll: [Send Sync Unpin];
    ReleaseOutcome: [Send Sync Unpin];
    ReleaseWorkflow: [Send Sync Unpin];
    Renew<'static>: [Send Sync Unpin];
    Resume<'static>: [Send Sync Unpin];
    ResumeAll<'static>: [Send Sync Unpin];
    SavedLock: [Send Sync Unpin];
    Sleep: [Send !Sync Unpin];
    Tried<Lock>: [Send Sync Unpin];
    dyn Clock: [Send Sync];
    <Acquire<'static> as IntoFuture>::IntoFuture: [Send !Sync Unpin];
    <Commit<'static> as IntoFuture>::IntoFuture: [Send !Sync Unpin];
    <Reclaim<'static> as IntoFuture>::IntoFuture: [Send !Sync Unpin];
    <ReclaimAll<'static> as IntoFuture>::IntoFuture: [Send !Sync Unpin];
    <Release as IntoFuture>::IntoFuture: [Send !Sync Unpin];
    <ReleaseAll as IntoFuture>::IntoFuture: [Send !Sync Unpin];
    <ReleaseWorkflow as IntoFuture>::IntoFuture: [Send !Sync Unpin];
    <Renew<'static> as IntoFuture>::IntoFuture: [Send !Sync Unpin];
    <Resume<'static> as IntoFuture>::IntoFuture: [Send !Sync Unpin];
    <ResumeAll<'static> as IntoFuture>::IntoFuture: [Send !Sync Unpin];
}

/// The futures of methods. They have no names.
const _: fn(LockClient, &mut Lock, Budget) = |locks, lock, budget| {
    fn send(_: impl Send) {}
    send(locks.operator().check_table());
    send(locks.operator().create_table());
    send(locks.operator().peek("k"));
    send(locks.with_lock("k", &budget, async |_| Ok::<_, Error>(())));
    send(async { locks.acquire("k").await?.run(async |_| Ok::<_, Error>(())).await });
    send(lock.checkpoint());
    send(lock.keep_alive(std::future::ready(())));
    send(lock.resolve_commit());
    send(lock.watch().nearing_end(std::time::Duration::ZERO));
    send(lock.watch().ended());
};

#[cfg(feature = "once")]
mod once {
    use lambda_lock::once::{Attempt, Once, OnceState, OnceStatus, Outcome, Started};
    use lambda_lock::{Error, LockClient};

    pinned! {
        Attempt: [Send Sync Unpin];
        Once<'static>: [Send Sync Unpin];
        OnceState: [Send Sync Unpin];
        OnceStatus: [Send Sync Unpin];
        Outcome<u8>: [Send Sync Unpin];
        Started<u8>: [Send Sync Unpin];
    }

    const _: fn(LockClient, Attempt) = |locks, attempt| {
        fn send(_: impl Send) {}
        send(locks.once("k").run(async |_| Ok::<_, Error>(1)));
        send(locks.once("k").start::<u8>());
        send(locks.once("k").status());
        send(attempt.complete(&1));
    };
}

#[cfg(feature = "lambda")]
mod lambda {
    use lambda_lock::lambda::{LockLayer, LockService, LockServiceError, Locked, Refuse};

    pinned! {
        Locked<u8>: [Send Sync Unpin];
        LockServiceError<std::io::Error>: [Send Sync Unpin];
        Refuse: [Send Sync Unpin];
        LockLayer<fn()>: [Send Sync Unpin];
        LockService<(), fn(), Refuse>: [Send Sync Unpin];
    }
}
