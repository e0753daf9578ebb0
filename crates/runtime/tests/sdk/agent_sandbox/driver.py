"""Lives through what users of the package k8s-agent-sandbox do in a sandbox, with a daemon on this machine that speaks as the
older runtime and as sandboxd.

usage: driver.py <version> [word...], words choose behaviours by name

The ports are those that the package looks for, unless the environment says otherwise: LEGACY_PORT, REST_PORT, GRPC_PORT.
There is no cluster to ask: the parts of a sandbox that speak with its pod are used as the package itself puts them together.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))

# registers its behaviours
import behaviours  # noqa: E402, F401
import runtimes  # noqa: E402
from proof import drive  # noqa: E402


async def boxes():
    ports = {name: int(os.environ.get(f"{name.upper()}_PORT", 0)) or None for name in ("legacy", "rest", "grpc")}
    for box in runtimes.boxes(**ports):
        yield box


drive("k8s-agent-sandbox", boxes, threads=32)
