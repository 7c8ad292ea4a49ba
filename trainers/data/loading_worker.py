"""A worker process of `trainers.data.loading`: answers the tasks it is sent, in turn, until nobody listens any more.

    python -m trainers.data.loading_worker CONNECTION READER

The arguments are inherited file descriptors: a socket, and memory that holds the pickled function to read with. It
imports no torch, so it is up in a fraction of a second and needs little memory.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import socket
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

TASKS_AHEAD = 2
"""Tasks of each worker: the one it reads, and one more, so that it need not wait for the trainer."""
ALIGNMENT_BYTES = 64
"""Alignment of each array in shared memory: a cache line, more than any element type needs."""
NUM_KEPT_OPEN = TASKS_AHEAD if sys.platform == "darwin" else 0
"""Answers whose memory a worker keeps open: of any before these the trainer has it, or it would not have sent the next
task. On macOS a file descriptor that is closed on its way may not arrive."""


class ReadAnswer:
    """The answer to one task: its result, whose arrays lie in shared memory, or an error."""

    def __init__(self, body: bytes, buffers: list[pickle.PickleBuffer], error: BaseException | None = None) -> None:
        self.body = body
        self.buffers = buffers
        self.error = error

    @classmethod
    def of(cls, read: Callable[[Any], object], task: object) -> ReadAnswer:
        buffers: list[pickle.PickleBuffer] = []
        try:
            return cls(pickle.dumps(read(task), protocol=5, buffer_callback=buffers.append), buffers)
        except Exception as error:  # noqa: BLE001  # a process boundary: the trainer raises it, with the traceback
            return cls.of_error(error)

    @classmethod
    def of_error(cls, error: Exception) -> ReadAnswer:
        error.add_note(f"In a worker process:\n{traceback.format_exc()}")
        try:
            body = pickle.dumps(error)
            pickle.loads(body)
        except Exception:  # noqa: BLE001  # an error of someone else's class, which may fail in any way
            error = RuntimeError(f"{type(error).__name__}: {error}")
            error.add_note(f"In a worker process:\n{traceback.format_exc()}")
            body = pickle.dumps(error)
        return cls(body, [], error)

    def send(self, connection: Connection) -> int | None:
        """Sends it; the file descriptor of its arrays, which the caller is to close. None: it has none."""
        raw = [buffer.raw() for buffer in self.buffers]
        try:
            descriptor = _memory_of(raw) if any(part.nbytes for part in raw) else None
        except OSError as error:  # there is no room
            return ReadAnswer.of_error(error).send(connection)
        connection.send_bytes(pickle.dumps((self.error is None, self.body, [part.nbytes for part in raw])))
        if descriptor is not None:
            send_descriptor(connection, descriptor)
        return descriptor


def _memory_of(parts: Sequence[memoryview]) -> int:
    """The file descriptor of shared memory with copies of these. Raises: OSError: there is no room."""
    descriptor = new_memory("batch")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            for part in parts:
                file.write(part)
                file.write(bytes(aligned(part.nbytes) - part.nbytes))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def new_memory(name: str) -> int:
    """The file descriptor of empty memory that processes can share. It has no name in a directory: nothing is left
    behind whoever is killed, and no size limit of `/dev/shm` applies.

    It is a temporary file where Python knows no memory files: on macOS, and on Linux if it was built for an older C
    library, as that of conda is.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def contents_of(descriptor: int) -> memoryview:
    """The contents of shared memory, which may be closed then: uncopied, but for those of a temporary file, as macOS
    writes one to the disk before Python maps it."""
    if hasattr(os, "memfd_create"):
        return memoryview(mmap.mmap(descriptor, 0))
    contents = bytearray(os.fstat(descriptor).st_size)
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        file.readinto(contents)
    return memoryview(contents)


def send_descriptor(connection: Connection, descriptor: int) -> None:
    """Sends a file descriptor through the socket of a connection, between two of its messages."""
    # From Python 3.14 on `multiprocessing.reduction` has each one acknowledged, for which a worker would wait.
    with socket.socket(fileno=os.dup(connection.fileno())) as channel:
        socket.send_fds(channel, [b"d"], [descriptor])


def receive_descriptor(connection: Connection) -> int:
    """The file descriptor that `send_descriptor` sent. Raises: EOFError, OSError: the sender is gone."""
    with socket.socket(fileno=os.dup(connection.fileno())) as channel:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1, getattr(socket, "MSG_CMSG_CLOEXEC", 0))  # not on macOS
    if not descriptors:
        raise EOFError
    return descriptors[0]


def aligned(num_bytes: int) -> int:
    """The bytes that an array of so many takes in shared memory."""
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def serve(connection: Connection, reader: int) -> None:
    """Answers tasks until the other end is closed."""
    startup_failure = None
    try:
        with mmap.mmap(reader, 0, prot=mmap.PROT_READ) as memory:
            read = pickle.loads(memory)
    except Exception as error:  # noqa: BLE001  # a process boundary: every task is answered with it
        startup_failure = ReadAnswer.of_error(error)
    sent: deque[int | None] = deque()
    while True:
        task = pickle.loads(connection.recv_bytes())
        sent.append((startup_failure or ReadAnswer.of(read, task)).send(connection))
        if len(sent) > NUM_KEPT_OPEN and (descriptor := sent.popleft()) is not None:
            os.close(descriptor)


def main() -> None:
    connection, reader = (int(argument) for argument in sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which then ends its workers
    os.dup2(2, 1)  # standard output belongs to the trainer
    try:
        serve(Connection(connection), reader)
    except (EOFError, OSError):  # the trainer closed its end, or is gone
        return


if __name__ == "__main__":
    main()
