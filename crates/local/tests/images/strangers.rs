//! Registries that break off, lie, or want to know who asks.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use local::image::layer::LayerError;
use local::image::{Auth, Digest, Error, Image, Reference};

use crate::support::{Layer, Layout, MANIFEST, Place, Tar};

/// What a client asked for.
struct Asked {
    path: String,
    headers: BTreeMap<String, String>,
}

impl Asked {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// A server that writes whatever its function returns, and closes the connection.
struct Server {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(answer: impl Fn(&Asked) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let mut stream = stream.unwrap();
                if let Some(asked) = read(&stream) {
                    let _ = stream.write_all(&answer(&asked));
                }
            }
        });
        Self {
            address,
            is_over,
            thread: Some(thread),
        }
    }

    fn reference(&self, rest: &str) -> Reference {
        format!("{}/{rest}", self.address).parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    Some(Asked { path, headers })
}

fn reply(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// An image of one layer of many bytes that do not compress.
fn image() -> (Layout, Vec<u8>) {
    let text: String = (0..40_000_u64)
        .map(|number| format!("{:x} ", number * number))
        .collect();
    let layer = Layer::plain(Tar::default().file("file", &text));
    let blob = layer.blob.clone();
    (Layout::default().named("x", &[layer]), blob)
}

/// What an honest registry answers. The repository is `a/b`, and every tag is the first image.
fn honest(layout: &Layout, asked: &Asked) -> Vec<u8> {
    let first = layout.manifests[0]["digest"].as_str().unwrap();
    let name = asked.path.rsplit('/').next().unwrap();
    let digest = if name.starts_with("sha256:") {
        name
    } else {
        first
    };
    let Some(content) = layout.blobs.get(digest.trim_start_matches("sha256:")) else {
        return reply("404 Not Found", &[], b"");
    };
    if asked.path.contains("/manifests/") {
        return reply("200 OK", &[("Content-Type", MANIFEST)], content);
    }
    let range = asked.header("range").and_then(|text| {
        let from = text.strip_prefix("bytes=")?.strip_suffix('-')?;
        from.parse::<usize>().ok()
    });
    match range {
        Some(from) => {
            let part = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
            reply(
                "206 Partial Content",
                &[("Content-Range", &part)],
                &content[from..],
            )
        }
        None => reply("200 OK", &[], content),
    }
}

fn is_blob(asked: &Asked, blob: &[u8]) -> bool {
    asked.path.ends_with(&Digest::of(blob).to_string())
}

async fn pull(place: &Place, server: &Server) -> Result<Image, Error> {
    let reference = server.reference("a/b:1");
    place
        .images
        .pull(&reference, &Auth::Anonymous, |_| {})
        .await
}

fn assert_whole(place: &Place, image: &Image) {
    let length = fs::metadata(image.layers[0].join("file")).unwrap().len();
    assert!(length > 100_000);
    assert_eq!((place.count("downloads"), place.unfinished()), (0, 0));
}

#[tokio::test]
async fn a_download_that_breaks_off_goes_on_where_it_was() {
    let (layout, blob) = image();
    let ranges = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&ranges);
    let half = blob.len() / 2;
    let server = Server::start(move |asked| {
        let mut answer = honest(&layout, asked);
        if is_blob(asked, &blob) {
            let mut seen = seen.lock().unwrap();
            seen.push(asked.header("range").map(str::to_owned));
            if seen.len() == 1 {
                answer.truncate(half);
            }
        }
        answer
    });
    let place = Place::new();
    let image = pull(&place, &server).await.unwrap();
    assert_whole(&place, &image);
    let ranges = ranges.lock().unwrap();
    assert_eq!(ranges.len(), 2);
    assert_eq!(ranges[0], None);
    assert!(
        ranges[1]
            .as_ref()
            .is_some_and(|range| range.starts_with("bytes="))
    );
}

#[tokio::test]
async fn where_a_download_cannot_go_on_it_begins_anew() {
    let (layout, blob) = image();
    let count = AtomicUsize::new(0);
    let half = blob.len() / 2;
    let server = Server::start(move |asked| {
        let without = Asked {
            path: asked.path.clone(),
            headers: BTreeMap::new(),
        };
        let mut answer = honest(&layout, &without);
        if is_blob(asked, &blob) && count.fetch_add(1, Ordering::SeqCst) == 0 {
            answer.truncate(half);
        }
        answer
    });
    let place = Place::new();
    let image = pull(&place, &server).await.unwrap();
    assert_whole(&place, &image);
}

#[tokio::test]
async fn what_an_earlier_process_left_is_used_if_it_is_right() {
    let (layout, blob) = image();
    for (left, is_right) in [(blob[..1_000].to_vec(), true), (vec![7; 1_000], false)] {
        let ranges = Arc::new(Mutex::new(Vec::new()));
        let (seen, layout, blob) = (Arc::clone(&ranges), layout.clone(), blob.clone());
        let digest = Digest::of(&blob);
        let server = Server::start(move |asked| {
            if is_blob(asked, &blob) {
                let range = asked.header("range").map(str::to_owned);
                seen.lock().unwrap().push(range);
            }
            honest(&layout, asked)
        });
        let place = Place::new();
        let download = place
            .directory
            .path()
            .join("images/downloads")
            .join(digest.hex());
        fs::write(download, left).unwrap();
        let image = pull(&place, &server).await.unwrap();
        assert_whole(&place, &image);
        let ranges = ranges.lock().unwrap();
        assert_eq!(ranges[0].as_deref(), Some("bytes=1000-"));
        assert_eq!(ranges.len(), if is_right { 1 } else { 2 });
    }
}

#[tokio::test]
async fn a_layer_with_another_digest_is_refused() {
    let (layout, blob) = image();
    let server = Server::start(move |asked| {
        let mut answer = honest(&layout, asked);
        if is_blob(asked, &blob) {
            let last = answer.len() - 2_000;
            answer[last] ^= 1;
        }
        answer
    });
    let place = Place::new();
    let error = pull(&place, &server).await.unwrap_err();
    let is_said = matches!(
        &error,
        Error::Layer {
            reason: LayerError::Digest { .. },
            ..
        }
    );
    assert!(is_said, "{error}");
    let left = (
        place.count("downloads"),
        place.count("layers"),
        place.unfinished(),
    );
    assert_eq!(left, (0, 0, 0));
}

#[tokio::test]
async fn documents_must_be_what_was_asked_for() {
    let (layout, _) = image();
    let other = layout.clone();
    let server = Server::start(move |asked| match asked.path.contains("/manifests/") {
        true => reply("200 OK", &[("Content-Type", MANIFEST)], b"{}"),
        false => honest(&other, asked),
    });
    let place = Place::new();
    let digest = layout.manifests[0]["digest"].as_str().unwrap();
    let reference = server.reference(&format!("a/b@{digest}"));
    let error = place
        .images
        .pull(&reference, &Auth::Anonymous, |_| {})
        .await;
    assert!(matches!(error, Err(Error::Protocol { .. })), "{error:?}");
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let server = Server::start(|_| reply("200 OK", &[], &vec![b' '; 5 << 20]));
    let error = pull(&Place::new(), &server).await.unwrap_err();
    assert!(
        error.to_string().contains("longer than 4194304 bytes"),
        "{error}"
    );
    let (layout, blob) = image();
    let server = Server::start(move |asked| match is_blob(asked, &blob) {
        true => reply("200 OK", &[], &blob.repeat(2)),
        false => honest(&layout, asked),
    });
    let place = Place::new();
    let error = pull(&place, &server).await.unwrap_err();
    assert!(
        error.to_string().contains("longer than its manifest says"),
        "{error}"
    );
}

#[tokio::test]
async fn a_redirect_is_followed_to_where_the_blob_is() {
    let (layout, blob) = image();
    let server = Server::start(move |asked| {
        if is_blob(asked, &blob) && !asked.path.starts_with("/elsewhere") {
            let target = format!("/elsewhere/{}", Digest::of(&blob));
            return reply("307 Temporary Redirect", &[("Location", &target)], b"");
        }
        honest(&layout, asked)
    });
    let place = Place::new();
    let (images, reference) = (place.images.clone(), server.reference("a/b:1"));
    // as a task, which the node has one of for each pull
    let task = tokio::spawn(async move { images.pull(&reference, &Auth::Anonymous, |_| {}).await });
    let image = task.await.unwrap().unwrap();
    assert_whole(&place, &image);
}

/// A registry whose token server knows one user, and gives that one this. `dTpw` is `u:p`.
fn with_tokens(layout: Layout, given: &'static str) -> Server {
    Server::start(move |asked| {
        let authorization = asked.header("authorization");
        if let Some(query) = asked.path.strip_prefix("/token?") {
            let is_asked =
                query.contains("service=test") && query.contains("repository%3Aa%2Fb%3Apull");
            return match authorization == Some("Basic dTpw") && is_asked {
                true => reply("200 OK", &[], given.as_bytes()),
                false => reply("401 Unauthorized", &[], b"{}"),
            };
        }
        if authorization == Some("Bearer secret") {
            return honest(&layout, asked);
        }
        let host = asked.header("host").unwrap();
        let challenge = format!(
            r#"Bearer realm="http://{host}/token",service="test",scope="repository:a/b:pull""#
        );
        reply(
            "401 Unauthorized",
            &[("WWW-Authenticate", &challenge)],
            b"{}",
        )
    })
}

#[tokio::test]
async fn a_token_has_one_of_two_names_or_both() {
    for (given, is_token) in [
        (r#"{"token": "secret"}"#, true),
        (r#"{"access_token": "secret"}"#, true),
        (
            r#"{"token": "secret", "access_token": "secret", "expires_in": 300}"#,
            true,
        ),
        (r#"{"token": null}"#, false),
        ("{}", false),
        ("secret", false),
    ] {
        let server = with_tokens(image().0, given);
        let place = Place::new();
        let auth = Auth::Password {
            user: "u".to_owned(),
            password: "p".to_owned(),
        };
        let reference = server.reference("a/b:1");
        let pulled = place.images.pull(&reference, &auth, |_| {}).await;
        match is_token {
            true => assert_whole(&place, &pulled.unwrap()),
            false => {
                let error = pulled.unwrap_err().to_string();
                assert!(error.contains("gives no token"), "{given}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_is_fetched_where_the_registry_says() {
    let (layout, _) = image();
    let server = with_tokens(layout, r#"{"access_token": "secret"}"#);
    let reference = server.reference("a/b:1");
    let password = |password: &str| Auth::Password {
        user: "u".to_owned(),
        password: password.to_owned(),
    };
    let place = Place::new();
    let image = place
        .images
        .pull(&reference, &password("p"), |_| {})
        .await
        .unwrap();
    assert_whole(&place, &image);
    let place = Place::new();
    for (auth, help) in [
        (password("wrong"), "does not let the user \"u\" read"),
        (Auth::Anonymous, "does not let strangers read"),
        (
            Auth::Token("other".to_owned()),
            "does not let the owner of the token read",
        ),
    ] {
        let error = place
            .images
            .pull(&reference, &auth, |_| {})
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::Unauthorized { status: 401, .. }),
            "{error}"
        );
        assert!(error.to_string().contains(help), "{error}");
        assert!(!format!("{error:?}").contains("wrong"), "{error:?}");
    }
    place
        .images
        .pull(&reference, &Auth::Token("secret".to_owned()), |_| {})
        .await
        .unwrap();
}

#[tokio::test]
async fn whoever_cannot_be_reached_is_named() {
    let server = Server::start(|_| Vec::new());
    let reference = server.reference("a/b:1");
    let registry = server.address.to_string();
    drop(server);
    let place = Place::new();
    let error = place
        .images
        .pull(&reference, &Auth::Anonymous, |_| {})
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let said = error.to_string();
    assert!(
        said.contains(&registry) && said.contains("refused"),
        "{said}"
    );
}
