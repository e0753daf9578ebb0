"""Entries of directories: listed, made, moved, removed, looked up and told about."""

from datetime import datetime, timedelta, timezone

from e2b import AuthenticationException, FileNotFoundException, FileType, InvalidArgumentException, NotFoundException
from proof import Failing, behaviour, same


@behaviour
async def a_directory_is_listed_to_the_depth_asked_for(box):
    folder = await box.folder("list")
    await box.out(f"cd {folder}; mkdir -p b/deep/deeper a; touch z b/one b/deep/two b/deep/deeper/three; ln -s b link")
    paths = {
        1: ["a", "b", "link", "z"],
        2: ["a", "b", "b/deep", "b/one", "link", "z"],
        9: ["a", "b", "b/deep", "b/deep/deeper", "b/deep/deeper/three", "b/deep/two", "b/one", "link", "z"],
    }
    for depth, wanted in paths.items():
        found = await box.files.list(folder, depth=depth)
        same([entry.path for entry in found], [f"{folder}/{path}" for path in wanted])
    same([entry.name for entry in await box.files.list(folder)], paths[1])
    same([entry.path for entry in await box.files.list(f"{folder}/link")], [f"{folder}/link/deep", f"{folder}/link/one"])
    same(await box.files.list(f"{folder}/a"), [])


@behaviour
async def what_cannot_be_listed_is_said(box):
    folder = await box.folder("unlisted")
    await box.files.write(f"{folder}/file", "x")
    async with Failing(NotFoundException):
        await box.files.list(f"{folder}/missing")
    async with Failing(InvalidArgumentException):
        await box.files.list(f"{folder}/file")
    async with Failing(InvalidArgumentException, "depth"):
        await box.files.list(folder, depth=0)
    async with Failing(AuthenticationException, "nobody-here"):
        await box.files.list(folder, user="nobody-here")


@behaviour
async def an_entry_tells_all_about_itself(box):
    folder = await box.folder("info")
    await box.files.write(f"{folder}/file", "12345")
    await box.out(f"cd {folder}; chmod 640 file; mkdir dir; chmod 1777 dir")
    for info in (await box.files.get_info(f"{folder}/file"), (await box.files.list(folder))[1]):
        same((info.name, info.path, info.type, info.size), ("file", f"{folder}/file", FileType.FILE, 5))
        same((info.mode, info.permissions, info.owner, info.group), (0o640, "-rw-r-----", "user", "user"))
        same((info.symlink_target, info.metadata), (None, None))
        age = datetime.now(timezone.utc) - info.modified_time.replace(tzinfo=timezone.utc)
        assert timedelta(minutes=-1) < age < timedelta(minutes=5), f"{info.modified_time} is {age} ago"
    info = await box.files.get_info(f"{folder}/dir")
    same((info.name, info.type, info.permissions), ("dir", FileType.DIR, "dtrwxrwxrwx"))
    info = await box.files.get_info("/etc/passwd")
    same((info.owner, info.group), ("root", "root"))
    async with Failing(FileNotFoundException):
        await box.files.get_info(f"{folder}/missing")


@behaviour
async def a_link_tells_where_it_leads(box):
    folder = await box.folder("links")
    await box.out(f"cd {folder}; echo x > file; mkdir dir; ln -s file to-file; ln -s dir to-dir; ln -s to-file twice")
    for name, target in (("to-file", "file"), ("to-dir", "dir"), ("twice", "file")):
        info = await box.files.get_info(f"{folder}/{name}")
        same((info.name, info.path, info.symlink_target), (name, f"{folder}/{name}", f"{folder}/{target}"))
        assert info.permissions.startswith("L"), info.permissions


@behaviour(since="2.55.0")
async def a_link_is_told_from_what_it_leads_to(box):
    folder = await box.folder("is-link")
    await box.out(f"cd {folder}; echo x > file; ln -s file link")
    same((await box.files.get_info(f"{folder}/link")).type, FileType.SYMLINK)
    same((await box.files.get_info(f"{folder}/file")).type, FileType.FILE)


@behaviour
async def a_broken_link_is_there(box):
    folder = await box.folder("broken")
    await box.out(f"ln -s nowhere {folder}/link")
    same((await box.files.get_info(f"{folder}/link")).symlink_target, f"{folder}/link")
    same(await box.files.exists(f"{folder}/link"), True)


@behaviour
async def directories_are_made_with_their_parents_once(box):
    folder = await box.folder("made")
    same(await box.files.make_dir(f"{folder}/a/b/c"), True)
    same(await box.files.make_dir(f"{folder}/a/b/c"), False)
    same(await box.files.make_dir(f"{folder}/a"), False)
    same(await box.out(f"cd {folder}; stat -c '%U:%G %a %F' a a/b a/b/c"), "user:user 755 directory\n" * 3)
    await box.files.write(f"{folder}/file", "x")
    async with Failing(InvalidArgumentException):
        await box.files.make_dir(f"{folder}/file")
    same(await box.files.make_dir(f"{folder}/of-root", user="root"), True)
    same((await box.files.get_info(f"{folder}/of-root")).owner, "root")


@behaviour
async def entries_are_renamed(box):
    folder = await box.folder("renamed")
    await box.files.write(f"{folder}/old", "content")
    info = await box.files.rename(f"{folder}/old", f"{folder}/new/place")
    same((info.name, info.path, info.type, info.size), ("place", f"{folder}/new/place", FileType.FILE, 7))
    same(await box.files.exists(f"{folder}/old"), False)
    same(await box.files.read(f"{folder}/new/place"), "content")
    await box.files.write(f"{folder}/other", "other")
    await box.files.rename(f"{folder}/other", f"{folder}/new/place")
    same(await box.files.read(f"{folder}/new/place"), "other")
    same((await box.files.rename(f"{folder}/new", f"{folder}/newer")).type, FileType.DIR)
    same(await box.files.read(f"{folder}/newer/place"), "other")
    async with Failing(FileNotFoundException):
        await box.files.rename(f"{folder}/missing", f"{folder}/anything")


@behaviour
async def entries_are_removed_whatever_they_are(box):
    folder = await box.folder("removed")
    await box.out(f"cd {folder}; mkdir -p dir/deep; touch file dir/deep/file; ln -s dir link")
    for name in ("file", "link", "dir", "never-there"):
        await box.files.remove(f"{folder}/{name}")
        same(await box.files.exists(f"{folder}/{name}"), False)
    same(await box.files.list(folder), [])


@behaviour
async def it_is_known_what_exists(box):
    folder = await box.folder("exists")
    await box.files.write(f"{folder}/file", "")
    for path, wanted in ((folder, True), (f"{folder}/file", True), (f"{folder}/no/no", False), ("~", True)):
        same((path, await box.files.exists(path)), (path, wanted))
    async with Failing(AuthenticationException, "nobody-here"):
        await box.files.exists(folder, user="nobody-here")
