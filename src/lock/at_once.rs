//! What is done with several locks at the same time.

use futures_util::{FutureExt, StreamExt, stream};
use std::pin::Pin;

/// How many requests of a set are in flight at once.
const MAX_IN_FLIGHT: usize = 8;

/// One of several things to be done at once.
pub(super) type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Does all of them, a few at once. Returns the results in their order. The time of each has begun before this, so that those which
/// come last have no time of their own: they send one request, whose response is waited for briefly.
pub(super) async fn at_once<'a, T: Send + 'a>(tasks: impl IntoIterator<Item = Task<'a, T>>) -> Vec<T> {
    let tasks: Vec<_> = tasks.into_iter().collect();
    match <[Task<'a, T>; 1]>::try_from(tasks) {
        // Most guards have one lock, which needs no queue.
        Ok([only]) => vec![only.await],
        Err(tasks) => queued(tasks).await,
    }
}

async fn queued<T: Send>(tasks: Vec<Task<'_, T>>) -> Vec<T> {
    // One that takes long must not delay more than it has to, so the next one does not wait for its turn.
    let tasks: Vec<_> =
        tasks.into_iter().enumerate().map(|(index, task)| task.map(move |done| (index, done))).collect();
    let mut done: Vec<_> = stream::iter(tasks).buffer_unordered(MAX_IN_FLIGHT).collect().await;
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, done)| done).collect()
}
