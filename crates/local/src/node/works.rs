//! What threads do in the directory of a pod: one at a time, as containers that start together have volumes in common. Nobody
//! can stop them, so whoever removes the directory waits for them.

use std::sync::Arc;

use tokio::{
    sync::{Mutex, MutexGuard},
    task::{JoinError, spawn_blocking},
};

/// Clones are of the same pod.
#[derive(Clone, Default)]
pub(crate) struct Works(Arc<Mutex<()>>);

impl Works {
    /// Does something on a thread that may wait for the disk. It is done to its end, whether or not anybody waits for that.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = Arc::clone(&self.0).lock_owned().await;
        let worked = spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        worked.await
    }

    /// Waits until all that was begun is done. Nothing else begins while what is returned is held.
    pub(crate) async fn done(&self) -> MutexGuard<'_, ()> {
        self.0.lock().await
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Mutex, mpsc},
        time::Duration,
    };

    use futures::{FutureExt as _, poll};
    use tokio::time::timeout;

    use super::Works;

    #[tokio::test]
    async fn work_that_nobody_waits_for_any_more_is_still_waited_for() {
        let (works, directory) = (Works::default(), tempfile::tempdir().unwrap());
        let path = directory.path().join("volume");
        let (go, gone) = mpsc::channel();
        let gone = Mutex::new(gone);
        let made = path.clone();
        let mut work = works
            .run(move || {
                gone.lock().unwrap().recv().unwrap();
                std::fs::create_dir(made).unwrap();
            })
            .boxed();
        assert!(poll!(&mut work).is_pending());
        drop(work);
        let mut done = works.done().boxed();
        assert!(timeout(Duration::from_millis(50), &mut done).await.is_err());
        go.send(()).unwrap();
        let _alone = done.await;
        assert!(path.exists());
        assert!(poll!(works.run(|| ()).boxed()).is_pending());
    }

    #[tokio::test]
    async fn no_work_begins_before_the_one_before_it_is_done() {
        let works = Works::default();
        let (go, gone) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let second_tells = tell.clone();
        let first = works.run(move || {
            gone.recv().unwrap();
            tell.send("first").unwrap();
        });
        let second = works.run(move || second_tells.send("second").unwrap());
        let mut both = futures::future::join(first, second).boxed();
        assert!(timeout(Duration::from_millis(50), &mut both).await.is_err());
        go.send(()).unwrap();
        let _ = both.await;
        assert_eq!(told.iter().collect::<Vec<_>>(), ["first", "second"]);
    }
}
