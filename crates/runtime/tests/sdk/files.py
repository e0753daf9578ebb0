"""Files through the published SDK."""

import hashlib
import os

from check import HOME, raises, run_all
from e2b import FileType, NotFoundException, Sandbox
from e2b.exceptions import InvalidArgumentException
from e2b.sandbox.filesystem.filesystem import WriteEntry

sandbox = Sandbox.create()
files = sandbox.files


def test_text_and_bytes_and_streams():
    written = files.write("dir/text.txt", "hëllo")
    assert written.path == f"{HOME}/dir/text.txt"
    assert files.read("dir/text.txt") == "hëllo"
    files.write("bytes", bytes(range(256)))
    assert bytes(files.read("bytes", format="bytes")) == bytes(range(256))
    assert b"".join(files.read("bytes", format="stream")) == bytes(range(256))
    files.write("empty", "")
    assert files.read("empty") == ""


def test_many_files_at_once():
    entries = [WriteEntry(path=f"many/{n}/f", data=str(n)) for n in range(20)]
    written = files.write_files(entries)
    assert [w.path for w in written] == [f"{HOME}/many/{n}/f" for n in range(20)]
    assert files.read("many/7/f") == "7"


def test_octets_compression_and_metadata():
    files.write("packed", "x" * 100_000, use_octet_stream=True, gzip=True, metadata={"author": "me"})
    assert files.read("packed", gzip=True) == "x" * 100_000
    assert files.get_info("packed").metadata == {"author": "me"}
    files.write("packed", "y")
    assert not files.get_info("packed").metadata


def test_a_large_file_both_ways():
    content = os.urandom(1 << 20) * 200
    files.write("large", content)
    read = hashlib.sha256()
    for piece in files.read("large", format="stream"):
        read.update(piece)
    assert read.digest() == hashlib.sha256(content).digest()
    files.remove("large")


def test_lists_and_entries():
    files.make_dir("tree/a/b")
    files.write("tree/f", "12345")
    assert [e.name for e in files.list("tree")] == ["a", "f"]
    assert [e.path for e in files.list("tree", depth=2)] == [f"{HOME}/tree/{n}" for n in ("a", "a/b", "f")]
    info = files.get_info("tree/f")
    assert (info.type, info.size, info.mode, info.permissions) == (FileType.FILE, 5, 0o644, "-rw-r--r--")
    assert (info.owner, info.group) == ("user", "user")
    raises(NotFoundException, lambda: files.list("nowhere"))
    raises(InvalidArgumentException, lambda: files.list("tree/f"))


def test_links():
    sandbox.commands.run("ln -s tree link")
    info = files.get_info("link")
    assert info.symlink_target == f"{HOME}/tree" and info.type == FileType.SYMLINK


def test_directories_moves_and_removals():
    assert files.make_dir("made/deep") is True
    assert files.make_dir("made/deep") is False
    files.write("made/a", "content")
    assert files.rename("made/a", "made/b").path == f"{HOME}/made/b"
    assert files.exists("made/b") and not files.exists("made/a")
    raises(NotFoundException, lambda: files.rename("made/a", "made/c"))
    files.remove("made")
    files.remove("made")
    raises(NotFoundException, lambda: files.read("made/b"))
    raises(InvalidArgumentException, lambda: files.read("tree"))


def test_files_of_root():
    files.write("/root/of-root", "x", user="root")
    assert files.get_info("of-root", user="root").owner == "root"
    files.remove("of-root", user="root")


run_all(globals())
