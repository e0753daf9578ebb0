"""Terminals: how they are opened, typed into, resized, found again and ended."""

from e2b import AuthenticationException, CommandExitException, InvalidArgumentException, NotFoundException
from e2b import PtySize, SandboxException, TimeoutException
from proof import SOON, Failing, behaviour, same
from shapes import connect_terminal, open_terminal, start

SMALL = PtySize(rows=24, cols=80)


async def leave(terminal):
    await terminal.box.pty.send_stdin(terminal.pid, b"exit 0\n")
    same((await terminal.end).exit_code, 0)


@behaviour
async def a_terminal_answers_and_ends_with_its_shell(box):
    terminal = await open_terminal(box, SMALL)
    await terminal.types("echo $((6*7))-and-on", "42-and-on")
    await terminal.types("test -t 0 && echo it-is-$((1+1))", "it-is-2")
    await box.pty.send_stdin(terminal.pid, b"exit 7\n")
    async with Failing(CommandExitException) as failing:
        await terminal.end
    same(failing.error.exit_code, 7)


@behaviour
async def a_terminal_has_the_size_it_is_given(box):
    terminal = await open_terminal(box, SMALL)
    await terminal.types("stty size", "24 80")
    await box.pty.resize(terminal.pid, PtySize(rows=40, cols=132))
    await terminal.types("stty size", "40 132")
    await leave(terminal)


async def who_hears(terminal, signal, answer):
    """Runs a program that answers a signal and ends; what it says comes after what is returned."""
    program = f'trap "{answer}; kill \\$!; exit" {signal}; echo ready-$((1+1)); sleep 1000 & wait'
    return await terminal.types(f"bash -c '{program}'", "ready-2")


@behaviour
async def a_resize_is_told_to_who_runs_in_it(box):
    terminal = await open_terminal(box, SMALL)
    after = await who_hears(terminal, "WINCH", "stty size")
    await box.pty.resize(terminal.pid, PtySize(rows=30, cols=100))
    await terminal.screen.until("30 100", after)
    await leave(terminal)


@behaviour
async def a_terminal_has_the_user_place_and_environment_asked_for(box):
    terminal = await open_terminal(box, SMALL)
    await terminal.types('echo "<$(whoami) $PWD $TERM $LANG $LC_ALL>"', "<user /home/user xterm-256color C.UTF-8 C.UTF-8>")
    await leave(terminal)
    envs = {"MINE": "special", "TERM": "dumb"}
    terminal = await open_terminal(box, SMALL, user="root", cwd="/tmp", envs=envs)
    await terminal.types('echo "<$(whoami) $PWD $MINE $TERM>"', "<root /tmp special dumb>")
    await leave(terminal)
    async with Failing(AuthenticationException, "nobody-here"):
        await open_terminal(box, SMALL, user="nobody-here")
    async with Failing(InvalidArgumentException):
        await open_terminal(box, SMALL, cwd="/no/such/place")


@behaviour
async def control_characters_reach_who_runs_in_it(box):
    terminal = await open_terminal(box, SMALL)
    after = await who_hears(terminal, "INT", "echo caught-\\$((1+1))")
    await box.pty.send_stdin(terminal.pid, b"\x03")
    await terminal.screen.until("caught-2", after)
    await leave(terminal)


@behaviour
async def text_in_any_script_is_echoed(box):
    terminal = await open_terminal(box, SMALL)
    await terminal.types("printf '%s-%s\\n' Grüße 日本語", "Grüße-日本語")
    await leave(terminal)


@behaviour
async def a_killed_terminal_is_dead(box):
    terminal = await open_terminal(box, SMALL)
    same(await box.pty.kill(terminal.pid), True)
    async with Failing(CommandExitException) as failing:
        await terminal.end
    same((failing.error.exit_code, failing.error.error), (-1, "signal: killed"))
    same(await box.pty.kill(terminal.pid), False)
    same(await box.pty.kill(999999), False)


@behaviour
async def a_terminal_that_takes_too_long_is_killed(box):
    terminal = await open_terminal(box, SMALL, timeout=SOON)
    async with Failing(TimeoutException):
        await terminal.end


@behaviour
async def a_terminal_is_found_again(box):
    first = await open_terminal(box, SMALL)
    await first.types("KEPT=as-it-was", "KEPT")
    second = await connect_terminal(box, first.pid)
    same(second.pid, first.pid)
    await second.types("echo still-$KEPT", "still-as-it-was")
    await first.screen.until("still-as-it-was")
    await leave(second)
    same((await first.end).exit_code, 0)
    async with Failing(NotFoundException, "999999"):
        await connect_terminal(box, 999999)


@behaviour
async def a_terminal_outlives_who_looks_at_it(box):
    opened = [] if box.blocks else [lambda _: None]
    handle = await box.pty.create(SMALL, *opened)
    await handle.disconnect()
    again = await connect_terminal(box, handle.pid)
    await again.types("echo $((40+2))-again", "42-again")
    await leave(again)


@behaviour
async def a_terminal_is_listed_as_the_shell_it_is(box):
    terminal = await open_terminal(box, SMALL)
    [found] = [one for one in await box.commands.list() if one.pid == terminal.pid]
    same((found.cmd, found.args), ("/bin/bash", ["-i", "-l"]))
    await leave(terminal)


@behaviour
async def a_terminal_and_a_pipe_are_not_mistaken(box):
    piped = await start(box, "cat", stdin=True)
    async with Failing(SandboxException):
        await box.pty.send_stdin(piped.pid, b"lost")
    async with Failing(SandboxException):
        await box.pty.resize(piped.pid, SMALL)
    same(await piped.handle.kill(), True)
    terminal = await open_terminal(box, SMALL)
    async with Failing(SandboxException):
        await box.commands.send_stdin(terminal.pid, "lost")
    await leave(terminal)


@behaviour(since="2.59.0")
async def typing_is_streamed_in_order(box):
    terminal = await open_terminal(box, SMALL)
    lines = [b"A=$((20+1))\n", "B=$((A*2))\n", b"echo got-$B\n"]
    if box.blocks:
        await box.pty.stream_input(terminal.pid, lines)
    else:
        async with box.pty.stream_input(terminal.pid) as stream:
            for line in lines:
                await stream.send(line)
    await terminal.screen.until("got-42")
    await leave(terminal)
