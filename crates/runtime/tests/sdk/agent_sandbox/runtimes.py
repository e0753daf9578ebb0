"""The two runtimes, each with the blocking and the asynchronous classes of the package, in one shape."""

import asyncio

from k8s_agent_sandbox.async_connector import AsyncSandboxConnector
from k8s_agent_sandbox.commands.async_command_executor import AsyncCommandExecutor
from k8s_agent_sandbox.commands.command_executor import CommandExecutor
from k8s_agent_sandbox.connector import SandboxConnector
from k8s_agent_sandbox.files.async_filesystem import AsyncFilesystem
from k8s_agent_sandbox.files.filesystem import Filesystem
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig, SandboxdInClusterConnectionConfig

HOST = "127.0.0.1"


class Awaited:
    """Blocking methods as if they were asynchronous."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        method = getattr(self.inner, name)
        return lambda *args, **options: asyncio.to_thread(method, *args, **options)


class Box:
    def __init__(self, name, sandboxd, connector, commands, files):
        self.name = name
        self.sandboxd = sandboxd
        self.blocking = isinstance(connector, SandboxConnector)
        self.connector = connector
        self.commands, self.files = commands, files
        self.prefix = name.replace(" ", "-")

    async def channel(self):
        """Where processes are spoken to."""
        if self.blocking:
            self.connector.connect()
            return self.connector.grpc_channel()
        await self.connector.connect()
        return await self.connector.grpc_channel()

    async def call(self, method, request):
        return await (asyncio.to_thread(method, request) if self.blocking else method(request))

    async def next(self, events):
        return await (asyncio.to_thread(next, events) if self.blocking else events.read())


def blocking(name, config):
    connector = SandboxConnector("box", "default", config, None, get_pod_ip=lambda: HOST)
    commands = CommandExecutor(connector, None, "driver")
    files = Filesystem(connector, None, "driver")
    return Box(name, connector.is_sandboxd(), connector, Awaited(commands), Awaited(files))


def asynchronous(name, config):
    async def host():
        return HOST

    connector = AsyncSandboxConnector("box", "default", config, None, get_pod_ip=host)
    commands = AsyncCommandExecutor(connector, None, "driver")
    files = AsyncFilesystem(connector, None, "driver")
    return Box(name, connector.is_sandboxd(), connector, commands, files)


def boxes(legacy, rest, grpc):
    usual = SandboxDirectConnectionConfig(api_url="http://unused").server_port
    older = SandboxDirectConnectionConfig(api_url=f"http://{HOST}:{legacy or usual}")
    ports = {name: port for name, port in (("rest_port", rest), ("grpc_port", grpc)) if port}
    newer = SandboxdInClusterConnectionConfig(mode="in-cluster-pod-ip", **ports)
    for runtime, config in (("legacy", older), ("sandboxd", newer)):
        yield blocking(f"{runtime} blocking", config)
        yield asynchronous(f"{runtime} asynchronous", config)
