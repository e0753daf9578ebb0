//! Being told to stop.

use std::{io, process::exit};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// Resolves at the first signal to stop. The second ends the process, whatever it is doing.
pub(crate) fn asked_to_stop() -> io::Result<oneshot::Receiver<()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (ask, asked) = oneshot::channel();
    tokio::spawn(async move {
        let mut ask = Some(ask);
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            match ask.take() {
                Some(ask) => drop(ask.send(())),
                // as a shell reports a program that Ctrl-C has ended
                None => exit(130),
            }
        }
    });
    Ok(asked)
}
