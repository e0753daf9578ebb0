//! One copy of what is equal. The schemas of all kinds that hold a pod spec hold the same few hundred parts, many of
//! them dozens of times each.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
    ops::Deref,
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// A value that may stand in many places. Two are equal only if they are the same one, so that what holds some is
/// compared without looking into them.
pub(crate) struct Shared<T>(Arc<T>);

/// The values of a type that somebody holds.
pub(crate) struct Pool<T>(Mutex<Known<T>>);

struct Known<T> {
    /// By hash. Of two that differ and have the same one, the later is found again; that costs memory, no more.
    values: HashMap<u64, Weak<T>, BuildHasherDefault<DefaultHasher>>,
    /// With how many values to look for those that nobody holds any more.
    tidy_at: usize,
}

const FEWEST_TO_TIDY: usize = 64;

impl<T> Pool<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Known {
            values: HashMap::with_hasher(BuildHasherDefault::new()),
            tidy_at: FEWEST_TO_TIDY,
        }))
    }
}

impl<T: Hash + PartialEq> Pool<T> {
    /// The value, or the one that is held already and equals it.
    pub(crate) fn share(&self, value: T) -> Shared<T> {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        let hash = hasher.finish();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = known.values.get(&hash).and_then(Weak::upgrade);
        if let Some(held) = held.filter(|held| **held == value) {
            return Shared(held);
        }
        let value = Arc::new(value);
        known.values.insert(hash, Arc::downgrade(&value));
        known.tidy();
        Shared(value)
    }
}

impl<T> Known<T> {
    fn tidy(&mut self) {
        if self.values.len() < self.tidy_at {
            return;
        }
        self.values.retain(|_, value| value.strong_count() > 0);
        self.tidy_at = FEWEST_TO_TIDY.max(2 * self.values.len());
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{FEWEST_TO_TIDY, Pool};

    fn known(pool: &Pool<String>) -> usize {
        pool.0.lock().map_or(0, |known| known.values.len())
    }

    #[test]
    fn what_is_equal_is_kept_once() {
        let pool = Pool::new();
        let one = pool.share("a".to_owned());
        let two = pool.share("a".to_owned());
        let other = pool.share("b".to_owned());
        assert_eq!(one, two);
        assert_ne!(one, other);
        assert_eq!(known(&pool), 2);
    }

    #[test]
    fn what_nobody_holds_goes() {
        let pool = Pool::new();
        let held = pool.share("held".to_owned());
        for number in 0..10 * FEWEST_TO_TIDY {
            pool.share(number.to_string());
        }
        assert!(known(&pool) <= FEWEST_TO_TIDY);
        assert_eq!(pool.share("held".to_owned()), held);
    }
}
