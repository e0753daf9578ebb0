"""What is in files: written and read as text, bytes and streams, small and large."""

import hashlib
import io
import random
import tempfile
import urllib.request

from e2b import AuthenticationException, FileNotFoundException, InvalidArgumentException
from proof import PATIENCE, Failing, behaviour, same
from shapes import each

LARGE = 200 * 1024 * 1024
# every byte there is, and enough of them for several pieces
BYTES = bytes(range(256)) * 4096


@behaviour
async def text_is_written_and_read(box):
    folder = await box.folder("text")
    for name, text in (("plain", "hello\n"), ("empty", ""), ("scripts", "Grüße 日本語 🦀\r\n\ttabbed")):
        info = await box.files.write(f"{folder}/{name}", text)
        same((info.name, info.path, info.type.value), (name, f"{folder}/{name}", "file"))
        same(await box.files.read(f"{folder}/{name}"), text)
        same(await box.files.read(f"{folder}/{name}", format="text"), text)


@behaviour
async def bytes_are_written_and_read(box):
    folder = await box.folder("bytes")
    for name, data in (("all", BYTES), ("empty", b""), ("zero", b"\0")):
        await box.files.write(f"{folder}/{name}", data)
        found = await box.files.read(f"{folder}/{name}", format="bytes")
        assert isinstance(found, bytearray) and bytes(found) == data, f"{len(found)} bytes differ from {len(data)}"


@behaviour
async def files_are_read_as_streams(box):
    folder = await box.folder("streams")
    for name, data in (("all", BYTES), ("empty", b"")):
        await box.files.write(f"{folder}/{name}", data)
        pieces = [piece async for piece in each(await box.files.read(f"{folder}/{name}", format="stream"))]
        assert b"".join(pieces) == data, f"{name} differs"


@behaviour
async def opened_files_are_written(box):
    folder = await box.folder("opened")
    await box.files.write(f"{folder}/bytes", io.BytesIO(BYTES))
    same(await box.files.read(f"{folder}/bytes", format="bytes") == BYTES, True)
    await box.files.write(f"{folder}/text", io.StringIO("Grüße"))
    same(await box.files.read(f"{folder}/text"), "Grüße")


@behaviour(since="2.63.0")
async def iterators_are_written(box):
    folder = await box.folder("iterators")
    await box.files.write(f"{folder}/pieces", box.source([BYTES, b"", b"end"]))
    same(await box.files.read(f"{folder}/pieces", format="bytes") == BYTES + b"end", True)


@behaviour
async def a_body_goes_as_a_form_or_as_it_is(box):
    folder = await box.folder("bodies")
    for name, plain in (("form", False), ("plain", True)):
        await box.files.write(f"{folder}/{name}", BYTES, use_octet_stream=plain)
        same(await box.files.read(f"{folder}/{name}", format="bytes") == BYTES, True)


@behaviour
async def bodies_are_compressed_on_the_way(box):
    folder = await box.folder("gzip")
    info = await box.files.write(f"{folder}/up", BYTES, gzip=True)
    same(info.path, f"{folder}/up")
    same(int(await box.out(f"stat -c %s {folder}/up")), len(BYTES))
    for up, down in ((True, True), (True, False), (False, True)):
        await box.files.write(f"{folder}/one", BYTES, gzip=up)
        same(await box.files.read(f"{folder}/one", format="bytes", gzip=down) == BYTES, True)
    text = "Grüße\n" * 1000
    await box.files.write(f"{folder}/text", text, gzip=True)
    same(await box.files.read(f"{folder}/text", gzip=True), text)
    stream = await box.files.read(f"{folder}/text", format="stream", gzip=True)
    same(b"".join([piece async for piece in each(stream)]).decode(), text)


@behaviour
async def many_files_are_written_at_once(box):
    # one after the other as they are, or all in one form
    for plain in (True, False):
        folder = await box.folder("many")
        home = folder.removeprefix("/home/user/")
        files = [{"path": f"{folder}/deep/{n}", "data": f"number {n}"} for n in range(20)]
        files.append({"path": f"{home}/relative", "data": b"relative"})
        files.append({"path": f"{folder}/opened", "data": io.BytesIO(b"opened")})
        infos = await box.files.write_files(files, use_octet_stream=plain)
        wanted = [f"{folder}/deep/{n}" for n in range(20)] + [f"{folder}/relative", f"{folder}/opened"]
        same([info.path for info in infos], wanted)
        for n in range(20):
            same(await box.files.read(f"{folder}/deep/{n}"), f"number {n}")
        same(await box.files.read(f"{home}/relative"), "relative")
        same(await box.files.read(f"{folder}/opened"), "opened")
    same(await box.files.write_files([]), [])


@behaviour
async def a_file_is_overwritten_in_place(box):
    path = f"{await box.folder('over')}/file"
    await box.files.write(path, "long content")
    before = await box.out(f"chmod 755 {path}; stat -c '%i %a' {path}")
    await box.files.write(path, "short")
    same(await box.files.read(path), "short")
    same(await box.out(f"stat -c '%i %a' {path}"), before)


@behaviour
async def files_and_their_parents_belong_to_who_wrote_them(box):
    folder = await box.folder("owners")
    await box.files.write(f"{folder}/a/b/mine", "mine")
    same(await box.out(f"cd {folder}; stat -c '%U:%G %a' a a/b a/b/mine"), "user:user 755\nuser:user 755\nuser:user 644\n")
    await box.files.write(f"{folder}/c/theirs", "theirs", user="root")
    same(await box.out(f"cd {folder}; stat -c '%U:%G' c c/theirs"), "root:root\nroot:root\n")
    same(await box.files.read(f"{folder}/c/theirs", user="root"), "theirs")


@behaviour
async def paths_may_be_relative_or_begin_with_a_tilde(box):
    home = (await box.folder("paths")).removeprefix("/home/user/")
    for path in (f"{home}/one", f"~/{home}/two", f"{home}/deep/../three", f"{home}/with space & plus+%20é"):
        info = await box.files.write(path, path)
        same(await box.files.read(path), path)
        assert info.path.startswith(f"/home/user/{home}/"), info.path
    home_of_root = (await box.out("echo ~root")).strip()
    same((await box.files.write("sdk-of-root", "x", user="root")).path, f"{home_of_root}/sdk-of-root")
    await box.files.remove("sdk-of-root", user="root")


@behaviour
async def what_cannot_be_read_or_written_is_said(box):
    folder = await box.folder("refused")
    for form in ("text", "bytes", "stream"):
        async with Failing(FileNotFoundException, "does not exist"):
            await box.files.read(f"{folder}/missing", format=form)
        async with Failing(InvalidArgumentException, "is a directory"):
            await box.files.read(folder, format=form)
    async with Failing(InvalidArgumentException):
        await box.files.write(folder, "over a directory")
    async with Failing(AuthenticationException, "nobody-here"):
        await box.files.read("any", user="nobody-here")
    async with Failing(AuthenticationException, "nobody-here"):
        await box.files.write("any", "x", user="nobody-here")


@behaviour
async def metadata_stays_with_a_file(box):
    folder = await box.folder("metadata")
    path, metadata = f"{folder}/file", {"Author": "someone", "purpose": "to be found again"}
    kept = {"author": "someone", "purpose": "to be found again"}
    same((await box.files.write(path, "x", metadata=metadata)).metadata, kept)
    same((await box.files.get_info(path)).metadata, kept)
    same([entry.metadata for entry in await box.files.list(folder)], [kept])
    same((await box.files.rename(path, f"{path}-2")).metadata, kept)
    info = await box.files.write(f"{path}-2", "y", metadata={"only": "this"}, use_octet_stream=True)
    same(info.metadata, {"only": "this"})
    await box.files.write(f"{path}-2", "z")
    same((await box.files.get_info(f"{path}-2")).metadata, None)
    infos = await box.files.write_files([{"path": f"{folder}/{n}", "data": "x"} for n in "ab"], metadata={"of": "both"})
    same([info.metadata for info in infos], [{"of": "both"}] * 2)


@behaviour
async def metadata_that_cannot_be_kept_is_refused(box):
    path = f"{await box.folder('refused-metadata')}/file"
    for metadata in ({"key": "not äscii"}, {"key": "v" * 5000}, {"k" * 300: "v"}):
        async with Failing(InvalidArgumentException):
            await box.files.write(path, "x", metadata=metadata)


@behaviour
async def urls_serve_who_has_no_package(box):
    path = f"{await box.folder('urls')}/file"
    form = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="any"\r\n\r\nby url\r\n--edge--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=edge"}
    request = urllib.request.Request(box.sandbox.upload_url(path), form, headers)
    urllib.request.urlopen(request, timeout=10).close()
    same(await box.files.read(path), "by url")
    with urllib.request.urlopen(box.sandbox.download_url(path), timeout=10) as answer:
        same(answer.read(), b"by url")


@behaviour
async def two_hundred_megabytes_go_both_ways(box):
    path = f"{await box.folder('large')}/file"
    noise, hashed = random.Random(7).randbytes(1024 * 1024), hashlib.sha256()
    with tempfile.TemporaryFile() as file:
        for n in range(LARGE // len(noise)):
            block = n.to_bytes(8, "big") + noise[8:]
            file.write(block)
            hashed.update(block)
        file.seek(0)
        await box.files.write(path, file, request_timeout=PATIENCE)
    wanted = hashed.hexdigest()
    same((await box.files.get_info(path)).size, LARGE)
    same((await box.out(f"sha256sum < {path}")).split()[0], wanted)
    back = hashlib.sha256()
    async for piece in each(await box.files.read(path, format="stream", request_timeout=PATIENCE)):
        back.update(piece)
    same(back.hexdigest(), wanted)
    await box.files.remove(path)
