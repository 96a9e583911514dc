"""A child's stderr: goes to the terminal, and its end is kept for the page."""

from __future__ import annotations

import sys
import threading
from typing import IO, Final

_KEPT: Final = 8192
"""Bytes: enough for the traceback of a wrong module."""

_JOIN_S: Final = 1.0
"""How long to wait for the end of the output, which the child's own children may keep open."""


class ErrorOutput:
    """Passes a stream on while it is written. Owner: the thread that creates it."""

    def __init__(self, stream: IO[bytes]):
        self._stream = stream
        self._tail = b""
        self._thread = threading.Thread(target=self._pass_on, name="wc-dev-stderr", daemon=True)
        self._thread.start()

    def last_lines(self) -> str:
        """Return the last whole lines, once the process has ended."""
        self._thread.join(_JOIN_S)
        tail = self._tail
        if len(tail) == _KEPT:
            tail = tail.partition(b"\n")[2]
        return tail.decode("utf-8", "replace").strip("\n")

    def _pass_on(self) -> None:
        with self._stream:
            while piece := self._stream.read1(_KEPT):  # type: ignore[attr-defined] # it is buffered
                sys.stderr.buffer.write(piece)
                sys.stderr.flush()
                self._tail = (self._tail + piece)[-_KEPT:]
