//! The links of runners that dial in: each ends with the hub, and at once when its runner is revoked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use qd_link::memory::LinkEnd;
use qd_link::mutex::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::hub::Hub;
use crate::runners::link::{self, RunnerIdentity};

/// All links of one hub.
#[derive(Default)]
pub(crate) struct OpenLinks {
    stop: CancellationToken,
    tasks: TaskTracker,
    passes: Arc<Mutex<LinkPermits>>,
}

#[derive(Default)]
struct LinkPermits {
    last_number: u64,
    open: HashMap<u64, (Arc<str>, CancellationToken)>,
}

/// Leave to serve one link of a runner. It is taken before the key is looked up: so who revokes the runner either
/// comes before that, or finds the pass.
pub(crate) struct LinkPermit {
    number: u64,
    stop: CancellationToken,
    passes: Arc<Mutex<LinkPermits>>,
}

impl OpenLinks {
    pub(crate) fn pass(&self, runner_id: &str) -> LinkPermit {
        let stop = self.stop.child_token();
        let mut passes = self.passes.lock();
        passes.last_number += 1;
        let number = passes.last_number;
        passes.open.insert(number, (Arc::from(runner_id), stop.clone()));
        LinkPermit { number, stop, passes: Arc::clone(&self.passes) }
    }

    /// Serves the link in a task of its own.
    pub(crate) fn start(&self, hub: &Arc<Hub>, pass: LinkPermit, identity: RunnerIdentity, link: LinkEnd) {
        let hub = Arc::clone(hub);
        self.tasks.spawn(async move {
            link::run(hub, identity, link, pass.stop.clone()).await;
            drop(pass);
        });
    }

    /// Runs a task that ends with the links.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Ends the links of one runner, also those that are only being opened.
    pub(crate) fn end(&self, runner_id: &str) {
        let passes = self.passes.lock();
        let its = passes.open.values().filter(|(owner, _)| &**owner == runner_id);
        its.for_each(|(_, stop)| stop.cancel());
    }

    /// Ends all; what was read is committed, within `grace`.
    pub(crate) async fn close(&self, grace: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(grace, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                links = self.tasks.len(),
                "some runner links did not end in time; their runners send again what was not acked"
            );
        }
    }
}

impl Drop for LinkPermit {
    fn drop(&mut self) {
        self.passes.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_ends_with_its_runner_or_with_the_hub_and_leaves_nothing() {
        let links = OpenLinks::default();
        let (one, again, other) = (links.pass("one"), links.pass("one"), links.pass("other"));
        links.end("one");
        assert!(one.stop.is_cancelled() && again.stop.is_cancelled() && !other.stop.is_cancelled());
        links.stop.cancel();
        assert!(other.stop.is_cancelled());
        drop((one, again, other));
        assert!(links.passes.lock().open.is_empty());
    }
}
