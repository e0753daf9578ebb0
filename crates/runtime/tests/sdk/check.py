"""What the drivers share: a sandbox that is the daemon at hand, and a runner that names what failed."""

import os
import sys
import traceback

HOME = os.environ["DRIVER_HOME"]


def raises(kind, action):
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def run_all(namespace):
    """Runs every function whose name begins with test_, and exits with 1 if any of them failed."""
    failed = 0
    for name, test in list(namespace.items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            print("ok    ", name)
        except Exception:
            failed += 1
            print("FAILED", name)
            traceback.print_exc()
    sys.exit(1 if failed else 0)
