"""Behaviours: what they are, how they are run, and the few words in which they say what they expect."""

import asyncio
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from typing import Callable

# no behaviour needs it; one that hangs is reported, and the others still run
PATIENCE = 300
# long enough to start something on a busy machine, and short enough to wait for
SOON = 5
BEHAVIOURS = []


@dataclass
class Behaviour:
    name: str
    run: Callable
    since: str


def behaviour(run=None, *, since="0"):
    """Marks a function of a box as a behaviour that packages have since a version."""
    if run is None:
        return lambda run: behaviour(run, since=since)
    module = run.__module__
    BEHAVIOURS.append(Behaviour(f"{module}: {run.__name__.replace('_', ' ')}", run, since))
    return run


def number(text):
    return [int(part) for part in text.split(".")]


def same(found, wanted):
    shown = repr(found)
    assert found == wanted, f"{shown[:2000]} is not {repr(wanted)[:2000]}"


def holds(text, part):
    assert part in text, f"{part!r} is not in {text!r}"


class Failing:
    """What is inside must raise `kind`, and say `words`."""

    def __init__(self, kind, words=""):
        self.kind, self.words, self.error = kind, words, None

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, error, _):
        assert error is not None, f"{self.kind.__name__} expected, and nothing was raised"
        if not isinstance(error, self.kind):
            return False
        assert self.words in str(error), f"{self.words!r} is not in {error!r}"
        self.error = error
        return True


async def until(what, probe):
    """Waits until a probe holds, and gives what it gave."""
    give_up = time.monotonic() + PATIENCE / 3
    while not (found := await probe()):
        assert time.monotonic() < give_up, f"waited in vain until {what}"
        await asyncio.sleep(0.02)
    return found


async def prove(box, wanted, words):
    """Runs the behaviours that a version has and whose names hold one of the words, if there are words. Gives the names
    of those that failed."""
    failed = []
    for one in BEHAVIOURS:
        name = f"{box.name} {one.name}"
        if words and not any(word in name for word in words):
            continue
        if number(wanted) < number(one.since):
            print(f"skipped  {name}: since {one.since}", flush=True)
            continue
        start = time.monotonic()
        try:
            await asyncio.wait_for(one.run(box), PATIENCE)
        except Exception:
            failed.append(name)
            print(f"FAILED   {name}\n{traceback.format_exc()}", flush=True)
        else:
            print(f"ok       {name} ({time.monotonic() - start:.2f} s)", flush=True)
    return failed


def drive(package, boxes, threads):
    """Proves the behaviours for each box of a package, as the words of the command line say, and ends the program."""

    async def main(wanted, *words):
        same(version(package), wanted)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(threads))
        failed = []
        async for box in boxes():
            failed += await prove(box, wanted, words)
        print(f"{package} {wanted} from PyPI: {len(failed)} failed", *failed, sep="\n  ", flush=True)
        return 1 if failed else 0

    code = asyncio.Runner().run(main(*sys.argv[1:]))
    sys.stdout.flush()
    # threads of calls that hang would be waited for
    os._exit(code)
