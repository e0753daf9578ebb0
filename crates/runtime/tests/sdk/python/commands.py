"""Commands: how they are run, fed, followed, found again and ended."""

import asyncio
import hashlib

from e2b import AuthenticationException, CommandExitException, InvalidArgumentException, NotFoundException
from e2b import SandboxException, TimeoutException
from proof import SOON, Failing, behaviour, holds, same, until
from shapes import connect, start


@behaviour
async def the_sandbox_is_running(box):
    same(await box.is_running(), True)


@behaviour
async def output_and_exit_code_are_given(box):
    done = await box.commands.run("echo out; echo err >&2")
    same((done.stdout, done.stderr, done.exit_code, done.error), ("out\n", "err\n", 0, None))
    same(await box.out("true"), "")


@behaviour
async def text_comes_through_unchanged(box):
    for text in ("!@#$%^&*()_+-={}[]|:;<>,.?~`", "one\ntwo\n\n  three", "Grüße 日本語 🦀", '"double" \\ back'):
        quoted = "'" + text.replace("'", "'\\''") + "'"
        same(await box.out(f"printf %s {quoted}"), text)


@behaviour
async def broken_utf_8_is_replaced_and_the_rest_kept(box):
    same(await box.out(r"printf 'a\xff\xfeb'"), "a\ufffd\ufffdb")


@behaviour
async def long_output_is_whole_and_in_order(box):
    done = await box.commands.run("seq 300000; seq 300000 >&2")
    wanted = "".join(f"{n}\n" for n in range(1, 300001))
    assert done.stdout == wanted, f"stdout of {len(done.stdout)} characters differs from {len(wanted)}"
    assert done.stderr == wanted, f"stderr of {len(done.stderr)} characters differs from {len(wanted)}"


@behaviour
async def a_failure_tells_its_code_and_output(box):
    async with Failing(CommandExitException) as failing:
        await box.commands.run("echo out; echo err >&2; exit 3")
    error = failing.error
    same((error.exit_code, error.stdout, error.stderr, error.error), (3, "out\n", "err\n", "exit status 3"))
    async with Failing(CommandExitException) as failing:
        await box.commands.run("no-such-command-here")
    same(failing.error.exit_code, 127)


@behaviour
async def a_death_by_signal_tells_the_signal(box):
    for signal, words in (("KILL", "signal: killed"), ("TERM", "signal: terminated")):
        async with Failing(CommandExitException) as failing:
            await box.commands.run(f"kill -{signal} $$")
        same((failing.error.exit_code, failing.error.error), (-1, words))


@behaviour
async def commands_run_as_the_user_asked_for(box):
    same(await box.out("whoami; id -gn; echo $HOME $USER $LOGNAME"), "user\nuser\n/home/user user user\n")
    same(await box.out("whoami; id -u; echo $HOME", user="root"), "root\n0\n/root\n")
    same(await box.out("whoami", user="user"), "user\n")
    async with Failing(AuthenticationException, "nobody-here"):
        await box.commands.run("true", user="nobody-here")


@behaviour
async def commands_run_where_they_are_asked_to(box):
    folder = await box.folder("cwd")
    same(await box.out("pwd"), "/home/user\n")
    same(await box.out("pwd", cwd="/tmp"), "/tmp\n")
    same(await box.out("pwd", cwd=folder.removeprefix("/home/user/")), folder + "\n")
    same(await box.out("pwd", cwd="~"), "/home/user\n")
    same(await box.out("pwd", cwd="/", user="root"), "/\n")
    async with Failing(InvalidArgumentException, "'/no/such/place' does not exist"):
        await box.commands.run("true", cwd="/no/such/place")


@behaviour
async def commands_have_the_environment_asked_for(box):
    envs = {"ONE": "1", "SPACES": " a  b ", "QUOTE": "'\"$HOME\"'", "EMPTY": "", "LINES": "a\nb"}
    print_all = 'printf "%s|" "$ONE" "$SPACES" "$QUOTE" "$EMPTY" "$LINES"'
    same(await box.out(print_all, envs=envs), "|".join([*envs.values(), ""]))
    same(await box.out("echo $HOME", envs={"HOME": "/tmp"}), "/tmp\n")
    same(await box.out("echo $ONE"), "\n")
    # set for the daemon in the harness of this driver
    same(await box.out("echo $SECRET_OF_THE_DAEMON"), "\n")


@behaviour
async def output_is_heard_while_the_command_runs(box):
    running = await start(box, "echo one; echo bad >&2; read word; echo got $word", stdin=True)
    await running.out.until("one\n")
    await running.err.until("bad\n")
    assert not running.end.done(), "it ended before it was answered"
    await box.commands.send_stdin(running.pid, "now\n")
    done = await running.end
    same((done.stdout, done.stderr), ("one\ngot now\n", "bad\n"))
    same(running.out.text, done.stdout)


@behaviour
async def callbacks_hear_a_command_that_is_waited_for(box):
    out, err = [], []
    done = await box.commands.run("echo one; echo two >&2", on_stdout=out.append, on_stderr=err.append)
    same(("".join(out), "".join(err)), (done.stdout, done.stderr))
    same((out, err), (["one\n"], ["two\n"]))


@behaviour
async def a_command_in_the_background_is_waited_for_later(box):
    first = await box.commands.run("read line; echo $line", background=True, stdin=True)
    second = await box.commands.run("exit 4", background=True)
    assert first.pid > 0 and first.pid != second.pid, f"{first.pid} and {second.pid}"
    async with Failing(CommandExitException) as failing:
        await second.wait()
    same(failing.error.exit_code, 4)
    await box.commands.send_stdin(first.pid, "done\n")
    same((await first.wait()).stdout, "done\n")


@behaviour
async def what_a_command_leaves_in_the_background_runs_on(box):
    pid = int(await box.out("sleep 1000 >/dev/null 2>&1 & echo $!"))
    assert await box.is_alive(pid), f"{pid} died with the shell that started it"
    await box.out(f"kill {pid}")


@behaviour
async def input_is_text_or_bytes_and_can_be_closed(box):
    for data in ("Grüße\n", "Grüße\n".encode()):
        running = await start(box, "cat", stdin=True)
        await box.commands.send_stdin(running.pid, data)
        await running.out.until("Grüße\n")
        same(running.out.pieces, ["Grüße\n"])
        await box.commands.close_stdin(running.pid)
        same((await running.end).stdout, "Grüße\n")


@behaviour
async def a_handle_feeds_its_own_command(box):
    handle = await box.commands.run("cat", background=True, stdin=True)
    await handle.send_stdin("first ")
    await handle.send_stdin(b"second")
    await handle.close_stdin()
    same((await handle.wait()).stdout, "first second")


@behaviour
async def input_of_a_megabyte_is_whole(box):
    data = "".join(f"{n:07}\n" for n in range(131072))
    running = await start(box, "sha256sum", stdin=True)
    # each more than a pipe holds
    size = 262144
    for at in range(0, len(data), size):
        await box.commands.send_stdin(running.pid, data[at : at + size])
    await box.commands.close_stdin(running.pid)
    holds((await running.end).stdout, hashlib.sha256(data.encode()).hexdigest())


@behaviour
async def a_command_without_input_reads_none(box):
    same(await box.out("cat"), "")
    running = await start(box, "exec sleep 1000", stdin=False)
    async with Failing(SandboxException):
        await box.commands.send_stdin(running.pid, "lost")
    same(await running.handle.kill(), True)


@behaviour
async def input_to_nobody_is_not_found(box):
    async with Failing(NotFoundException):
        await box.commands.send_stdin(999999, "lost")
    async with Failing(NotFoundException):
        await box.commands.close_stdin(999999)


@behaviour(since="2.59.0")
async def input_is_streamed_in_order(box):
    running = await start(box, "cat", stdin=True)
    pieces = [f"{n}\n" for n in range(200)]
    if box.blocks:
        await box.commands.stream_input(running.pid, [*pieces, b"last\n"])
    else:
        async with box.commands.stream_input(running.pid) as stream:
            for piece in (*pieces, b"last\n"):
                await stream.send(piece)
    await running.out.until("last\n")
    await box.commands.close_stdin(running.pid)
    same((await running.end).stdout, "".join(pieces) + "last\n")


@behaviour
async def a_command_that_takes_too_long_is_killed(box):
    running = await start(box, "echo $$; exec sleep 1000", timeout=SOON)
    async with Failing(TimeoutException):
        await running.end
    pid = running.pid
    await until(f"{pid} is gone", lambda: is_gone(box, pid))
    async with Failing(TimeoutException):
        await box.commands.run("sleep 1000", timeout=0.3)


async def is_gone(box, pid):
    return not await box.is_alive(pid)


@behaviour
async def what_a_killed_command_left_in_the_background_runs_on(box):
    running = await start(box, "sleep 1000 & echo $!; wait", timeout=SOON)
    await running.out.until("\n")
    left = int(running.out.text)
    async with Failing(TimeoutException):
        await running.end
    await until("the shell is gone", lambda: is_gone(box, running.pid))
    assert await box.is_alive(left), f"{left} was killed with its shell"
    await box.out(f"kill {left}")


@behaviour
async def no_time_limit_is_none(box):
    same(await box.out("sleep 0.1; echo slept", timeout=0), "slept\n")


@behaviour
async def a_killed_command_is_dead(box):
    running = await start(box, "exec sleep 1000")
    same(await running.handle.kill(), True)
    async with Failing(CommandExitException) as failing:
        await running.end
    same((failing.error.exit_code, failing.error.error), (-1, "signal: killed"))
    same(await box.commands.kill(running.pid), False)
    same(await box.commands.kill(999999), False)


@behaviour
async def running_commands_are_listed(box):
    running = await start(box, "exec sleep 1000", envs={"LISTED": "yes"}, cwd="/tmp")
    [found] = [one for one in await box.commands.list() if one.pid == running.pid]
    same((found.cmd, found.args), ("/bin/bash", ["-l", "-c", "exec sleep 1000"]))
    same((found.envs, found.cwd, found.tag), ({"LISTED": "yes"}, "/tmp", None))
    same(await box.commands.kill(running.pid), True)
    await until("it is listed no more", lambda: is_unlisted(box, running.pid))


async def is_unlisted(box, pid):
    return all(one.pid != pid for one in await box.commands.list())


@behaviour
async def a_running_command_is_followed_by_others_too(box):
    first = await start(box, "echo early; while read line; do echo $line; done", stdin=True)
    await first.out.until("early\n")
    second = await connect(box, first.pid)
    same(second.pid, first.pid)
    await box.commands.send_stdin(first.pid, "both\n")
    await first.out.until("both\n")
    await second.out.until("both\n")
    await box.commands.close_stdin(first.pid)
    same((await first.end).stdout, "early\nboth\n")
    same((await second.end).stdout, "both\n")
    async with Failing(NotFoundException, "999999"):
        await box.commands.connect(999999)


@behaviour
async def a_command_outlives_who_listens_to_it(box):
    handle = await box.commands.run("read a; echo $a; exit 5", background=True, stdin=True)
    await handle.disconnect()
    assert await box.is_alive(handle.pid), "it died when its client left"
    again = await connect(box, handle.pid)
    await box.commands.send_stdin(handle.pid, "later\n")
    async with Failing(CommandExitException) as failing:
        await again.end
    same((failing.error.exit_code, failing.error.stdout), (5, "later\n"))


@behaviour
async def output_that_nobody_hears_holds_nothing_up(box):
    folder = await box.folder("unheard")
    command = f"read go; head -c 20000000 /dev/zero; touch {folder}/written"
    handle = await box.commands.run(command, background=True, stdin=True)
    await handle.disconnect()
    await box.commands.send_stdin(handle.pid, "go\n")
    await until("all is written", lambda: box.files.exists(f"{folder}/written"))


@behaviour
async def an_end_is_told_for_a_while(box):
    running = await start(box, "exit 6")
    async with Failing(CommandExitException):
        await running.end
    again = await connect(box, running.pid)
    async with Failing(CommandExitException) as failing:
        await again.end
    same(failing.error.exit_code, 6)


@behaviour
async def many_commands_run_at_once(box):
    outputs = await asyncio.gather(*(box.out(f"echo {n}; sleep 0.1; echo {n}") for n in range(50)))
    same(outputs, [f"{n}\n{n}\n" for n in range(50)])
