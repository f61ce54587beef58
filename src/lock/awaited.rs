//! How a request is awaited.

/// Lets a request be awaited: by a future, which is boxed so that its type has a name.
macro_rules! awaited {
    ($request:ident $(<$life:lifetime>)? => $output:ty, |$this:ident| $future:expr) => {
        impl $(<$life>)? IntoFuture for $request $(<$life>)? {
            type Output = $output;
            type IntoFuture = std::pin::Pin<Box<dyn Future<Output = Self::Output> + Send $(+ $life)?>>;

            fn into_future(self) -> Self::IntoFuture {
                let $this = self;
                Box::pin($future)
            }
        }
    };
}

pub(crate) use awaited;
