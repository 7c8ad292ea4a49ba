"""A module that, when it is run, is killed as by a machine short of memory."""

import os
import signal

if __name__ == "__main__":
    os.kill(os.getpid(), signal.SIGKILL)
