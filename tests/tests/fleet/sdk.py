"""Lives through what users of the package k8s-agent-sandbox do, as far as that speaks to Kubernetes only.

usage: sdk.py <version> <namespace>, with KUBECONFIG
"""

import asyncio
import sys
import time
from importlib.metadata import version

from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.async_sandbox_client import AsyncSandboxClient
from k8s_agent_sandbox.exceptions import (
    SandboxClaimFailedError,
    SandboxTemplateNotFoundError,
    SandboxWarmPoolNotFoundError,
)
from k8s_agent_sandbox.gke_extensions.snapshots.podsnapshot_client import PodSnapshotSandboxClient
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig
from kubernetes.client import ApiException

# nobody listens there, and nothing here connects to it
NOWHERE = SandboxDirectConnectionConfig(api_url="http://127.0.0.1:1")
# what is known to fail is told at once, not after the time that a sandbox may take
AT_ONCE = 60


def same(found, wanted):
    assert found == wanted, f"{found!r} is not {wanted!r}"


def until(what, probe):
    give_up = time.monotonic() + 120
    while not probe():
        assert time.monotonic() < give_up, f"waited in vain until {what}"
        time.sleep(0.1)


class Failing:
    """What is inside must raise `kind` at once, and say `words`."""

    def __init__(self, kind, words):
        self.kind, self.words, self.start = kind, words, time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        assert kind is self.kind and self.words in str(error), f"{self.kind} expected, not {error!r}"
        took = time.monotonic() - self.start
        assert took < AT_ONCE, f"{error!r} took {took} s"
        return True


def pod(client, name, namespace):
    try:
        return client.k8s_helper.core_v1_api.read_namespaced_pod(name, namespace)
    except ApiException as error:
        if error.status == 404:
            return None
        raise


def no_claims(client, namespace):
    return lambda: client.list_all_sandboxes(namespace) == []


def from_stock(client, namespace):
    sandbox = client.create_sandbox(
        "pool",
        namespace,
        labels={"team": "one"},
        pod_labels={"sandbox.users.io/team": "one"},
        shutdown_after_seconds=600,
    )
    assert sandbox.sandbox_id != sandbox.claim_name, "it was started cold"
    same(sandbox.status()[0], "SandboxReady")
    assert sandbox.get_sandbox_name_hash()
    name = sandbox.get_pod_name()
    same(pod(client, name, namespace).status.pod_ip, sandbox.get_pod_ip())
    labels = lambda: pod(client, name, namespace).metadata.labels
    until("the pod has the label", lambda: labels().get("sandbox.users.io/team") == "one")
    same(client.list_all_sandboxes(namespace, label_selector="team=one"), [sandbox.claim_name])
    same(client.list_all_sandboxes(namespace, label_selector="team=two"), [])
    same(client.get_sandbox_claim_warmpool_name(sandbox.claim_name, namespace), "pool")
    other = SandboxClient(connection_config=NOWHERE)
    same(other.get_sandbox(sandbox.claim_name, namespace).sandbox_id, sandbox.sandbox_id)
    sandbox.terminate()
    until("the claim is gone", no_claims(client, namespace))
    until("the pod is gone", lambda: pod(client, name, namespace) is None)
    same(sandbox.status()[0], "SandboxNotFound")


def what_is_not_there(client, namespace):
    with Failing(SandboxWarmPoolNotFoundError, "nowhere"):
        client.create_sandbox("nowhere", namespace)
    until("its claim is gone", no_claims(client, namespace))
    with Failing(SandboxTemplateNotFoundError, "nothing"):
        client.create_sandbox("without-template", namespace)
    until("its claim is gone", no_claims(client, namespace))
    with Failing(SandboxClaimFailedError, "InvalidMetadata"):
        client.create_sandbox("pool", namespace, pod_labels={"agents.x-k8s.io/team": "one"})
    until("its claim is gone", no_claims(client, namespace))


def suspended_and_resumed(namespace):
    client = PodSnapshotSandboxClient(connection_config=NOWHERE)
    sandbox = client.create_sandbox("pool", namespace)
    first = pod(client, sandbox.get_pod_name(), namespace)
    answer = sandbox.suspend(snapshot_before_suspend=False, wait_timeout=60)
    assert answer.success and sandbox.is_suspended(), answer
    same(pod(client, sandbox.get_pod_name(), namespace), None)
    until("it has no address", lambda: sandbox.get_pod_ip() is None)
    answer = sandbox.resume(wait_timeout=60)
    assert answer.success and not sandbox.is_suspended(), answer
    second = pod(client, sandbox.get_pod_name(), namespace)
    assert first.metadata.uid != second.metadata.uid
    until("it is ready", lambda: sandbox.status()[0] == "SandboxReady")
    same(sandbox.get_pod_ip(), second.status.pod_ip)
    sandbox.terminate()
    until("the claim is gone", no_claims(client, namespace))


def what_came_with_1_0(client, namespace):
    first = client.create_sandbox("pool", namespace, claim_name="mine")
    again = SandboxClient(connection_config=NOWHERE).create_sandbox(
        "pool", namespace, claim_name="mine", adopt_existing=True
    )
    same(again.sandbox_id, first.sandbox_id)
    client.delete_sandbox("mine", namespace)
    until("the claim is gone", no_claims(client, namespace))
    with Failing(SandboxClaimFailedError, "EnvVarsInjectionRejected"):
        client.create_sandbox("pool", namespace, env={"TEAM": "one"})
    until("its claim is gone", no_claims(client, namespace))
    sandbox = client.create_sandbox("open", namespace, env={"TEAM": "one"})
    found = pod(client, sandbox.get_pod_name(), namespace).spec.containers[0].env
    same([(one.name, one.value) for one in found], [("TEAM", "one")])
    sandbox.terminate()
    until("the claim is gone", no_claims(client, namespace))
    with Failing(SandboxClaimFailedError, "PodFailed"):
        client.create_sandbox("failing", namespace)
    until("its claim is gone", no_claims(client, namespace))


async def without_threads(namespace):
    async with AsyncSandboxClient(connection_config=NOWHERE) as client:
        made = [client.create_sandbox("pool", namespace) for _ in range(3)]
        sandboxes = await asyncio.gather(*made)
        same(len({sandbox.sandbox_id for sandbox in sandboxes}), 3)
        for sandbox in sandboxes:
            same((await sandbox.status())[0], "SandboxReady")
            assert await sandbox.get_pod_ip()
            await sandbox.terminate()
        with Failing(SandboxWarmPoolNotFoundError, "nowhere"):
            await client.create_sandbox("nowhere", namespace)


def main(wanted, namespace):
    same(version("k8s-agent-sandbox"), wanted)
    client = SandboxClient(connection_config=NOWHERE)
    from_stock(client, namespace)
    what_is_not_there(client, namespace)
    suspended_and_resumed(namespace)
    if wanted.startswith("1."):
        what_came_with_1_0(client, namespace)
    asyncio.run(without_threads(namespace))
    until("all claims are gone", no_claims(client, namespace))


main(*sys.argv[1:])
