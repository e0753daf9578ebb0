//! Asks the question of a probe once.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ExecAction, GRPCAction, Probe, TCPSocketAction};
use tokio::time::timeout;

use super::course::Answer;
use super::http::Get;
use super::{Target, Way, authority, grpc, port_number, seconds};
use crate::kubelet::container::go_duration;
use crate::node::command;
use crate::node::dial::not_connected;

pub(super) async fn ask(probe: &Probe, container: &Container, target: &Target) -> Answer {
    let patience = seconds(probe.timeout_seconds, 1);
    if let Some(exec) = &probe.exec {
        return run(exec, target, patience).await;
    }
    let way = target.way();
    if let Some(action) = &probe.http_get {
        return match Get::of(action, container, &way, "kube-probe") {
            Ok(get) => ask_http(get, &way, patience).await,
            Err(why) => Answer::Unknown(why),
        };
    }
    if let Some(socket) = &probe.tcp_socket {
        return connect(socket, container, &way, patience).await;
    }
    match &probe.grpc {
        Some(action) => ask_grpc(action, &way, patience).await,
        None => Answer::Unknown(format!(
            "missing probe handler for {}:{}",
            target.label, container.name
        )),
    }
}

async fn run(exec: &ExecAction, target: &Target, patience: Duration) -> Answer {
    let args = exec.command.as_deref().unwrap_or_default();
    let said = command::run(&target.pod, &target.container, args);
    match timeout(patience, said).await {
        Ok(Ok(said)) if said.code == 0 => Answer::Good,
        Ok(Ok(said)) => Answer::Bad(said.output()),
        Ok(Err(error)) => Answer::Unknown(error.to_string()),
        Err(_) => Answer::Bad(format!(
            "command timed out: {:?} timed out after {}",
            args.join(" "),
            go_duration(patience)
        )),
    }
}

pub(super) async fn ask_http(get: Get, way: &Way, patience: Duration) -> Answer {
    match timeout(patience, get.send(way, patience)).await {
        Ok(Ok(200..=399)) => Answer::Good,
        Ok(Ok(code)) => Answer::Bad(format!("HTTP probe failed with statuscode: {code}")),
        Ok(Err(why)) => Answer::Bad(why),
        Err(_) => Answer::Bad(format!(
            "Get \"{}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            get.url()
        )),
    }
}

pub(super) async fn connect(
    socket: &TCPSocketAction,
    container: &Container,
    way: &Way,
    patience: Duration,
) -> Answer {
    let port = match port_number(&socket.port, container) {
        Ok(port) => port,
        Err(why) => return Answer::Unknown(why),
    };
    let own = way.host();
    let named = socket.host.as_deref().filter(|host| !host.is_empty());
    let host = named.unwrap_or(&own);
    match timeout(patience, way.connect(host, port, patience)).await {
        Ok(Ok(_)) => Answer::Good,
        Ok(Err(error)) => Answer::Bad(not_connected(&authority(host, port), &error)),
        Err(_) => Answer::Bad(format!("dial tcp {}: i/o timeout", authority(host, port))),
    }
}

pub(super) async fn ask_grpc(action: &GRPCAction, way: &Way, patience: Duration) -> Answer {
    let port = match u16::try_from(action.port) {
        Ok(port) => port,
        Err(_) => return Answer::Unknown(format!("invalid port number: {}", action.port)),
    };
    let service = action.service.as_deref().unwrap_or_default();
    let (host, within) = (way.host(), go_duration(patience));
    let asking = async {
        let connected = way.connect(&host, port, patience).await;
        let stream = connected.map_err(|error| {
            let why = not_connected(&authority(&host, port), &error);
            format!("error: failed to connect service at {host:?}: {why}")
        })?;
        grpc::check(stream, &authority(&host, port), service).await
    };
    match timeout(patience, asking).await {
        Ok(Ok(())) => Answer::Good,
        Ok(Err(why)) => Answer::Bad(why),
        Err(_) => Answer::Bad(format!(
            "timeout: health rpc did not complete within {within}"
        )),
    }
}

#[cfg(test)]
mod tests;
