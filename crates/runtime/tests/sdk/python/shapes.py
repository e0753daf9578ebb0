"""The blocking and the asynchronous API in one shape, so that every behaviour is written once and proven for both."""

import asyncio
import codecs

from e2b import AsyncSandbox, Sandbox
from proof import until


class Awaitable:
    """Methods of the blocking API, each awaited in a thread of its own."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        method = getattr(self.inner, name)
        if not callable(method):
            return method

        async def call(*args, **named):
            result = await asyncio.to_thread(method, *args, **named)
            return Awaitable(result) if type(result).__name__ in ("CommandHandle", "WatchHandle") else result

        return call


class Box:
    """A sandbox. `commands`, `files` and `pty` are to be awaited in either API."""

    def __init__(self, name, sandbox):
        self.name, self.sandbox, self.blocks = name, sandbox, isinstance(sandbox, Sandbox)
        shape = Awaitable if self.blocks else (lambda inner: inner)
        self.commands, self.files, self.pty = map(shape, (sandbox.commands, sandbox.files, sandbox.pty))

    @classmethod
    async def blocking(cls):
        return cls("sync", await asyncio.to_thread(Sandbox.create))

    @classmethod
    async def asynchronous(cls):
        return cls("async", await AsyncSandbox.create())

    async def is_running(self):
        call = self.sandbox.is_running
        return await (asyncio.to_thread(call) if self.blocks else call())

    async def out(self, command, **options):
        """What a command prints, which must succeed."""
        return (await self.commands.run(command, **options)).stdout

    async def folder(self, name):
        """A new and empty directory of the default user."""
        path = f"/home/user/{self.name}-{name}"
        await self.files.remove(path)
        assert await self.files.make_dir(path), f"{path} was there after it had been removed"
        return path

    async def is_alive(self, pid):
        return await self.out(f"test -d /proc/{pid} && echo yes || echo no", user="root") == "yes\n"

    def source(self, pieces):
        """An iterator over pieces of a body, as the API takes it."""
        if self.blocks:
            return iter(pieces)

        async def each():
            for piece in pieces:
                yield piece

        return each()


async def each(stream):
    """The pieces of a streamed download."""
    if hasattr(stream, "__aiter__"):
        async for piece in stream:
            yield piece
        return
    pieces, end = iter(stream), object()
    while (piece := await asyncio.to_thread(next, pieces, end)) is not end:
        yield piece


class Heard:
    """Output that has come so far, and its pieces as they came."""

    def __init__(self):
        self.text, self.pieces, self.changed, self.loop = "", [], asyncio.Event(), asyncio.get_running_loop()
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def take(self, piece):
        # from a thread of the blocking API, or from the loop itself
        self.loop.call_soon_threadsafe(self.add, piece)

    def add(self, piece):
        self.pieces.append(piece)
        self.text += self.decoder.decode(piece) if isinstance(piece, bytes) else piece
        self.changed.set()

    async def until(self, words, after=0):
        """Waits for words; gives where they end."""
        while (found := self.text.find(words, after)) < 0:
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), 30)
            except TimeoutError:
                raise AssertionError(f"waited in vain for {words!r}, heard {self.text[after:]!r}") from None
        return found + len(words)


class Followed:
    """A process whose output is heard while it runs, whichever way the API hands it over."""

    def __init__(self, box):
        self.box, self.out, self.err, self.screen = box, Heard(), Heard(), Heard()

    async def begin(self, call, callbacks, *args, **options):
        if self.box.blocks:
            self.handle = await call(*args, **options)
            waiting = self.handle.wait(on_stdout=self.out.take, on_stderr=self.err.take, on_pty=self.screen.take)
        else:
            self.handle = await call(*args, **callbacks, **options)
            waiting = self.handle.wait()
        self.end = asyncio.create_task(waiting)
        # an end that no behaviour asks about is no news
        self.end.add_done_callback(lambda end: end.cancelled() or end.exception())
        return self

    @property
    def pid(self):
        return self.handle.pid

    async def types(self, line, answer):
        """Types a line into the terminal, and waits for an answer that comes after it."""
        after = len(self.screen.text)
        await self.box.pty.send_stdin(self.pid, line.encode() + b"\n")
        return await self.screen.until(answer, after)


async def start(box, command, **options):
    followed = Followed(box)
    callbacks = {"on_stdout": followed.out.take, "on_stderr": followed.err.take}
    return await followed.begin(box.commands.run, callbacks, command, background=True, **options)


async def connect(box, pid, **options):
    followed = Followed(box)
    callbacks = {"on_stdout": followed.out.take, "on_stderr": followed.err.take}
    return await followed.begin(box.commands.connect, callbacks, pid, **options)


async def open_terminal(box, size, **options):
    followed = Followed(box)
    return await followed.begin(box.pty.create, {"on_data": followed.screen.take}, size, **options)


async def connect_terminal(box, pid, **options):
    followed = Followed(box)
    return await followed.begin(box.pty.connect, {"on_data": followed.screen.take}, pid, **options)


class Watch:
    """Events of a directory, polled or pushed."""

    def __init__(self, box):
        self.box, self.events = box, []

    @classmethod
    async def on(cls, box, path, **options):
        watch = cls(box)
        pushed = {} if box.blocks else {"on_event": watch.events.append}
        watch.handle = await box.files.watch_dir(path, **pushed, **options)
        return watch

    async def look(self):
        if self.box.blocks:
            self.events += await self.handle.get_new_events()
        return self.events

    async def until(self, name, kind):
        """Waits for an event and gives it."""

        async def found():
            return next((one for one in await self.look() if (one.name, one.type) == (name, kind)), None)

        try:
            return await until(f"{kind} of {name!r} is told", found)
        except AssertionError as error:
            raise AssertionError(f"{error}, but {self.events}") from None

    def of(self, name):
        return [one.type for one in self.events if one.name == name]

    async def stop(self):
        await self.handle.stop()
