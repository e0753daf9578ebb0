"""What users do: commands and files."""

import asyncio
import io
import time
from datetime import datetime, timedelta, timezone

from k8s_agent_sandbox.commands._process_stubs import process_pb2, process_pb2_grpc
from k8s_agent_sandbox.exceptions import SandboxRequestError

from proof import Failing, behaviour, holds, same


class Sink:
    """A destination for either kind of download."""

    def __init__(self, box):
        self.content, self.blocking = bytearray(), box.blocking

    def write(self, content):
        self.content += content
        if self.blocking:
            return len(content)
        return self.later(len(content))

    async def later(self, length):
        return length


def shell(script):
    """Means the same with a shell and without."""
    return f"sh -c '{script}'"


async def refused(box, status, call):
    async with Failing(SandboxRequestError) as failing:
        await call
    same(failing.error.status_code, status)


@behaviour
async def a_command_tells_its_outputs_and_its_exit_code(box):
    ran = await box.commands.run(shell("echo out; echo größer >&2; exit 3"))
    same((ran.stdout, ran.stderr, ran.exit_code, ran.timed_out), ("out\n", "größer\n", 3, False))


@behaviour
async def a_command_that_is_not_there_fails(box):
    ran = await box.commands.run("no-such-program")
    same(ran.exit_code, 127 if box.sandboxd else 1)
    holds(ran.stderr, "no-such-program")


@behaviour
async def a_command_runs_where_the_files_are(box):
    await box.files.write(f"{box.prefix}/where", "here")
    same((await box.commands.run(f"cat {box.prefix}/where")).stdout, "here")
    await box.commands.run(shell(f"echo made > {box.prefix}/made"))
    same(await box.files.read(f"{box.prefix}/made"), b"made\n")


@behaviour
async def a_command_that_takes_too_long_is_ended(box):
    begun = time.monotonic()
    ran = await box.commands.run(shell("sleep 600"), command_timeout=1)
    same((ran.exit_code, ran.timed_out), (124, True))
    assert time.monotonic() - begun < 60, "it was waited for"


@behaviour
async def a_command_has_variables_and_a_directory_of_its_own(box):
    options = {"env": {"NAME": "it's set"}, "cwd": f"{box.prefix}/own"}
    await box.files.write(f"{box.prefix}/own/file", "")
    if not box.sandboxd:
        async with Failing(NotImplementedError):
            await box.commands.run("true", **options)
        return
    ran = await box.commands.run('echo "$NAME"; ls', **options)
    same(ran.stdout, "it's set\nfile\n")
    async with Failing(RuntimeError, "PERMISSION_DENIED"):
        await box.commands.run("true", cwd="../..")


@behaviour
async def commands_run_beside_each_other(box):
    runs = [box.commands.run(shell(f"sleep 0.2; echo {n}")) for n in range(20)]
    ran = await asyncio.gather(*runs)
    same([one.stdout for one in ran], [f"{n}\n" for n in range(20)])


@behaviour
async def a_file_comes_back_as_it_was(box):
    path, content = f"{box.prefix}/dir with space/ü#?%.bin", bytes(range(256)) * 100
    await box.files.write(path, content)
    same(await box.files.read(path), content)
    await box.files.write(path, "größer")
    same(await box.files.read(path), "größer".encode())
    await box.files.write(path, b"")
    same(await box.files.read(path), b"")


@behaviour
async def a_large_file_streams_both_ways(box):
    path, content = f"{box.prefix}/large", bytes(range(251)) * 100_000
    await box.files.write(path, io.BytesIO(content))
    sink = Sink(box)
    same(await box.files.read_to(path, sink), len(content))
    assert sink.content == content, "it is not what was written"


@behaviour
async def a_directory_lists_its_entries(box):
    await box.files.write(f"{box.prefix}/listed/b", "12345")
    await box.files.write(f"{box.prefix}/listed/a/x", "")
    listed = await box.files.list(f"{box.prefix}/listed")
    same([(one.name, one.type) for one in listed], [("a", "directory"), ("b", "file")])
    file = listed[1]
    same((file.size, file.mode), (5, "0644" if box.sandboxd else None))
    assert abs(datetime.now(timezone.utc) - file.modified) < timedelta(minutes=5), file.modified
    same(await box.files.list(f"{box.prefix}/listed/a/../a"), await box.files.list(f"/{box.prefix}/listed/a"))


@behaviour
async def what_exists_is_known(box):
    await box.files.write(f"{box.prefix}/known", "")
    same(await box.files.exists(f"{box.prefix}/known"), True)
    same(await box.files.exists(box.prefix), True)
    same(await box.files.exists(f"{box.prefix}/unknown"), False)


@behaviour
async def what_is_missing_or_outside_is_refused(box):
    await refused(box, 404, box.files.read(f"{box.prefix}/missing"))
    await refused(box, 404, box.files.list(f"{box.prefix}/missing"))
    await refused(box, 403, box.files.list("../.."))
    await refused(box, 403, box.files.exists("../.."))
    await refused(box, 403, box.files.write("../outside", "x", allow_unsafe_paths=True))


@behaviour
async def files_and_directories_are_deleted(box):
    path = f"{box.prefix}/deleted"
    await box.files.write(f"{path}/file", "")
    if not box.sandboxd:
        async with Failing(NotImplementedError):
            await box.files.delete(path)
        return
    await refused(box, 409, box.files.delete(path))
    await box.files.delete(f"{path}/file")
    same(await box.files.exists(f"{path}/file"), False)
    await box.files.write(f"{path}/a/b", "")
    await box.files.delete(path, recursive=True)
    same(await box.files.exists(path), False)
    await refused(box, 404, box.files.delete(path))


@behaviour
async def a_process_is_spoken_to_and_signalled_while_it_runs(box):
    if not box.sandboxd:
        async with Failing(RuntimeError, "sandboxd"):
            await box.channel()
        return
    stub = process_pb2_grpc.ProcessServiceStub(await box.channel())
    await speak(box, stub)
    await signal(box, stub)


async def speak(box, stub):
    config = process_pb2.ProcessConfig(command=["sh", "-c", "stty -echo; stty size; read x; stty size; cat; exit 7"])
    pty = process_pb2.PTY(cols=90, rows=33)
    events = stub.Start(process_pb2.StartRequest(config=config, pty=pty), timeout=60)
    process = (await box.next(events)).init.process_id
    same((await box.next(events)).stdout, b"33 90\r\n")
    await box.call(stub.ResizeTTY, process_pb2.ResizeTTYRequest(process_id=process, cols=50, rows=20))
    await box.call(stub.WriteStdin, process_pb2.WriteStdinRequest(process_id=process, input=b"\n"))
    same((await box.next(events)).stdout, b"20 50\r\n")
    await box.call(stub.WriteStdin, process_pb2.WriteStdinRequest(process_id=process, eof={}))
    same((await box.next(events)).exit.exit_code, 7)


async def signal(box, stub):
    config = process_pb2.ProcessConfig(command=["sh", "-c", "echo ready; sleep 600; echo no"])
    events = stub.Start(process_pb2.StartRequest(config=config), timeout=60)
    process = (await box.next(events)).init.process_id
    same((await box.next(events)).stdout, b"ready\n")
    terminate = process_pb2.SendSignalRequest(process_id=process, signal="SIGNAL_SIGTERM")
    await box.call(stub.SendSignal, terminate)
    same((await box.next(events)).exit.exit_code, -1)
