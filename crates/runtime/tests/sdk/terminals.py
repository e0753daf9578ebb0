"""Terminals through the published SDK."""

from check import raises, run_all
from e2b import CommandExitException, PtySize, Sandbox

sandbox = Sandbox.create()


def test_a_terminal_is_sized_written_to_and_left():
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80))
    sandbox.pty.resize(terminal.pid, PtySize(rows=40, cols=120))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; echo $TERM; exit 3\n")
    seen = bytearray()
    error = raises(CommandExitException, lambda: terminal.wait(on_pty=seen.extend))
    assert error.exit_code == 3
    assert b"40 120" in seen and b"xterm-256color" in seen, bytes(seen)


def test_a_terminal_is_killed():
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80))
    assert sandbox.pty.kill(terminal.pid) is True
    raises(CommandExitException, terminal.wait)
    assert sandbox.pty.kill(terminal.pid) is False


run_all(globals())
