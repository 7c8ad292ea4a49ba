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
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

ALIGNMENT_BYTES = 64
"""Alignment of each array in shared memory: a cache line, more than any element type needs."""


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

    def send(self, connection: Connection) -> None:
        raw = [buffer.raw() for buffer in self.buffers]
        connection.send_bytes(pickle.dumps((self.error is None, self.body, [part.nbytes for part in raw])))
        num_bytes = sum(map(aligned, (part.nbytes for part in raw)))
        if num_bytes == 0:
            return
        # Shared memory without a name: nothing is left behind whoever is killed, and no size limit of /dev/shm applies.
        descriptor = os.memfd_create("batch", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, num_bytes)
            with mmap.mmap(descriptor, num_bytes) as memory:
                offset = 0
                for part in raw:
                    memory[offset : offset + part.nbytes] = part
                    offset += aligned(part.nbytes)
            send_descriptor(connection, descriptor)
        finally:
            os.close(descriptor)


def send_descriptor(connection: Connection, descriptor: int) -> None:
    """Sends a file descriptor through the socket of a connection, between two of its messages."""
    # From Python 3.14 on `multiprocessing.reduction` has each one acknowledged, for which a worker would wait.
    with socket.socket(fileno=os.dup(connection.fileno())) as channel:
        socket.send_fds(channel, [b"d"], [descriptor])


def receive_descriptor(connection: Connection) -> int:
    """The file descriptor that `send_descriptor` sent. Raises: EOFError, OSError: the sender is gone."""
    with socket.socket(fileno=os.dup(connection.fileno())) as channel:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1, socket.MSG_CMSG_CLOEXEC)
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
    while True:
        task = pickle.loads(connection.recv_bytes())
        (startup_failure or ReadAnswer.of(read, task)).send(connection)


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
