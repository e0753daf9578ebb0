//! A bounded channel that has no memory for messages until they come. Each process and each stream has one, nearly always empty;
//! tokio's holds room for 32 messages from its beginning.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

pub(super) fn bounded<T>(most: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        most,
        state: Mutex::new(State {
            waiting: VecDeque::new(),
            reader: None,
            senders: 1,
            has_receiver: true,
        }),
        room: Notify::new(),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

struct Shared<T> {
    most: usize,
    state: Mutex<State<T>>,
    /// Told when a message was taken, and when none will be any more.
    room: Notify,
}

struct State<T> {
    waiting: VecDeque<T>,
    reader: Option<Waker>,
    senders: usize,
    has_receiver: bool,
}

impl<T> State<T> {
    /// Not under the lock, which it takes next.
    fn wake_reader(mut state: MutexGuard<'_, Self>) {
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is nobody who would receive it.
#[derive(Debug)]
pub(super) struct Left;

pub(super) struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Waits until there is room.
    pub(super) async fn send(&self, mut message: T) -> Result<(), Left> {
        loop {
            // before the look: what changes after it is heard of
            let room = self.0.room.notified();
            match self.offer(message)? {
                None => return Ok(()),
                Some(refused) => message = refused,
            }
            room.await;
        }
    }

    /// Gives the message back if there is no room for it.
    pub(super) fn offer(&self, message: T) -> Result<Option<T>, Left> {
        let mut state = self.0.state();
        if !state.has_receiver {
            return Err(Left);
        }
        if state.waiting.len() >= self.0.most {
            return Ok(Some(message));
        }
        state.waiting.push_back(message);
        State::wake_reader(state);
        Ok(None)
    }

    pub(super) fn is_closed(&self) -> bool {
        !self.0.state().has_receiver
    }

    /// Until nobody will receive anything any more.
    pub(super) async fn closed(&self) {
        loop {
            let room = self.0.room.notified();
            if self.is_closed() {
                return;
            }
            room.await;
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.senders -= 1;
        if state.senders == 0 {
            State::wake_reader(state);
        }
    }
}

pub(super) struct Receiver<T>(Arc<Shared<T>>);

impl<T> Receiver<T> {
    /// None when all senders are gone and nothing is left.
    pub(super) async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    pub(super) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.state();
        if let Some(message) = state.waiting.pop_front() {
            drop(state);
            self.0.room.notify_waiters();
            return Poll::Ready(Some(message));
        }
        if state.senders == 0 {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.has_receiver = false;
        let unread = (std::mem::take(&mut state.waiting), state.reader.take());
        drop(state);
        drop(unread);
        self.0.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn messages_arrive_in_their_order_and_the_end_after_them() {
        let (sender, mut receiver) = bounded(2);
        let sending = tokio::spawn(async move {
            for number in 0..1_000 {
                sender.send(number).await.expect("it is received");
            }
        });
        for number in 0..1_000 {
            assert_eq!(receiver.recv().await, Some(number));
        }
        assert_eq!(receiver.recv().await, None);
        sending.await.expect("all was sent");
    }

    #[tokio::test]
    async fn one_too_many_waits_until_one_was_taken() {
        let (sender, mut receiver) = bounded(1);
        sender.send(1).await.expect("there is room");
        assert_eq!(sender.offer(2).expect("it is open"), Some(2));
        assert!(timeout(SOON, sender.send(2)).await.is_err());
        let (sent, first) = tokio::join!(sender.send(2), receiver.recv());
        sent.expect("there is room again");
        assert_eq!((first, receiver.recv().await), (Some(1), Some(2)));
    }

    #[tokio::test]
    async fn who_waits_for_room_hears_that_the_receiver_has_left() {
        let (sender, receiver) = bounded(1);
        sender.send(1).await.expect("there is room");
        let other = sender.clone();
        let waiting = tokio::spawn(async move { other.send(2).await.is_err() });
        let hearing = tokio::spawn(async move { sender.closed().await });
        tokio::task::yield_now().await;
        drop(receiver);
        let refused = timeout(LATE, waiting).await.expect("it was answered");
        assert!(refused.expect("it did not panic"));
        let told = timeout(LATE, hearing).await.expect("it was told");
        told.expect("it did not panic");
    }

    #[tokio::test]
    async fn it_ends_with_the_last_sender_and_not_before() {
        let (sender, mut receiver) = bounded::<u8>(1);
        let other = sender.clone();
        drop(sender);
        assert!(timeout(SOON, receiver.recv()).await.is_err());
        let ending = tokio::spawn(async move { receiver.recv().await });
        tokio::task::yield_now().await;
        drop(other);
        let end = timeout(LATE, ending).await.expect("it was told");
        assert_eq!(end.expect("it did not panic"), None);
    }
}
