//! The elapsed clock of this machine: true elapsed time, bent by neither step, slew nor suspend.
//!
//! On Linux `CLOCK_MONOTONIC_RAW`, which is not slewed, plus the time spent suspended, which is `CLOCK_BOOTTIME` less
//! `CLOCK_MONOTONIC` (the specification, Words). Elsewhere `std::time::Instant`, which may be slewed and may stand
//! still during sleep.

#[cfg(test)]
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds: a reading of the elapsed clock, or a distance between two.
pub(crate) type Nanos = u64;

pub(crate) const SECOND: Nanos = 1_000_000_000;
pub(crate) const MILLISECOND: Nanos = 1_000_000;
/// Later than any reading.
pub(crate) const NEVER: Nanos = 1 << 62;

/// Reads elapsed time; tests put one of their own in its place.
#[derive(Clone)]
pub(crate) struct Clock(Source);

#[derive(Clone)]
enum Source {
    Machine,
    /// The machine's, and so much more.
    #[cfg(test)]
    Moved(Arc<AtomicU64>),
}

impl Clock {
    /// This machine's.
    pub(crate) fn machine() -> Self {
        Self(Source::Machine)
    }

    /// The machine's plus what `ahead` holds.
    #[cfg(test)]
    pub(crate) fn moved(ahead: Arc<AtomicU64>) -> Self {
        Self(Source::Moved(ahead))
    }

    /// A fresh reading. Never goes back, on whatever threads it is read.
    pub(crate) fn now(&self) -> Nanos {
        match &self.0 {
            Source::Machine => machine::elapsed(),
            #[cfg(test)]
            Source::Moved(ahead) => machine::elapsed() + ahead.load(Ordering::SeqCst),
        }
    }
}

#[cfg(target_os = "linux")]
mod machine {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::time::{ClockId, Timespec, clock_gettime};

    use super::Nanos;

    const SPAN_MAX: Nanos = 100_000;
    const READINGS_MAX: u32 = 1_000;

    fn nanos(time: Timespec) -> Nanos {
        // None of the three clocks is ever negative.
        time.tv_sec.unsigned_abs() * super::SECOND + time.tv_nsec.unsigned_abs()
    }

    fn read(clock: ClockId) -> Nanos {
        nanos(clock_gettime(clock))
    }

    static SUM: Sum = Sum { suspended: AtomicU64::new(0), last: AtomicU64::new(0) };

    pub(super) fn elapsed() -> Nanos {
        SUM.elapsed(|| read(ClockId::Monotonic), || read(ClockId::MonotonicRaw), || read(ClockId::Boottime))
    }

    /// The greatest values seen so far.
    pub(super) struct Sum {
        pub(super) suspended: AtomicU64,
        pub(super) last: AtomicU64,
    }

    impl Sum {
        /// A stop of this thread between two of the readings would bend the sum, so they are made anew until they lie
        /// within 100 µs. On a machine too busy for that it goes on with the greatest suspend time it has seen:
        /// BOOTTIME less a MONOTONIC read after it never exceeds the true one, so no value is ever ahead of now.
        pub(super) fn elapsed(
            &self,
            monotonic: impl Fn() -> Nanos,
            raw: impl Fn() -> Nanos,
            boottime: impl Fn() -> Nanos,
        ) -> Nanos {
            let mut readings = 0;
            let value = loop {
                let before = monotonic();
                let value = raw();
                let boot = boottime();
                let after = monotonic();
                self.suspended.fetch_max(boot.saturating_sub(after), Ordering::Relaxed);
                if after - before < SPAN_MAX || readings == READINGS_MAX {
                    break value;
                }
                readings += 1;
            };
            let value = value + self.suspended.load(Ordering::Relaxed);
            self.last.fetch_max(value, Ordering::Relaxed).max(value)
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod machine {
    use std::sync::OnceLock;
    use std::time::Instant;

    use super::Nanos;

    pub(super) fn elapsed() -> Nanos {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        // One second ahead of 0, which is no moment.
        let since = BEGIN.get_or_init(Instant::now).elapsed();
        super::SECOND + u64::try_from(since.as_nanos()).unwrap_or(super::NEVER - super::SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_grow_at_the_rate_of_time() {
        let clock = Clock::machine();
        let (began, first) = (std::time::Instant::now(), clock.now());
        while began.elapsed().as_millis() < 50 {}
        let elapsed = clock.now() - first;
        let by_instant = u64::try_from(began.elapsed().as_nanos()).unwrap();
        assert!(elapsed >= 49 * MILLISECOND && elapsed <= by_instant + by_instant / 100, "{elapsed} {by_instant}");
    }

    #[cfg(target_os = "linux")]
    mod sum {
        use std::cell::Cell;
        use std::sync::atomic::AtomicU64;

        use super::super::machine::Sum;

        #[test]
        fn it_counts_suspends_and_never_goes_back() {
            let sum = Sum { suspended: AtomicU64::new(0), last: AtomicU64::new(0) };
            assert_eq!(sum.elapsed(|| 1_000, || 500, || 1_000), 500);
            // Suspended for 7 µs.
            assert_eq!(sum.elapsed(|| 1_100, || 600, || 8_100), 7_600);
            assert_eq!(sum.elapsed(|| 1_100, || 590, || 8_100), 7_600);
        }

        #[test]
        fn a_stop_between_the_readings_bends_nothing() {
            let sum = Sum { suspended: AtomicU64::new(0), last: AtomicU64::new(0) };
            let time = Cell::new(10_000_000);
            let stopped = Cell::new(false);
            let monotonic = || time.get();
            let raw = || time.get() - 3_000_000;
            let boottime = || {
                if !stopped.replace(true) {
                    time.set(time.get() + 5_000_000);
                }
                time.get()
            };
            assert_eq!(sum.elapsed(monotonic, raw, boottime), 12_000_000);
        }
    }
}
