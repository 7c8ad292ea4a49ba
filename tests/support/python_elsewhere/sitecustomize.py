"""Takes from Python what it lacks on macOS, and on Linux where it was built for an older C library: memory files, and
some of what else it has of Linux. With `TEST_PLATFORM` it also takes itself to be elsewhere.

Python imports it before anything else where its directory is in `PYTHONPATH`.
"""

from __future__ import annotations

import os
import socket
import sys

for module, name in ((os, "memfd_create"), (os, "pidfd_open"), (socket, "MSG_CMSG_CLOEXEC")):
    if hasattr(module, name):
        delattr(module, name)
sys.platform = os.environ.get("TEST_PLATFORM", sys.platform)
