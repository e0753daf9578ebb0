#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use futures::StreamExt as _;
use tempfile::TempDir;
use tokio::sync::watch;

use super::{LONGEST, LogFile, read};
use crate::server::streams::node::{Log, LogOptions, LogStream};

const TIME: &str = "2026-11-16T17:00:00.000000001Z";
const LATER: &str = "2026-11-16T17:00:01.000000000Z";

fn all() -> LogOptions {
    LogOptions {
        container: "main".to_owned(),
        container_id: "x://1".to_owned(),
        previous: false,
        follow: false,
        since: None,
        tail: None,
        limit: None,
        timestamps: false,
        stream: LogStream::All,
    }
}

/// A container's log and whether it runs.
struct Container {
    directory: TempDir,
    running: watch::Sender<bool>,
}

impl Container {
    fn new(lines: &[&str]) -> Self {
        let container = Self {
            directory: TempDir::new().unwrap(),
            running: watch::Sender::new(true),
        };
        container.write(lines);
        container
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, lines: &[&str]) {
        let file = File::options()
            .create(true)
            .append(true)
            .open(self.path("0.log"));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// As a shim does it: the oldest first, and the new file last.
    fn rotate(&self) {
        for age in (0..8).rev() {
            let name = |age: u32| match age {
                0 => self.path("0.log"),
                age => self.path(&format!("0.log.{age}")),
            };
            if name(age).exists() {
                fs::rename(name(age), name(age + 1)).unwrap();
            }
        }
        self.write(&[]);
    }

    fn log(&self, options: &LogOptions) -> Log {
        let log = LogFile {
            path: self.path("0.log"),
            running: self.running.subscribe(),
        };
        read(log, options)
    }

    async fn text(&self, options: &LogOptions) -> String {
        rest(self.log(options)).await
    }
}

async fn rest(mut log: Log) -> String {
    let mut text = Vec::new();
    while let Some(bytes) = log.next().await {
        text.extend_from_slice(&bytes.unwrap());
    }
    String::from_utf8(text).unwrap()
}

/// What a follower is given until it is as long as this.
async fn given(log: &mut Log, expected: &str) {
    let mut text = String::new();
    while text.len() < expected.len() {
        let bytes = log.next().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert_eq!(text, expected);
}

fn line(stream: &str, tag: &str, text: &str) -> String {
    format!("{TIME} {stream} {tag} {text}")
}

#[tokio::test]
async fn lines_are_shown_without_what_stands_before_them() {
    let container = Container::new(&[
        &line("stdout", "F", "one"),
        &line("stderr", "F", ""),
        &line("stdout", "P", "two and "),
        &line("stdout", "F:x", "a half"),
        "no line",
        &line("stdin", "F", "nor this"),
        &line("stdout", "P", "no end"),
    ]);
    assert_eq!(
        container.text(&all()).await,
        "one\n\ntwo and a half\nno end"
    );
    let options = LogOptions {
        timestamps: true,
        ..all()
    };
    let expected = format!("{TIME} one\n{TIME} \n{TIME} two and a half\n{TIME} no end");
    assert_eq!(container.text(&options).await, expected);
}

#[tokio::test]
async fn one_of_two_streams_can_be_chosen() {
    let container = Container::new(&[&line("stdout", "F", "out"), &line("stderr", "F", "err")]);
    for (stream, expected) in [
        (LogStream::Stdout, "out\n"),
        (LogStream::Stderr, "err\n"),
        (LogStream::All, "out\nerr\n"),
    ] {
        let options = LogOptions { stream, ..all() };
        assert_eq!(container.text(&options).await, expected);
    }
}

#[tokio::test]
async fn what_was_written_earlier_is_left_out() {
    let container = Container::new(&[
        &line("stdout", "F", "early"),
        &format!("{LATER} stdout F late"),
    ]);
    for (since, expected) in [
        ("2026-11-16T17:00:00Z", "early\nlate\n"),
        (LATER, "late\n"),
        ("2026-11-16T17:00:02Z", ""),
    ] {
        let options = LogOptions {
            since: Some(since.parse().unwrap()),
            ..all()
        };
        assert_eq!(container.text(&options).await, expected);
    }
}

#[tokio::test]
async fn the_last_lines_are_counted_over_all_files_and_in_whole() {
    let container = Container::new(&[&line("stdout", "F", "1"), &line("stdout", "F", "2")]);
    container.rotate();
    container.write(&[
        &line("stdout", "P", "3"),
        &line("stdout", "P", "3"),
        &line("stdout", "F", "3"),
    ]);
    container.rotate();
    container.write(&[&line("stdout", "F", "4"), &line("stdout", "P", "5")]);
    for (tail, expected) in [
        (0, ""),
        (1, "5"),
        (2, "4\n5"),
        (3, "333\n4\n5"),
        (4, "2\n333\n4\n5"),
        (5, "1\n2\n333\n4\n5"),
        (u64::MAX, "1\n2\n333\n4\n5"),
    ] {
        let options = LogOptions {
            tail: Some(tail),
            ..all()
        };
        assert_eq!(container.text(&options).await, expected, "{tail}");
    }
}

#[tokio::test]
async fn no_more_bytes_are_shown_than_were_asked_for() {
    let container = Container::new(&[&line("stdout", "F", "one"), &line("stdout", "F", "two")]);
    for (limit, expected) in [(2, "on"), (4, "one\n"), (5, "one\nt"), (99, "one\ntwo\n")] {
        let options = LogOptions {
            limit: Some(limit),
            follow: limit < 8,
            ..all()
        };
        assert_eq!(container.text(&options).await, expected);
    }
}

#[tokio::test]
async fn a_follower_gets_lines_when_they_are_whole_and_ends_with_the_container() {
    let container = Container::new(&[&line("stdout", "F", "one")]);
    let options = LogOptions {
        follow: true,
        tail: Some(1),
        ..all()
    };
    let mut log = container.log(&options);
    // it has to begin before there is more
    given(&mut log, "one\n").await;
    let first = tokio::spawn(async move {
        given(&mut log, "two\n").await;
        log
    });
    let mut file = File::options()
        .append(true)
        .open(container.path("0.log"))
        .unwrap();
    write!(file, "{TIME} stdout F tw").unwrap();
    tokio::time::sleep(super::PAUSE * 2).await;
    writeln!(file, "o").unwrap();
    let log = first.await.unwrap();
    container.write(&[&line("stdout", "F", "three")]);
    container.running.send_replace(false);
    assert_eq!(rest(log).await, "three\n");
}

#[tokio::test]
async fn a_follower_goes_on_over_rotated_files_and_loses_nothing() {
    let container = Container::new(&[&line("stdout", "F", "1")]);
    let options = LogOptions {
        follow: true,
        ..all()
    };
    let mut log = container.log(&options);
    given(&mut log, "1\n").await;
    container.write(&[&line("stdout", "F", "2")]);
    container.rotate();
    container.write(&[&line("stdout", "F", "3")]);
    container.rotate();
    container.rotate();
    container.write(&[&line("stdout", "F", "4")]);
    given(&mut log, "2\n3\n4\n").await;
    container.rotate();
    container.write(&[&line("stdout", "F", "5")]);
    container.running.send_replace(false);
    assert_eq!(rest(log).await, "5\n");
}

#[tokio::test]
async fn a_log_that_does_not_exist_yet_is_waited_for() {
    let container = Container::new(&[]);
    fs::remove_file(container.path("0.log")).unwrap();
    assert_eq!(container.text(&all()).await, "");
    let options = LogOptions {
        follow: true,
        ..all()
    };
    let mut log = container.log(&options);
    let first = tokio::spawn(async move { given(&mut log, "one\n").await });
    container.write(&[&line("stdout", "F", "one")]);
    first.await.unwrap();
}

#[tokio::test]
async fn a_line_that_is_far_too_long_is_left_out() {
    let long = line("stdout", "F", &"x".repeat(LONGEST + 1));
    let container = Container::new(&[&long, &line("stdout", "F", "one")]);
    assert_eq!(container.text(&all()).await, "one\n");
}

#[tokio::test]
async fn a_large_log_is_given_in_pieces_and_whole() {
    let lines: Vec<String> = (0..50_000)
        .map(|number| line("stdout", "F", &number.to_string()))
        .collect();
    let container = Container::new(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let expected: String = (0..50_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(container.text(&all()).await, expected);
    let options = LogOptions {
        tail: Some(2),
        ..all()
    };
    assert_eq!(container.text(&options).await, "49998\n49999\n");
}
