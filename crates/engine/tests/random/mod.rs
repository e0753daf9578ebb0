//! Numbers that are the same at every run (splitmix64).
#![allow(unreachable_pub, reason = "a part of one test program")]

/// A source of randomness.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Above zero and at most one.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.unit() <= share
    }

    pub fn exponential(&mut self, rate: f64) -> f64 {
        -self.unit().ln() / rate
    }

    /// With this mean and a spread as starts of pods have it.
    pub fn log_normal(&mut self, mean: f64) -> f64 {
        let spread = 0.3;
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        mean * (spread * normal - spread * spread / 2.0).exp()
    }
}
