//! The task that looks at the deadlines of what is not a session's: acquires without a session, errands, closing.

use std::time::Duration;

use crate::shared::TaskGuard;

pub(crate) async fn run(guard: TaskGuard) {
    let shared = &guard.shared;
    let keeper = shared.with(|core| core.keeper().clone());
    loop {
        let now = shared.clock.now();
        let next = shared.with(|core| {
            core.look(now);
            core.look_at()
        });
        let Some(next) = next else { return };
        tokio::select! {
            () = keeper.notified() => {}
            () = tokio::time::sleep(Duration::from_nanos(next.saturating_sub(now))) => {}
        }
    }
}
