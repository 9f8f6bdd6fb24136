//! What every loom story shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Explores all executions of a story and checks that there was more than one. Counted for each story: others run
/// beside it.
pub fn explore(story: impl Fn() + Sync + Send + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    loom::model(move || {
        count.fetch_add(1, Ordering::SeqCst);
        story();
    });
    assert!(executions.load(Ordering::SeqCst) > 1, "more than one execution");
}
