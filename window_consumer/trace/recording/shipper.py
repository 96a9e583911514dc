"""The thread that ships the spool's files and deletes them once they are acked."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from window_consumer.model.errors import PublishFailedError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import Trouble
from window_consumer.runtime.segment_log.shipper import Outgoing, SegmentOutlet, SegmentShipper
from window_consumer.trace.event_batch import count_of
from window_consumer.trace.recording.spool import FILE_BYTES, Orphans, data_of

_CHECK_S: Final = 0.1
_AGAIN_S: Final = (0.2, 10.0)
"""The first and the longest wait before unacked batches are sent again; it doubles in between."""

_ADOPT_S: Final = 10.0
"""How often to look for the files of dead processes."""


class SpoolShipper(SegmentShipper):
    """Ships finished files one after the other. Owner: its own thread."""

    def __init__(
        self,
        finished: deque[Path],
        orphans: Orphans,
        make_writer: Callable[[], SegmentOutlet],
        topic: str,
        logger: logging.Logger,
    ):
        trouble = Trouble(
            logger, LogEvent.TRACE_RECOVERED, f"trace: {topic} accepts events from the spool again"
        )
        super().__init__(trouble, LogEvent.TRACE_EVENTS_HELD, chunk_bytes=FILE_BYTES)
        self._finished = finished
        self._orphans = orphans
        self._make_writer = make_writer
        self._topic = topic
        self._logger = logger
        self._ends = threading.Event()
        self._deadline = float("inf")
        self.busy = False
        """A file is being shipped. Any thread may read it."""
        self.refused = 0
        """Events that the broker will never accept."""
        self._thread = threading.Thread(target=self._run, name="wc-trace-shipper", daemon=True)

    def start(self) -> None:
        """Start to ship."""
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Ship finished files until the timeout; the rest stays on disk."""
        self._deadline = monotonic() + timeout_s
        self._ends.set()
        self._thread.join(timeout_s + 1.0)

    def messages(self, path: Path, lines: Sequence[bytes]) -> Iterable[Outgoing]:
        """Return a message for each batch, without incomplete ones."""
        batches = [data for data in map(data_of, lines) if data is not None]
        torn = len(lines) - len(batches)
        if torn:
            self.torn += torn
            self._logger.warning(
                "trace: %s: %d torn batches are omitted: their process or its disk stopped while"
                " writing them",
                path,
                torn,
                extra={"event": LogEvent.TRACE_BATCHES_TORN},
            )
        return [Outgoing(data, count_of(data)) for data in batches]

    def describe(self, error: PublishFailedError) -> str:
        """Return the line to log when the topic rejects events."""
        return f"trace: {self._topic} does not accept events ({error.why}); they stay in the spool"

    def gives_up(self, message: Outgoing, error: PublishFailedError) -> bool:
        """Drop a batch that the broker will never accept: it would block all others."""
        if error.too_large:
            self.refused += message.weight
            self._logger.warning(
                "trace: a batch of %d events is lost: %s",
                message.weight,
                error.why,
                extra={"event": LogEvent.TRACE_BATCH_REFUSED},
            )
        return error.too_large

    def _run(self) -> None:
        writer: SegmentOutlet | None = None
        adopted: list[Path] = []
        look_at = monotonic()
        while True:
            path = None
            try:
                if monotonic() >= look_at and not adopted:
                    look_at = monotonic() + _ADOPT_S
                    adopted = self._orphans.adopt()
                path = self._next(adopted)
                if path is None:
                    if self._ends.wait(_CHECK_S) and not self._finished:
                        break
                    continue
                writer = writer or self._make_writer()
                self.busy = True
                if not self._ship(path, writer):
                    break
            except Exception as error:
                self._trouble.begins(
                    LogEvent.TRACE_SHIPPING_FAILED, f"trace: the spool cannot be shipped: {error!r}"
                )
                adopted += [] if path is None else [path]
                if self._ends.wait(_AGAIN_S[1]):
                    break
            finally:
                self.busy = False
        if writer is not None:
            writer.close(0)
        self._orphans.close()

    def _next(self, adopted: list[Path]) -> Path | None:
        """Return the next file: our own before adopted ones."""
        try:
            return self._finished.popleft()
        except IndexError:
            return adopted.pop(0) if adopted else None

    def _ship(self, path: Path, writer: SegmentOutlet) -> bool:
        """Ship a file until all of its batches are acked; return False at the deadline."""
        wait_s = _AGAIN_S[0]
        while not self.ship_segment(writer, path, is_closed=True, must_end=self._must_end):
            if self._must_end():
                return False
            if self._ends.wait(wait_s):
                sleep(_CHECK_S)
            wait_s = min(2 * wait_s, _AGAIN_S[1])
        return True

    def _must_end(self) -> bool:
        return self._ends.is_set() and monotonic() >= self._deadline
