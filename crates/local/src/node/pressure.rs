//! Whether the disk that pods write to is nearly full. Then no new ones come, so that those that are there can go on.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rustix::fs::statvfs;
use tokio::sync::watch;

use super::site::Site;
use crate::clock::after;

/// How often it is looked: one system call. A program fills a gigabyte in a second.
const LOOK: Duration = Duration::from_secs(2);

/// What has to be free, as kubelets have it: a tenth of the space, a twentieth of the files. A large disk that is nine tenths full
/// has room for many sandboxes, so more than the second number is enough on any.
const SPACE: Measure = Measure {
    part: 10,
    enough: 5 << 30,
};
const FILES: Measure = Measure {
    part: 20,
    enough: 100_000,
};

struct Measure {
    /// One in so many.
    part: u64,
    enough: u64,
}

/// How much there is of something, and how much of it is free.
#[derive(Clone, Copy, Debug)]
struct Stock {
    all: u64,
    free: u64,
}

impl Measure {
    fn least(&self, stock: Stock) -> u64 {
        (stock.all / self.part).min(self.enough)
    }

    /// Half as much again has to be free before all is well: otherwise the first pod that comes would end it.
    fn is_short(&self, stock: Stock, was_short: bool) -> bool {
        let least = self.least(stock);
        stock.free < if was_short { least + least / 2 } else { least }
    }
}

#[derive(Clone, Copy, Debug)]
struct Disk {
    space: Stock,
    /// Nothing where the file system makes as many as it needs.
    files: Stock,
}

/// What is short, if something is. In words that stay the same until it is over: each change is written and told.
fn judge(before: Option<&str>, disk: Disk) -> Option<String> {
    let is_short = [(SPACE, disk.space), (FILES, disk.files)]
        .map(|(measure, stock)| measure.is_short(stock, before.is_some()));
    let mebi = |bytes: u64| bytes >> 20;
    match (before, is_short) {
        (_, [false, false]) => None,
        (Some(before), _) => Some(before.to_owned()),
        (None, [true, _]) => Some(format!(
            "{} MiB of {} MiB are free, and new pods wait until {} MiB are",
            mebi(disk.space.free),
            mebi(disk.space.all),
            mebi(SPACE.least(disk.space) / 2 * 3),
        )),
        (None, [false, true]) => Some(format!(
            "{} of {} files are free, and new pods wait until {} are",
            disk.files.free,
            disk.files.all,
            FILES.least(disk.files) / 2 * 3,
        )),
    }
}

/// What is told of it, for as long as somebody listens.
pub(super) struct Gauge {
    directory: PathBuf,
    tell: watch::Sender<Option<String>>,
}

impl Gauge {
    /// For the file system of a directory. It has been looked at once.
    pub(super) fn new(directory: PathBuf) -> (Self, watch::Receiver<Option<String>>) {
        let (tell, told) = watch::channel(None);
        let gauge = Self { directory, tell };
        gauge.look();
        (gauge, told)
    }

    fn look(&self) {
        // what cannot be looked at is told by whoever cannot use it
        let Ok(found) = statvfs(&self.directory) else {
            return;
        };
        let space = Stock {
            all: found.f_blocks.saturating_mul(found.f_frsize),
            free: found.f_bavail.saturating_mul(found.f_frsize),
        };
        let files = Stock {
            all: found.f_files,
            free: found.f_favail,
        };
        self.tell.send_if_modified(|told| {
            let now = judge(told.as_deref(), Disk { space, files });
            let is_news = *told != now;
            *told = now;
            is_news
        });
    }

    /// Says of the node when it begins and when it is over.
    pub(super) async fn watch(self, site: Arc<Site>) {
        let mut was_short = false;
        loop {
            let short = self.tell.borrow().clone();
            match (&short, was_short) {
                (Some(message), false) => {
                    let path = self.directory.display();
                    let message = format!("the disk of {path} is nearly full: {message}");
                    site.events
                        .say_of_node("Warning", "NodeHasDiskPressure", message);
                }
                (None, true) => {
                    let message = "there is space on the disk again, and pods are started";
                    site.events
                        .say_of_node("Normal", "NodeHasNoDiskPressure", message.to_owned());
                }
                _ => {}
            }
            was_short = short.is_some();
            let next = after(site.clock.now(), LOOK);
            drop(site.clock.sleep_until(next).await);
            self.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Disk, Stock, judge};

    const GI: u64 = 1 << 30;

    #[test]
    fn a_disk_is_nearly_full_by_its_size_and_stays_so_until_there_is_half_as_much_again() {
        let plenty = Stock {
            all: 1000,
            free: 1000,
        };
        let none = Stock { all: 0, free: 0 };
        let space = |all, free| Disk {
            space: Stock { all, free },
            files: none,
        };
        let files = |all, free| Disk {
            space: plenty,
            files: Stock { all, free },
        };
        for (disk, begins, goes_on) in [
            (space(100 * GI, 50 * GI), false, false),
            // nine tenths full, and still room for many
            (space(1000 * GI, 60 * GI), false, false),
            (space(1000 * GI, 6 * GI), false, true),
            (space(1000 * GI, 4 * GI), true, true),
            (space(20 * GI, 3 * GI), false, false),
            (space(20 * GI, 2 * GI), false, true),
            (space(20 * GI, GI), true, true),
            (space(20 * GI, 0), true, true),
            (files(1000, 100), false, false),
            (files(1000, 60), false, true),
            (files(1000, 40), true, true),
            (files(50_000_000, 200_000), false, false),
            (files(50_000_000, 90_000), true, true),
        ] {
            assert_eq!(judge(None, disk).is_some(), begins, "{disk:?}");
            let later = judge(Some("as it was"), disk);
            assert_eq!(later.as_deref(), goes_on.then_some("as it was"), "{disk:?}");
        }
        let message = judge(None, space(20 * GI, GI)).unwrap();
        assert_eq!(
            message,
            "1024 MiB of 20480 MiB are free, and new pods wait until 3072 MiB are"
        );
        let message = judge(None, files(1000, 40)).unwrap();
        assert_eq!(
            message,
            "40 of 1000 files are free, and new pods wait until 75 are"
        );
    }
}
