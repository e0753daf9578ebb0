//! A host with a way to the world, pods on it, and programs in each that listen and connect.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use local::network::{Network, PolicyPod, Settings, Snapshot};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, from_value, json};

use crate::process::{command, directory, scratch, under};

/// Of the host, towards the world.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Somewhere in the world.
pub(crate) const WORLD: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 5);
/// A machine in a private network that the host has a way to.
pub(crate) const OFFICE: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 7);
/// Where clouds tell machines who they are: most of them, Azure, Alibaba Cloud.
pub(crate) const METADATA: [Ipv4Addr; 3] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
];

/// Long enough for whatever comes at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// So long nothing comes. Too short, a test would see less than it could; it would not fail for it.
pub(crate) const SILENCE: Duration = Duration::from_millis(400);

/// Runs the test of this name again, alone in new namespaces for networks and processes, and there its body. Whatever
/// it leaves goes with these namespaces.
pub(crate) fn on_a_host(test: &str, body: impl AsyncFnOnce(Host)) {
    if let Some(directory) = directory() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { body(Host::new(&directory)).await });
        return;
    }
    let directory = scratch();
    let program = command(test, directory.path());
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    let output = under(&mut unshare, &program).output();
    let output = output.expect("cannot run unshare: install the package `util-linux`");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

/// A process that does nothing in a network namespace of its own.
pub(crate) struct Space {
    pub(crate) path: PathBuf,
    process: Child,
}

impl Space {
    pub(crate) fn new() -> Space {
        Space::unshared(&["--net"])
    }

    /// With users of its own, who own the network namespace.
    pub(crate) fn with_users() -> Space {
        Space::unshared(&["--user", "--map-root-user", "--net"])
    }

    fn unshared(what: &[&str]) -> Space {
        let mut process = Command::new("unshare")
            .args(what)
            .args(["sh", "-c", "echo here && exec sleep 1000"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "here\n");
        let path = PathBuf::from(format!("/proc/{}/ns/net", process.id()));
        Space { path, process }
    }

    pub(crate) fn run(&self, command: &str) {
        let mut nsenter = Command::new("nsenter");
        let namespace = format!("--net={}", self.path.display());
        check(nsenter.arg(namespace).args(["sh", "-ec", command]));
    }

    /// Does something on a thread in the namespace; sockets that are made there stay there.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let join = || {
            let file = std::fs::File::open(&self.path).unwrap();
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), kind).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(join).join().unwrap())
    }

    pub(crate) fn listen(&self, address: impl Into<IpAddr>, port: u16) {
        let address = SocketAddr::new(address.into(), port);
        let listener = self.inside(|| TcpListener::bind(address).unwrap());
        serve(listener);
    }

    pub(crate) fn connect(&self, address: Ipv4Addr, port: u16) -> Option<Talk> {
        self.inside(|| connect(address, port, PATIENCE))
    }

    /// Whether a connection can be made at once. For what must not be: on a busy machine a packet may be late.
    pub(crate) fn reaches(&self, address: Ipv4Addr, port: u16) -> bool {
        self.inside(|| connect(address, port, SILENCE)).is_some()
    }

    /// Whether the resolver takes connections within this time.
    pub(crate) fn connect_to_resolver(&self, address: Ipv4Addr, patience: Duration) -> bool {
        let address = SocketAddr::new(address.into(), 53);
        self.inside(|| TcpStream::connect_timeout(&address, patience).is_ok())
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection to a program that first says who came, and then repeats what it hears.
pub(crate) struct Talk {
    stream: BufReader<TcpStream>,
    /// From where the other side sees this one.
    pub(crate) seen_as: IpAddr,
}

impl Talk {
    /// Whether something said comes back.
    pub(crate) fn goes_on(&mut self) -> bool {
        self.said_and_heard(PATIENCE)
    }

    pub(crate) fn is_silent(&mut self) -> bool {
        !self.said_and_heard(SILENCE)
    }

    fn said_and_heard(&mut self, patience: Duration) -> bool {
        let stream = self.stream.get_mut();
        stream.set_read_timeout(Some(patience)).unwrap();
        stream.write_all(b"hello\n").unwrap();
        let mut line = String::new();
        self.stream.read_line(&mut line).is_ok() && line == "hello\n"
    }
}

pub(crate) fn connect(address: Ipv4Addr, port: u16, patience: Duration) -> Option<Talk> {
    let address = SocketAddr::new(address.into(), port);
    let stream = TcpStream::connect_timeout(&address, patience).ok()?;
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let seen_as = line.trim().parse().ok()?;
    Some(Talk { stream, seen_as })
}

/// What comes once something has been said; as datagrams are lost, it is said again each second.
pub(crate) fn heard_at_last(
    socket: &UdpSocket,
    buffer: &mut [u8],
    say: impl Fn(),
) -> (usize, SocketAddr) {
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let start = Instant::now();
    loop {
        say();
        match socket.recv_from(buffer) {
            Ok(heard) => return heard,
            Err(error) => assert!(start.elapsed() < PATIENCE, "nothing was heard: {error}"),
        }
    }
}

pub(crate) fn serve(listener: TcpListener) {
    let repeat = |mut stream: TcpStream| {
        let peer = stream.peer_addr().unwrap().ip();
        writeln!(stream, "{peer}").unwrap();
        let mut reader = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut reader, &mut stream);
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || repeat(stream));
        }
    });
}

pub(crate) struct Host {
    pub(crate) directory: PathBuf,
    pub(crate) world: Space,
}

impl Host {
    fn new(directory: &Path) -> Host {
        // a new namespace begins with what the machine has at the moment
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
        let world = Space::new();
        let process = world.process.id();
        run(&format!(
            "ip link set lo up
             ip link add up0 type veth peer name world0 netns {process}
             ip address add {HOST}/24 dev up0
             ip link set up0 up
             ip route add default via 192.0.2.1"
        ));
        world.run(&format!(
            "ip link set lo up
             ip address add 192.0.2.1/24 dev world0
             ip link set world0 up
             ip address add {WORLD}/32 dev lo
             ip address add {OFFICE}/32 dev lo"
        ));
        for address in METADATA {
            world.run(&format!("ip address add {address}/32 dev lo"));
        }
        let directory = directory.to_owned();
        Host { directory, world }
    }

    pub(crate) fn settings(&self, name: &str) -> Settings {
        let resolv_conf = self.directory.join("resolv.conf");
        std::fs::write(&resolv_conf, format!("nameserver {WORLD}\n")).unwrap();
        Settings {
            resolv_conf,
            ..Settings::new(self.directory.join(name))
        }
    }

    pub(crate) async fn network(&self) -> Network {
        Network::open(self.settings("data")).await.unwrap()
    }

    /// A program on the host itself.
    pub(crate) fn listen(&self, port: u16) {
        serve(TcpListener::bind(("0.0.0.0", port)).unwrap());
    }

    pub(crate) fn connect(&self, address: Ipv4Addr, port: u16) -> Option<Talk> {
        connect(address, port, PATIENCE)
    }

    pub(crate) fn reaches(&self, address: Ipv4Addr, port: u16) -> bool {
        connect(address, port, SILENCE).is_some()
    }
}

pub(crate) struct Pod {
    pub(crate) id: &'static str,
    pub(crate) space: Space,
    pub(crate) address: Ipv4Addr,
}

/// A pod that is attached and, as all of them, listens on port 80; nothing was enforced with it yet.
pub(crate) async fn pod(network: &Network, id: &'static str) -> Pod {
    let space = Space::new();
    let address = network.attach(id, &space.path).await.unwrap().unwrap();
    space.listen(Ipv4Addr::UNSPECIFIED, 80);
    Pod { id, space, address }
}

/// All pods are in the namespace `default` with their id as the label `app`.
pub(crate) async fn enforce(network: &Network, pods: &[&Pod], specs: &[Value]) {
    let policies = specs.iter().map(|spec| {
        let metadata = json!({"name": "p", "namespace": "default"});
        from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    });
    let snapshot = Snapshot {
        namespaces: BTreeMap::from([("default".to_owned(), BTreeMap::new())]),
        pods: pods.iter().map(|pod| policy_pod(pod.id)).collect(),
        policies: policies.collect(),
    };
    network.enforce(&snapshot).await.unwrap();
}

fn policy_pod(id: &str) -> PolicyPod {
    PolicyPod {
        id: id.to_owned(),
        namespace: "default".to_owned(),
        labels: BTreeMap::from([("app".to_owned(), id.to_owned())]),
        ports: Vec::new(),
    }
}

/// Everything that a network could leave behind, as the kernel tells it.
pub(crate) async fn traces() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for what in [
        "link show",
        "-4 address show",
        "-4 route show table all",
        "-4 neigh show",
    ] {
        let mut ip = Command::new("ip");
        let output = ip.arg("-o").args(what.split(' ')).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // whether a link has settled yet stands behind its name
        let lines = text
            .lines()
            .map(|line| line.split(": <").next().unwrap_or(line));
        found.extend(lines.map(|line| line.replace("linkdown", "").trim().to_owned()));
    }
    found.extend(local::network::tables().await.unwrap());
    let forwarding = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
    found.insert(format!("forwarding {forwarding}"));
    // neighbours that were asked for come and go on their own
    found.retain(|line| !line.contains("lladdr") && !line.contains("FAILED"));
    found
}

pub(crate) fn run(command: &str) {
    check(Command::new("sh").args(["-ec", command]));
}

fn check(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
