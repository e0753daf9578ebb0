"""Lives through what users of the package e2b do in a sandbox, with a daemon on localhost:49983 (E2B_DEBUG=true).

usage: driver.py <version> [word...], words choose behaviours by name
"""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

# each registers its behaviours
import commands  # noqa: F401
import contents  # noqa: F401
import folders  # noqa: F401
import terminals  # noqa: F401
import watches  # noqa: F401
from proof import same, prove
from shapes import Box


async def main(wanted, words):
    same(version("e2b"), wanted)
    same(os.environ.get("E2B_DEBUG"), "true")
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(128))
    failed = []
    for box in (await Box.blocking(), await Box.asynchronous()):
        failed += await prove(box, wanted, words)
    print(f"e2b {wanted} from PyPI: {len(failed)} failed", *failed, sep="\n  ", flush=True)
    return 1 if failed else 0


code = asyncio.Runner().run(main(sys.argv[1], sys.argv[2:]))
sys.stdout.flush()
# threads of calls that hang would be waited for
os._exit(code)
