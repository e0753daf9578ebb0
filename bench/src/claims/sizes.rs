//! How much is measured.

use std::time::Duration;

#[derive(Clone)]
pub(crate) struct Sizes {
    pub(crate) idle: Duration,
    /// How long a cluster may take to become what is waited for.
    pub(crate) patience: Duration,
    /// The collector of a cluster looks for new kinds every 30 seconds and begins to watch them, which takes two
    /// seconds of everybody's time. A cluster that has been up for a while has that behind it.
    pub(crate) settling: Duration,
    pub(crate) claims: Claims,
    pub(crate) rollouts: Rollouts,
    pub(crate) scale: Scale,
}

#[derive(Clone)]
pub(crate) struct Claims {
    pub(crate) pool: usize,
    pub(crate) one_at_a_time: usize,
    /// Between two of them: the refill of the first shall not be in the way of the second.
    pub(crate) pause: Duration,
    pub(crate) in_parallel: usize,
    pub(crate) clients: usize,
    pub(crate) rate: f64,
    pub(crate) steady: Duration,
}

#[derive(Clone)]
pub(crate) struct Rollouts {
    pub(crate) edited_pool: usize,
    pub(crate) edited_rate: f64,
    pub(crate) rotated_pool: usize,
    /// How long a pod takes to start, and a container to restart.
    pub(crate) start: Duration,
    pub(crate) restart: Duration,
    /// The load before a rollout: at least so long and so many.
    pub(crate) before: Duration,
    pub(crate) claims_before: usize,
    /// Rollouts follow each other until so many claims came in while they ran.
    pub(crate) claims_during: usize,
    pub(crate) rounds: usize,
    pub(crate) give_up: Duration,
}

#[derive(Clone)]
pub(crate) struct Scale {
    pub(crate) pools: usize,
    pub(crate) each: usize,
    pub(crate) idle: Duration,
}

impl Sizes {
    pub(crate) fn full() -> Self {
        Self {
            idle: Duration::from_secs(10),
            patience: Duration::from_secs(1800),
            settling: Duration::from_secs(45),
            claims: Claims {
                pool: 100,
                one_at_a_time: 200,
                pause: Duration::from_millis(200),
                in_parallel: 1000,
                clients: 20,
                rate: 20.0,
                steady: Duration::from_secs(60),
            },
            rollouts: Rollouts {
                edited_pool: 40,
                edited_rate: 5.0,
                rotated_pool: 100,
                start: Duration::from_secs(3),
                restart: Duration::from_millis(1500),
                before: Duration::from_secs(30),
                claims_before: 100,
                claims_during: 100,
                rounds: 5,
                give_up: Duration::from_secs(300),
            },
            scale: Scale {
                pools: 10,
                each: 1000,
                idle: Duration::from_secs(30),
            },
        }
    }

    /// To see that everything works, not for figures.
    pub(crate) fn quick() -> Self {
        Self {
            idle: Duration::from_secs(2),
            patience: Duration::from_secs(120),
            settling: Duration::ZERO,
            claims: Claims {
                pool: 30,
                one_at_a_time: 20,
                in_parallel: 60,
                steady: Duration::from_secs(5),
                ..Self::full().claims
            },
            rollouts: Rollouts {
                edited_pool: 20,
                edited_rate: 2.5,
                rotated_pool: 20,
                before: Duration::from_secs(5),
                claims_before: 5,
                claims_during: 5,
                rounds: 1,
                give_up: Duration::from_secs(60),
                ..Self::full().rollouts
            },
            scale: Scale {
                pools: 2,
                each: 50,
                idle: Duration::from_secs(3),
            },
        }
    }
}
