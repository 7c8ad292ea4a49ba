"""Stand-ins for the two agents of a raylet: it waits for them when it starts, and ends if they end.

Ray runs this file instead of each agent's own script, which imports much of Ray. The dashboard's agent serves metrics
and logs to a dashboard, which a run's cluster does not have. The agent of runtime environments sets up what the code of
a task requires beyond its cluster's environment. Nothing of ours requires that; if a user's code does, the real agent
is started behind the stand-in. Imports only the standard library, and little of it.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import socket

ENDS_WITH_PIPE = "RAY_enable_pipe_based_agent_to_parent_health_check"
"""Set by a raylet whose end an agent notices by the end of its standard input."""
NOT_SERVED = -1
"""Ray's port number for an agent that does not listen."""
DASHBOARD_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
ENVIRONMENTS_PORT = "runtime_env_agent_port"
ENVIRONMENTS_AGENT = "runtime_env"
"""A folder in the path of that agent's script."""
START_SECONDS = 60.0
"""Seconds that the real agent may take until it listens."""
RAYLET = 0
"""The file descriptor that ends with the raylet: standard input."""


def main(arguments: Sequence[str]) -> None:
    """Stands in for an agent until its raylet has ended.

    Args:
        arguments: the agent's script and its options, each as `--name=value`.
    """
    if ENDS_WITH_PIPE not in os.environ:
        os.execv(sys.executable, [sys.executable, "-u", *arguments])
    options = dict(option.removeprefix("--").split("=", 1) for option in arguments[1:] if "=" in option)
    session, node = Path(options["session-dir"]), options["node-id"]
    if ENVIRONMENTS_AGENT in Path(arguments[0]).parts:
        _stand_in_for_environments(arguments, session, node, options["node-ip-address"])
    else:
        for name in DASHBOARD_PORTS:
            _tell_port(session, name, node, NOT_SERVED)
        while os.read(RAYLET, 1024):
            pass


def _tell_port(session: Path, name: str, node: str, port: int) -> None:
    """Tells the raylet a port, in the file where it looks for it."""
    file = session / f"{name}_{node}"
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.write_text(str(port))
    unfinished.replace(file)


def _stand_in_for_environments(arguments: Sequence[str], session: Path, node: str, address: str) -> None:
    """Listens; with the first request it starts the real agent, which answers this and all later ones."""
    import socket

    family = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][0]
    with socket.create_server((address, 0), family=family) as listener:
        _tell_port(session, ENVIRONMENTS_PORT, node, listener.getsockname()[1])
        while True:
            ready, _, _ = select.select([RAYLET, listener.fileno()], [], [])
            if listener.fileno() in ready:
                _relay(listener, _true_agent(arguments, session, node, address))
            if not os.read(RAYLET, 1024):
                return


def _true_agent(arguments: Sequence[str], session: Path, node: str, address: str) -> tuple[str, int]:
    """Starts the real agent, and returns its address. It ends with the raylet, too. Raises: OSError: it does not
    start."""
    import subprocess
    import time

    own = session / "environments"  # where it writes its port, so that the raylet does not take it for this one's
    own.mkdir(exist_ok=True)
    options = [f"--session-dir={own}" if option.startswith("--session-dir=") else option for option in arguments[1:]]
    agent = subprocess.Popen([sys.executable, "-u", arguments[0], *options])
    told = own / f"{ENVIRONMENTS_PORT}_{node}"
    deadline = time.monotonic() + START_SECONDS
    while not (told.exists() and told.read_text() and _listens(address, int(told.read_text()))):
        if agent.poll() is not None or time.monotonic() > deadline:
            raise OSError("Ray's agent of runtime environments does not start; its log says why")
        time.sleep(0.05)
    return address, int(told.read_text())


def _listens(address: str, port: int) -> bool:
    """True if the port is open. The agent reports its port before it listens."""
    import socket

    try:
        socket.create_connection((address, port)).close()
    except ConnectionRefusedError:
        return False
    return True


def _relay(listener: socket.socket, address: tuple[str, int]) -> NoReturn:
    """Forwards requests and answers."""
    import socket
    import threading

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        try:
            while content := source.recv(2**16):
                target.sendall(content)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # one side is gone, and the other notices
            source.close()
            target.close()

    def leave_with_the_raylet() -> None:
        while os.read(RAYLET, 1024):
            pass
        os._exit(0)

    threading.Thread(target=leave_with_the_raylet, daemon=True).start()
    while True:
        asking, _ = listener.accept()
        answering = socket.create_connection(address)
        for pair in ((asking, answering), (answering, asking)):
            threading.Thread(target=pass_on, args=pair, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
