"""One process among replicas: which one it is, where it is asked, and how to ask another one.

The process that keeps the replicas sets the variables and asks; each replica reads them.
"""

from __future__ import annotations

import ctypes
import http.client
import os
import signal
import socket
from pathlib import Path
from typing import Final

from attrs import frozen

NUMBER: Final = "WINDOW_CONSUMER_PROCESS"
"""The variable that tells a copy its number, from 1 on. A configuration may use it."""

PARENT: Final = "WINDOW_CONSUMER_SUPERVISOR"
SOCKETS: Final = "WINDOW_CONSUMER_SOCKETS"
"""The directory of the sockets on which copies are asked how they are."""

TEXT: Final = "text/plain; charset=utf-8"

_DEADLINE_S: Final = 0.8
"""Who probes gives up after a second."""

_DEATH_OF_PARENT: Final = 1  # PR_SET_PDEATHSIG


@frozen
class ReplicaIdentity:
    """What a process has to know that is one of several copies."""

    number: str
    socket: Path | None
    """The Unix socket on which it is asked how it is, None where nobody wants to know."""
    admin_socket: Path | None = None
    """The one on which it shows its windows, None where nobody wants to see them."""


def number_of_this_copy() -> str:
    """Return which copy this process is, "" where it is none."""
    return os.environ.get(NUMBER, "") if PARENT in os.environ else ""


def this_copy() -> ReplicaIdentity | None:
    """Return what this process has to know as one of several copies, None where it is none."""
    number = number_of_this_copy()
    if not number:
        return None
    directory = os.environ.get(SOCKETS)
    if directory is None:
        return ReplicaIdentity(number, None)
    return ReplicaIdentity(number, socket_of(directory, number), admin_socket_of(directory, number))


def socket_of(directory: str, number: str) -> Path:
    """Return where a replica answers probes."""
    return Path(directory, f"{number}.socket")


def admin_socket_of(directory: str, number: str) -> Path:
    """Return where a replica shows its windows."""
    return Path(directory, f"{number}.admin")


def join_supervisor() -> bool:
    """Drain when the supervisor is gone; False where this process is no copy."""
    parent = os.environ.get(PARENT)
    if parent is None:
        return False
    ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGTERM)
    return True


@frozen
class HttpAnswer:
    """What is sent back."""

    status: int
    text: str
    kind: str = TEXT


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, deadline_s: float):
        super().__init__("localhost", timeout=deadline_s)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(
    path: Path, route: str, method: str = "GET", deadline_s: float = _DEADLINE_S
) -> HttpAnswer | None:
    """Ask the process that listens at a Unix socket; None where none answers in time."""
    connection = _Connection(path, deadline_s)
    try:
        connection.request(method, route)
        response = connection.getresponse()
        text = response.read().decode()
        return HttpAnswer(response.status, text, response.getheader("Content-Type", ""))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
