//! Randomness: owners come from the system's source; jitter from a small generator that is seeded from it.

use std::io;

/// Fills `buffer` from the system's random source.
pub(crate) fn system(buffer: &mut [u8]) -> io::Result<()> {
    getrandom::fill(buffer).map_err(|error| io::Error::other(format!("no randomness from the system: {error}")))
}

/// `splitmix64`: spreads retries, guards nothing.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    #[cfg(test)]
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// Seeded by the system, or where that has nothing by the address of a value, which is random enough for jitter.
    pub(crate) fn new() -> Self {
        let mut seed = [0; 8];
        if system(&mut seed).is_err() {
            return Self((&raw const seed).addr() as u64);
        }
        Self(u64::from_ne_bytes(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 up to, and without, `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next() % end }
    }

    /// A random half to whole of `whole`.
    pub(crate) fn half_to_whole(&mut self, whole: u64) -> u64 {
        whole / 2 + self.below(whole / 2 + 1)
    }
}
