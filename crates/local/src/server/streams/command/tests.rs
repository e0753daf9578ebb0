#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use super::{TerminalSize, Verdict, Version, sizes};

fn told(verdict: &Verdict, version: Version) -> String {
    let text = verdict.tell(version).unwrap();
    String::from_utf8(text.to_vec()).unwrap()
}

#[test]
fn the_end_is_told_as_each_version_tells_it() {
    let exit = Verdict::Exit {
        code: 3,
        command: vec!["sh".to_owned(), "-c".to_owned()],
    };
    let four: Value = serde_json::from_str(&told(&exit, Version::Four)).unwrap();
    assert_eq!(
        four,
        json!({
            "metadata": {},
            "status": "Failure",
            "message": "command terminated with non-zero exit code: error executing command [sh -c], exit code 3",
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
        })
    );
    let five: Value = serde_json::from_str(&told(&exit, Version::Five)).unwrap();
    assert_eq!(
        five["message"],
        "command terminated with non-zero exit code: command terminated with exit code 3"
    );
    assert_eq!(
        told(&exit, Version::Three),
        "command terminated with non-zero exit code: error executing command [sh -c], exit code 3"
    );
    assert_eq!(Verdict::Success.tell(Version::Two), None);
    assert_eq!(
        told(&Verdict::Success, Version::Five),
        r#"{"metadata":{},"status":"Success"}"#
    );
    let failed = Verdict::Failed("it burns".to_owned());
    assert_eq!(
        told(&failed, Version::One),
        "Internal error occurred: it burns"
    );
    let failed: Value = serde_json::from_str(&told(&failed, Version::Four)).unwrap();
    assert_eq!(failed["message"], "Internal error occurred: it burns");
    assert_eq!(
        (&failed["reason"], &failed["code"]),
        (&json!("InternalError"), &json!(500))
    );
}

#[test]
fn sizes_come_in_pieces_and_the_last_one_counts() {
    let mut text = br#"{"Width":80,"Height":24}{"Width":100,"#.to_vec();
    let size = |width, height| TerminalSize { width, height };
    assert_eq!(sizes(&mut text), Some(Some(size(80, 24))));
    text.extend_from_slice(br#""Height":30}"#);
    assert_eq!(sizes(&mut text), Some(Some(size(100, 30))));
    assert_eq!(text, b"");
    assert_eq!(sizes(&mut b" \n".to_vec()), Some(None));
    assert_eq!(sizes(&mut b"{\"Width\":-1}".to_vec()), None);
    assert_eq!(sizes(&mut b"xterm".to_vec()), None);
}
