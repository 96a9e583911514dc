"""One process among replicas: its identity, its sockets, and how to query another one.

The supervisor sets the variables and queries the replicas; each replica reads the variables.
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
"""The variable with a replica's number, from 1. A configuration may use it."""

PARENT: Final = "WINDOW_CONSUMER_SUPERVISOR"
SOCKETS: Final = "WINDOW_CONSUMER_SOCKETS"
"""The variable with the directory of the replicas' health sockets."""

TEXT: Final = "text/plain; charset=utf-8"

_DEADLINE_S: Final = 0.8
"""Probes give up after a second."""

_DEATH_OF_PARENT: Final = 1  # PR_SET_PDEATHSIG


@frozen
class ReplicaIdentity:
    """The identity of a process that is one of several replicas."""

    number: str
    socket: Path | None
    """The Unix socket for health queries, None without any."""
    admin_socket: Path | None = None
    """The Unix socket for its windows, None without any."""


@frozen
class ReplicaSockets:
    """The Unix sockets on which a replica answers its supervisor."""

    health: Path
    admin: Path


def number_of_this_copy() -> str:
    """Return the number of this replica, "" if the process is not a replica."""
    return os.environ.get(NUMBER, "") if PARENT in os.environ else ""


def this_replica() -> ReplicaIdentity | None:
    """Return the identity of this replica, None if the process is not a replica."""
    number = number_of_this_copy()
    if not number:
        return None
    directory = os.environ.get(SOCKETS)
    if directory is None:
        return ReplicaIdentity(number, None)
    sockets = sockets_of(directory, number)
    return ReplicaIdentity(number, sockets.health, sockets.admin)


def sockets_of(directory: str, number: str) -> ReplicaSockets:
    """Return the sockets on which a replica answers probes and shows its windows."""
    return ReplicaSockets(Path(directory, f"{number}.socket"), Path(directory, f"{number}.admin"))


def join_supervisor() -> bool:
    """Drain when the supervisor is gone; return False if this process is not a replica."""
    parent = os.environ.get(PARENT)
    if parent is None:
        return False
    ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGTERM)
    return True


@frozen
class HttpAnswer:
    """An HTTP response."""

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
    """Query the process that listens at a Unix socket; return None without an answer in time."""
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
