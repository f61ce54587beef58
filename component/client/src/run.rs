//! Runs the crate's futures.

use std::pin::Pin;
use wstd::runtime::block_on;

/// Blocks until the future ends. The executor gets futures of one type alone, because each type would add a copy of it.
pub(crate) fn run<T>(future: Pin<Box<dyn Future<Output = T> + Send + '_>>) -> T {
    let mut result = None;
    let store: Pin<Box<dyn Future<Output = ()> + '_>> = Box::pin(async { result = Some(future.await) });
    block_on(store);
    match result {
        Some(result) => result,
        None => unreachable!("the executor returned before the future"),
    }
}
