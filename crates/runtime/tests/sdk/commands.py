"""Commands through the published SDK."""

import time

from check import HOME, raises, run_all
from e2b import CommandExitException, NotFoundException, Sandbox, TimeoutException
from e2b.exceptions import AuthenticationException, InvalidArgumentException

sandbox = Sandbox.create()


def test_output_of_a_command():
    result = sandbox.commands.run("echo out; echo err >&2; printf '\\xe4\\xf6'")
    assert result.exit_code == 0
    assert result.stdout.startswith("out\n") and result.stderr == "err\n", result


def test_a_failing_command_raises():
    error = raises(CommandExitException, lambda: sandbox.commands.run("echo no; exit 5"))
    assert error.exit_code == 5 and error.stdout == "no\n"


def test_users_directories_and_variables():
    result = sandbox.commands.run("whoami; pwd; echo $X", cwd="/tmp", envs={"X": "a b"}, user="root")
    assert result.stdout == "root\n/tmp\na b\n", result.stdout
    assert sandbox.commands.run("pwd; id -u").stdout == f"{HOME}\n1000\n"
    raises(InvalidArgumentException, lambda: sandbox.commands.run("pwd", cwd="/not/there"))


def test_streamed_output():
    seen = []
    sandbox.commands.run("for i in 1 2 3; do echo $i; sleep 0.1; done", on_stdout=seen.append)
    assert seen == ["1\n", "2\n", "3\n"], seen


def test_a_timeout_kills():
    raises(TimeoutException, lambda: sandbox.commands.run("echo $$ > pid; exec sleep 60", timeout=1))
    pid = sandbox.files.read("pid").strip()
    assert pid not in [str(p.pid) for p in sandbox.commands.list()]


def test_background_input_and_reconnection():
    command = sandbox.commands.run("cat", background=True, stdin=True)
    again = sandbox.commands.connect(command.pid)
    sandbox.commands.send_stdin(command.pid, "hello\n")
    sandbox.commands.close_stdin(command.pid)
    assert command.wait().stdout == "hello\n"
    assert again.wait().stdout == "hello\n"


def test_input_as_a_stream():
    command = sandbox.commands.run("cat", background=True, stdin=True)
    sandbox.commands.stream_input(command.pid, iter(["one ", b"two"]))
    sandbox.commands.close_stdin(command.pid)
    assert command.wait().stdout == "one two"


def test_list_and_kill():
    command = sandbox.commands.run("sleep 60", background=True)
    listed = {process.pid: process for process in sandbox.commands.list()}
    assert listed[command.pid].args[-1] == "sleep 60"
    assert sandbox.commands.kill(command.pid) is True
    error = raises(CommandExitException, command.wait)
    assert "killed" in (error.error or ""), error
    assert sandbox.commands.kill(999999) is False
    raises(NotFoundException, lambda: sandbox.commands.connect(999999))


def test_a_command_outlives_its_client():
    command = sandbox.commands.run("sleep 0.3; echo done > outlived", background=True)
    command.disconnect()
    for _ in range(100):
        if sandbox.files.exists("outlived"):
            break
        time.sleep(0.05)
    assert sandbox.files.exists("outlived")


def test_an_unknown_user_is_refused():
    error = raises(AuthenticationException, lambda: sandbox.commands.run("true", user="nobody-here"))
    assert "nobody-here" in str(error)


def test_it_is_running():
    assert sandbox.is_running()


run_all(globals())
