"""Lives through what users of the package k8s-agent-sandbox do in a sandbox, with a daemon on this machine that speaks as the
older runtime and as sandboxd.

usage: driver.py <version> [word...], words choose behaviours by name

The ports are those that the package looks for, unless the environment says otherwise: LEGACY_PORT, REST_PORT, GRPC_PORT.
There is no cluster to ask: the parts of a sandbox that speak with its pod are used as the package itself puts them together.
"""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))

# registers its behaviours
import behaviours  # noqa: E402, F401
from proof import prove, same  # noqa: E402
from runtimes import boxes  # noqa: E402


async def main(wanted, words):
    same(version("k8s-agent-sandbox"), wanted)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
    ports = {name: int(os.environ.get(f"{name.upper()}_PORT", 0)) or None for name in ("legacy", "rest", "grpc")}
    failed = []
    for box in boxes(**ports):
        failed += await prove(box, wanted, words)
    print(f"k8s-agent-sandbox {wanted} from PyPI: {len(failed)} failed", *failed, sep="\n  ", flush=True)
    return 1 if failed else 0


code = asyncio.Runner().run(main(sys.argv[1], sys.argv[2:]))
sys.stdout.flush()
# threads of calls that hang would be waited for
os._exit(code)
