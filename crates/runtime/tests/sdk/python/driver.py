"""Lives through what users of the package e2b do in a sandbox, with a daemon on localhost:49983 (E2B_DEBUG=true).

usage: driver.py <version> [word...], words choose behaviours by name
"""

import os

# each registers its behaviours
import commands  # noqa: F401
import contents  # noqa: F401
import folders  # noqa: F401
import terminals  # noqa: F401
import watches  # noqa: F401
from proof import drive, same
from shapes import Box


async def boxes():
    same(os.environ.get("E2B_DEBUG"), "true")
    yield await Box.blocking()
    yield await Box.asynchronous()


drive("e2b", boxes, threads=128)
