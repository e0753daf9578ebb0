//! Signals as images and specs name them.

const NAMES: [(&str, i32); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// The C library keeps the two below for itself.
const FIRST_REAL_TIME: i32 = 34;
const LAST: i32 = 64;

/// The number of `SIGTERM`, `term`, `15` or `SIGRTMIN+3`; nothing if there is no such signal.
pub(super) fn number(text: &str) -> Option<i32> {
    let upper = text.trim().to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = match (name, name.split_at_checked(5)) {
        ("IOT", _) => 6,
        ("CLD", _) => 17,
        ("POLL", _) => 29,
        (_, Some(("RTMIN", rest))) => FIRST_REAL_TIME + offset(rest, '+')?,
        (_, Some(("RTMAX", rest))) => LAST - offset(rest, '-')?,
        _ => match NAMES.iter().find(|(known, _)| *known == name) {
            Some((_, number)) => *number,
            None => upper.parse().ok()?,
        },
    };
    (1..=LAST).contains(&number).then_some(number)
}

fn offset(text: &str, sign: char) -> Option<i32> {
    match text {
        "" => Some(0),
        text => {
            let offset = text.strip_prefix(sign)?.parse().ok()?;
            (0..=LAST - FIRST_REAL_TIME)
                .contains(&offset)
                .then_some(offset)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, expected) in [
            ("SIGTERM", Some(15)),
            ("TERM", Some(15)),
            ("sigint", Some(2)),
            ("SIGWINCH", Some(28)),
            ("SIGIOT", Some(6)),
            ("9", Some(9)),
            ("64", Some(64)),
            ("SIGRTMIN", Some(34)),
            ("SIGRTMIN+3", Some(37)),
            ("SIGRTMAX", Some(64)),
            ("SIGRTMAX-14", Some(50)),
            ("SIGRTMIN+31", None),
            ("SIGRTMIN-1", None),
            ("SIGRTMIN+-1", None),
            ("0", None),
            ("65", None),
            ("-1", None),
            ("SIGNOTHING", None),
            ("", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
