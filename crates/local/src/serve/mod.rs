//! The embedded API for other processes: over TLS, with tokens, and with the kubeconfig that lets clients find it.
//!
//! Everything that outlives the process is in the data directory, a [`Home`]: the objects, the certificates, the
//! tokens. A kubeconfig that was handed out once stays good as long as the directory and the port do.

mod attributes;
mod authorize;
mod error;
mod guard;
mod home;
mod kubeconfig;
mod listen;
mod pki;
mod session;
mod tokens;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use attributes::{Attributes, Target};
pub use authorize::{Identity, authorize};
pub use error::StartError;
pub use guard::Guard;
pub use home::Home;
pub use listen::{Limits, Serves, serve};
pub(crate) use session::Tenure;
pub use tokens::Tokens;

use home::Access;

#[derive(Debug, Clone)]
pub struct Options {
    /// Port 0 is any free one.
    pub listen: SocketAddr,
    /// Names and addresses that clients use besides those of this machine itself.
    pub names: Vec<String>,
    pub limits: Limits,
}

/// How often certificates are looked at while the server runs.
const RENEWAL: Duration = Duration::from_secs(12 * 60 * 60);

/// A server that accepts connections. Dropped, it stops as if told to, but nobody waits for it.
pub struct Running {
    address: SocketAddr,
    home: Arc<Home>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients on this machine find it.
    pub fn url(&self) -> String {
        kubeconfig::server(self.address)
    }

    /// For those who may do everything.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.file(KUBECONFIG)
    }

    /// For those who may only read.
    pub fn viewer_kubeconfig(&self) -> PathBuf {
        self.home.file(VIEWER_KUBECONFIG)
    }

    /// Stops accepting, ends watches, and waits for the requests that are being answered, but not for ever.
    pub async fn stop(self) {
        drop(self.stop);
        // it has either ended or panicked; it is over both ways
        let _ = self.task.await;
    }
}

const KUBECONFIG: &str = "kubeconfig";
const VIEWER_KUBECONFIG: &str = "kubeconfig-viewer";

/// Starts to serve, in the background, whoever shows one of the tokens of `home`.
pub async fn start<S: Serves>(
    home: Home,
    service: S,
    options: Options,
) -> Result<Running, StartError> {
    listen(home, options).await?.serve(service)
}

/// A port that nobody else can have any more. Whoever comes waits until it is served.
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    home: Home,
    names: Vec<String>,
    limits: Limits,
    identification: pki::Identification,
    tokens: Tokens,
}

/// Takes the port, before there is anything to serve.
pub async fn listen(home: Home, options: Options) -> Result<Listening, StartError> {
    let Options {
        listen,
        mut names,
        limits,
    } = options;
    if !listen.ip().is_unspecified() {
        names.push(listen.ip().to_string());
    }
    let identification = pki::prepare(&home, &names, SystemTime::now())?;
    let tokens = Tokens::prepare(&home)?;
    let cannot_listen = |source| StartError::Listen {
        address: listen,
        source,
    };
    let listener = TcpListener::bind(listen).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    Ok(Listening {
        listener,
        address,
        home,
        names,
        limits,
        identification,
        tokens,
    })
}

impl Listening {
    /// Starts to serve, in the background.
    pub fn serve<S: Serves>(self, service: S) -> Result<Running, StartError> {
        let Self {
            listener,
            address,
            home,
            names,
            limits,
            identification,
            tokens,
        } = self;
        // only now: those of a server that runs on this port stay as they are
        write_kubeconfigs(&home, address, &identification.authority, &tokens)?;
        let current = Arc::new(pki::Current::new(identification.server));
        let tls = Arc::new(pki::config(Arc::clone(&current))?);
        let guard = Guard::new(Arc::new(tokens), service);
        let home = Arc::new(home);
        let (stop, stopped) = oneshot::channel();
        let renewal = renew(Arc::clone(&home), names, current);
        let task = tokio::spawn(serve(listener, tls, guard, limits, async {
            tokio::select! {
                _ = stopped => {}
                () = renewal => {}
            }
        }));
        Ok(Running {
            address,
            home,
            stop,
            task,
        })
    }
}

fn write_kubeconfigs(
    home: &Home,
    address: SocketAddr,
    authority: &str,
    tokens: &Tokens,
) -> Result<(), StartError> {
    let server = kubeconfig::server(address);
    for (file, user, token) in [
        (KUBECONFIG, "admin", &tokens.admin),
        (VIEWER_KUBECONFIG, "viewer", &tokens.viewer),
    ] {
        let text = kubeconfig::render(&server, authority, user, token);
        home.write(file, &text, Access::Owner)?;
    }
    Ok(())
}

/// Replaces the certificate before it expires, for as long as it is polled.
async fn renew(home: Arc<Home>, names: Vec<String>, current: Arc<pki::Current>) {
    loop {
        tokio::time::sleep(RENEWAL).await;
        // what fails now is tried again for a month before anybody notices
        if let Ok(identification) = pki::prepare(&home, &names, SystemTime::now()) {
            current.replace(identification.server);
        }
    }
}
