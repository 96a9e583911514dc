"""The thread that ships what is in the spool, and deletes what the brokers have."""

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
"""The wait before what was not acked is sent again: it doubles from the first to the second."""

_ADOPT_S: Final = 10.0
"""How often files of processes that are gone are looked for."""


class SpoolShipper(SegmentShipper):
    """Sends the batches of finished files, one file after the other. Owner: its own thread."""

    def __init__(
        self,
        finished: deque[Path],
        orphans: Orphans,
        make_writer: Callable[[], SegmentOutlet],
        topic: str,
        logger: logging.Logger,
    ):
        trouble = Trouble(
            logger, LogEvent.TRACE_RECOVERED, f"trace: {topic} takes events from the spool again"
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
        """A file is being shipped. Any thread may look."""
        self.refused = 0
        """Events that the broker does not take, however often they are sent."""
        self._thread = threading.Thread(target=self._run, name="wc-trace-shipper", daemon=True)

    def start(self) -> None:
        """Begin to ship."""
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Ship what is finished, as far as the time suffices; the rest stays on disk."""
        self._deadline = monotonic() + timeout_s
        self._ends.set()
        self._thread.join(timeout_s + 1.0)

    def messages(self, path: Path, lines: Sequence[bytes]) -> Iterable[Outgoing]:
        """Return a message for each batch; torn ones are left out."""
        batches = [data for data in map(data_of, lines) if data is not None]
        torn = len(lines) - len(batches)
        if torn:
            self.torn += torn
            self._logger.warning(
                "trace: %s: %d torn batches are left out: their process or its disk stopped while"
                " they were written",
                path,
                torn,
                extra={"event": LogEvent.TRACE_BATCHES_TORN},
            )
        return [Outgoing(data, count_of(data)) for data in batches]

    def describe(self, error: PublishFailedError) -> str:
        """Return the line to log when the topic does not take events."""
        return f"trace: {self._topic} does not take events ({error.why}); they stay in the spool"

    def gives_up(self, message: Outgoing, error: PublishFailedError) -> bool:
        """Lose a batch that the broker takes at no time: it would hold up all others."""
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
        """Return the file whose turn it is: one of our own before those of others."""
        try:
            return self._finished.popleft()
        except IndexError:
            return adopted.pop(0) if adopted else None

    def _ship(self, path: Path, writer: SegmentOutlet) -> bool:
        """Send a file's batches until all are acked; False where the end came."""
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
