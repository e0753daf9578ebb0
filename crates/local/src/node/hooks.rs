//! Hooks: what is called in a container after it has started and before it is stopped.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use tokio::time::sleep;

use super::command;
use super::probes::Target;
use super::probes::http::Get;

/// How long it may take to connect. How long a hook may take at all is its caller's affair.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a hook to its end. A failure is told as kubelets tell it. A hook that is dropped is given up, and its command killed.
pub(crate) async fn run(
    handler: &LifecycleHandler,
    container: &Container,
    target: &Target,
) -> Result<(), String> {
    let whose = format!("Container {:?} in Pod {:?}", container.name, target.label);
    if let Some(exec) = &handler.exec {
        let command = exec.command.as_deref().unwrap_or_default();
        return execute(command, &whose, target).await;
    }
    if let Some(action) = &handler.http_get {
        let way = target.way();
        let answered = match Get::of(action, container, &way, "kube-lifecycle") {
            // that there is an answer is enough, whatever its status
            Ok(get) => get.send(&way, PATIENCE).await.map(|_| ()),
            Err(why) => Err(why),
        };
        let path = action.path.as_deref().unwrap_or_default();
        return answered.map_err(|why| {
            format!("HTTP lifecycle hook ({path}) for {whose} failed - error: {why}")
        });
    }
    if let Some(action) = &handler.sleep {
        let seconds = u64::try_from(action.seconds).unwrap_or(0);
        sleep(Duration::from_secs(seconds)).await;
        return Ok(());
    }
    let kind = match handler.tcp_socket {
        Some(_) => "tcpSocket is no hook",
        None => "it says nothing",
    };
    Err(format!("Cannot run handler: invalid handler: {kind}"))
}

async fn execute(command: &[String], whose: &str, target: &Target) -> Result<(), String> {
    let (error, output) = match command::run(&target.pod, &target.container, command).await {
        Ok(said) if said.code == 0 => return Ok(()),
        Ok(said) => {
            let error = format!(
                "command '{}' exited with {}: {}",
                command.join(" "),
                said.code,
                String::from_utf8_lossy(&said.stderr)
            );
            (error, said.output())
        }
        Err(error) => (error.to_string(), String::new()),
    };
    let command = command.join(" ");
    Err(format!(
        "Exec lifecycle hook ([{command}]) for {whose} failed - error: {error}, message: {output:?}"
    ))
}

#[cfg(test)]
mod tests;
