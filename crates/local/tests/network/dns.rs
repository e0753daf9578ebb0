//! The resolver, asked from inside pods.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use local::network::{Network, Records};
use serde_json::{from_value, json};

use crate::support::{Pod, Space, WORLD, enforce, heard_at_last, on_a_host, pod};

const REFUSED: u8 = 5;
const NO_SUCH_NAME: u8 = 3;

/// The code and the addresses of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer(u8, Vec<Ipv4Addr>);

fn query(name: &str) -> Vec<u8> {
    let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}

/// Every record here is an address under the name of the question.
fn read(question: &[u8], answer: &[u8]) -> Answer {
    assert_eq!(answer[..2], question[..2]);
    let count = usize::from(u16::from_be_bytes([answer[6], answer[7]]));
    let records = answer[question.len()..].chunks(16).take(count);
    let address = |record: &[u8]| <[u8; 4]>::try_from(&record[12..16]).unwrap().into();
    Answer(answer[3] & 0xf, records.map(address).collect())
}

fn ask(pod: &Pod, network: &Network, name: &str) -> Answer {
    let gateway = network.gateway().unwrap();
    let question = query(name);
    pod.space.inside(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect((gateway, 53)).unwrap();
        let mut buffer = [0; 2000];
        let (length, _) = heard_at_last(&socket, &mut buffer, || {
            socket.send(&question).unwrap();
        });
        read(&question, &buffer[..length])
    })
}

fn ask_by_tcp(pod: &Pod, network: &Network, name: &str) -> Answer {
    let gateway = network.gateway().unwrap();
    let question = query(name);
    pod.space.inside(|| {
        let mut stream = TcpStream::connect((gateway, 53)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        talk(&mut stream, &question);
        read(&question, &heard(&mut stream))
    })
}

fn talk(stream: &mut TcpStream, message: &[u8]) {
    let length = u16::try_from(message.len()).unwrap();
    stream.write_all(&length.to_be_bytes()).unwrap();
    stream.write_all(message).unwrap();
}

fn heard(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).unwrap();
    message
}

/// A resolver in the world, for which every name is 203.0.113.9.
fn answers_everything(world: &Space) {
    fn answer(question: &[u8]) -> Vec<u8> {
        let mut bytes = question.to_vec();
        bytes[2] |= 0x80;
        bytes[7] = 1;
        bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 203, 0, 113, 9]);
        bytes
    }
    let udp = world.inside(|| UdpSocket::bind((WORLD, 53)).unwrap());
    let tcp = world.inside(|| TcpListener::bind((WORLD, 53)).unwrap());
    std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        while let Ok((length, from)) = udp.recv_from(&mut buffer) {
            udp.send_to(&answer(&buffer[..length]), from).unwrap();
        }
    });
    std::thread::spawn(move || {
        for mut stream in tcp.incoming().flatten() {
            let question = heard(&mut stream);
            talk(&mut stream, &answer(&question));
        }
    });
}

fn records(pod: &Pod) -> Records {
    let service = json!([{
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"clusterIP": "None", "selector": {"app": "web"}},
    }]);
    let pods = json!([{
        "metadata": {"name": "one", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": []},
        "status": {
            "podIP": pod.address,
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }]);
    let services: Vec<_> = from_value(service).unwrap();
    let pods: Vec<_> = from_value(pods).unwrap();
    Records::of(&services, &pods)
}

#[test]
fn a_pod_resolves_services_and_names_of_the_world() {
    on_a_host(
        "dns::a_pod_resolves_services_and_names_of_the_world",
        async |host| {
            let network = host.network().await;
            let a = pod(&network, "a").await;
            enforce(&network, &[&a], &[]).await;
            network.set_records(records(&a));
            answers_everything(&host.world);
            let name = "Web.default.svc.cluster.local";
            let found = Answer(0, vec![a.address]);
            let missing = Answer(NO_SUCH_NAME, Vec::new());
            let outside = Answer(0, vec![Ipv4Addr::new(203, 0, 113, 9)]);
            for ask in [ask, ask_by_tcp] {
                assert_eq!(ask(&a, &network, name), found);
                assert_eq!(ask(&a, &network, "no.default.svc.cluster.local"), missing);
                assert_eq!(ask(&a, &network, "example.com"), outside);
            }
            network.set_records(Records::default());
            assert_eq!(ask(&a, &network, name), missing);
            let conf = network.resolv_conf("default");
            let gateway = network.gateway().unwrap();
            let expected = format!(
                "search default.svc.cluster.local svc.cluster.local cluster.local\n\
             nameserver {gateway}\noptions ndots:5\n"
            );
            assert_eq!(conf, expected);
        },
    );
}

#[test]
fn a_pod_without_a_way_out_has_none_through_the_resolver() {
    on_a_host(
        "dns::a_pod_without_a_way_out_has_none_through_the_resolver",
        async |host| {
            let network = host.network().await;
            let a = pod(&network, "a").await;
            let closed = json!({"podSelector": {}, "policyTypes": ["Egress"]});
            enforce(&network, &[&a], &[closed]).await;
            network.set_records(records(&a));
            answers_everything(&host.world);
            let found = Answer(0, vec![a.address]);
            assert_eq!(ask(&a, &network, "web.default.svc.cluster.local"), found);
            let refused = Answer(REFUSED, Vec::new());
            assert_eq!(ask(&a, &network, "secret.example.com"), refused);
            assert_eq!(ask_by_tcp(&a, &network, "secret.example.com"), refused);
        },
    );
}

#[test]
fn rubbish_does_not_stop_the_resolver() {
    on_a_host("dns::rubbish_does_not_stop_the_resolver", async |host| {
        let network = host.network().await;
        let a = pod(&network, "a").await;
        enforce(&network, &[&a], &[]).await;
        network.set_records(records(&a));
        let gateway = network.gateway().unwrap();
        a.space.inside(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let good = query("web.default.svc.cluster.local");
            for byte in 0..=255 {
                for length in 0..good.len() {
                    let mut bad = good[..length].to_vec();
                    bad.extend([byte; 5]);
                    let _ = socket.send_to(&bad, (gateway, 53));
                }
            }
            let mut stream = TcpStream::connect((gateway, 53)).unwrap();
            stream.write_all(&[0xff; 1000]).unwrap();
        });
        let found = Answer(0, vec![a.address]);
        assert_eq!(
            ask_by_tcp(&a, &network, "web.default.svc.cluster.local"),
            found
        );
    });
}
