"""Watched directories: what is told of them, and when."""

import asyncio

from e2b import FilesystemEventType, InvalidArgumentException, NotFoundException
from proof import SOON, Failing, behaviour, same
from shapes import Watch

CREATE, WRITE, REMOVE = FilesystemEventType.CREATE, FilesystemEventType.WRITE, FilesystemEventType.REMOVE
RENAME, CHMOD = FilesystemEventType.RENAME, FilesystemEventType.CHMOD


@behaviour
async def a_new_file_is_created_given_away_and_written(box):
    folder = await box.folder("watch-new")
    watch = await Watch.on(box, folder)
    await box.files.write(f"{folder}/file", "content")
    if box.blocks:
        same(await watch.look() != [], True)
    await watch.until("file", WRITE)
    # what was told until then was told in order
    await box.files.make_dir(f"{folder}/after")
    await watch.until("after", CREATE)
    same(watch.of("file"), [CREATE, CHMOD, WRITE])
    await watch.stop()


@behaviour
async def every_change_of_a_file_is_told(box):
    folder = await box.folder("watch-changes")
    await box.files.write(f"{folder}/file", "content")
    watch = await Watch.on(box, folder)
    await box.files.write(f"{folder}/file", "more")
    await watch.until("file", WRITE)
    await box.out(f"chmod 600 {folder}/file")
    await watch.until("file", CHMOD)
    await box.files.rename(f"{folder}/file", f"{folder}/moved")
    await watch.until("file", RENAME)
    await watch.until("moved", CREATE)
    await box.files.remove(f"{folder}/moved")
    await watch.until("moved", REMOVE)
    await watch.stop()


@behaviour
async def what_happens_deeper_is_told_only_if_asked_for(box):
    folder = await box.folder("watch-deep")
    await box.files.make_dir(f"{folder}/a/b")
    deep, flat = await Watch.on(box, folder, recursive=True), await Watch.on(box, folder)
    await box.files.write(f"{folder}/a/b/file", "x")
    await deep.until("a/b/file", CREATE)
    await deep.until("a/b/file", WRITE)
    await box.files.write(f"{folder}/last", "x")
    await flat.until("last", CREATE)
    same([one for one in flat.events if "/" in one.name], [])
    for watch in (deep, flat):
        await watch.stop()


@behaviour
async def directories_made_later_are_watched_too(box):
    folder = await box.folder("watch-later")
    watch = await Watch.on(box, folder, recursive=True)
    await box.out(f"mkdir -p {folder}/new/newer && echo x > {folder}/new/newer/file")
    await watch.until("new", CREATE)
    await watch.until("new/newer", CREATE)
    await watch.until("new/newer/file", CREATE)
    await box.files.write(f"{folder}/new/newer/second", "x")
    await watch.until("new/newer/second", WRITE)
    await watch.stop()


@behaviour
async def an_event_has_its_entry_if_asked_for(box):
    folder = await box.folder("watch-entries")
    watch, bare = await Watch.on(box, folder, include_entry=True), await Watch.on(box, folder)
    await box.files.write(f"{folder}/file", "content")
    entry = (await watch.until("file", WRITE)).entry
    same((entry.name, entry.path, entry.owner, entry.size), ("file", f"{folder}/file", "user", 7))
    same((await bare.until("file", WRITE)).entry, None)
    await box.files.remove(f"{folder}/file")
    same((await watch.until("file", REMOVE)).entry, None)
    for one in (watch, bare):
        await one.stop()


@behaviour
async def network_mounts_may_be_allowed(box):
    folder = await box.folder("watch-network")
    watch = await Watch.on(box, folder, allow_network_mounts=True)
    await box.files.write(f"{folder}/file", "x")
    await watch.until("file", CREATE)
    await watch.stop()


@behaviour
async def nothing_is_told_of_a_watch_that_was_stopped(box):
    folder = await box.folder("watch-stopped")
    stopped, going = await Watch.on(box, folder), await Watch.on(box, folder)
    await stopped.stop()
    await box.files.write(f"{folder}/file", "x")
    await going.until("file", WRITE)
    await going.stop()
    same(stopped.events, [])
    if box.blocks:
        async with Failing(Exception):
            await stopped.handle.get_new_events()


@behaviour
async def the_end_of_a_watch_is_told(box):
    if box.blocks:
        return
    folder, ended = await box.folder("watch-ended"), asyncio.Event()
    watch = await box.files.watch_dir(folder, on_event=lambda _: None, on_exit=lambda _: ended.set(), timeout=SOON)
    await asyncio.wait_for(ended.wait(), 30)
    await watch.stop()


@behaviour
async def what_cannot_be_watched_is_said(box):
    folder = await box.folder("watch-refused")
    await box.files.write(f"{folder}/file", "x")
    async with Failing(NotFoundException):
        await Watch.on(box, f"{folder}/missing")
    async with Failing(InvalidArgumentException):
        await Watch.on(box, f"{folder}/file")


@behaviour
async def a_thousand_events_are_told_in_order(box):
    folder = await box.folder("watch-many")
    watch = await Watch.on(box, folder)
    await box.out(f"cd {folder}; for n in $(seq 1000); do mkdir $n; done")
    await watch.until("1000", CREATE)
    created = [one.name for one in watch.events if one.type is CREATE]
    same(created, [str(n) for n in range(1, 1001)])
    await watch.stop()
