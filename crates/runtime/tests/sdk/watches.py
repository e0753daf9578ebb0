"""Watches through the published SDK: asked for by the synchronous client, streamed to the asynchronous one."""

import asyncio

from check import raises, run_all
from e2b import AsyncSandbox, FilesystemEventType, NotFoundException, Sandbox

sandbox = Sandbox.create()
files = sandbox.files


def kinds(events, name):
    return [event.type for event in events if event.name == name]


def test_events_are_there_when_asked_for():
    files.make_dir("watched")
    handle = files.watch_dir("watched")
    files.write("watched/f", "content")
    events = handle.get_new_events()
    created = [FilesystemEventType.CREATE, FilesystemEventType.CHMOD, FilesystemEventType.WRITE]
    assert kinds(events, "f") == created and len(events) == 3, events
    files.rename("watched/f", "watched/g")
    events = handle.get_new_events()
    assert kinds(events, "f") == [FilesystemEventType.RENAME]
    assert kinds(events, "g") == [FilesystemEventType.CREATE]
    handle.stop()


def test_directories_made_later():
    files.make_dir("deep")
    handle = files.watch_dir("deep", recursive=True)
    files.make_dir("deep/new")
    files.write("deep/new/f", "content")
    events = handle.get_new_events()
    assert FilesystemEventType.CREATE in kinds(events, "new"), events
    assert FilesystemEventType.WRITE in kinds(events, "new/f"), events
    handle.stop()


def test_entries():
    files.make_dir("entries")
    handle = files.watch_dir("entries", include_entry=True)
    files.write("entries/f", "content")
    assert handle.get_new_events()[0].entry.name == "f"
    handle.stop()


def test_what_is_not_there():
    raises(NotFoundException, lambda: files.watch_dir("nowhere"))


def test_streamed_events():
    async def watch():
        sandbox = await AsyncSandbox.create()
        await sandbox.files.make_dir("streamed")
        seen = asyncio.Queue()
        handle = await sandbox.files.watch_dir("streamed", on_event=seen.put_nowait)
        await sandbox.files.write("streamed/f", "content")
        event = await asyncio.wait_for(seen.get(), 10)
        assert (event.name, event.type) == ("f", FilesystemEventType.CREATE), event
        await handle.stop()

    asyncio.run(watch())


run_all(globals())
