"""The thread that ships what is in the spool, and deletes what the brokers have."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from window_consumer.kafka.event_writer import EventWriter
from window_consumer.model.errors import PublishFailedError
from window_consumer.runtime.log import Trouble
from window_consumer.trace.event_batch import count_of
from window_consumer.trace.recording.spool import (
    Orphans,
    batches_in,
)

_LOOK_S: Final = 0.1
_AGAIN_S: Final = (0.2, 10.0)
"""The wait before what was not acked is sent again: it doubles from the first to the second."""

_ADOPT_S: Final = 10.0
"""How often files of processes that are gone are looked for."""


class Shipping:
    """Sends the batches of finished files, one file after the other. Owner: its own thread."""

    def __init__(
        self,
        finished: deque[Path],
        orphans: Orphans,
        make_writer: Callable[[], EventWriter],
        topic: str,
        logger: logging.Logger,
    ):
        self._finished = finished
        self._orphans = orphans
        self._make_writer = make_writer
        self._topic = topic
        self._logger = logger
        self._trouble = Trouble(logger, f"trace: {topic} takes events from the spool again")
        self._ends = threading.Event()
        self._deadline = float("inf")
        self.busy = False
        """A file is being shipped. Any thread may look."""
        self.refused = 0
        """Events that the broker does not take, however often they are sent."""
        self.torn = 0
        """Batches of which only a part was on disk."""
        self._thread = threading.Thread(target=self._run, name="wc-trace-shipper", daemon=True)

    def start(self) -> None:
        """Begin to ship."""
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Ship what is finished, as far as the time suffices; the rest stays on disk."""
        self._deadline = monotonic() + timeout_s
        self._ends.set()
        self._thread.join(timeout_s + 1.0)

    @property
    def blocked_s(self) -> float:
        """For how long the topic has taken nothing, 0 while it does. Any thread may ask."""
        return self._trouble.seconds

    def _run(self) -> None:
        writer: EventWriter | None = None
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
                    if self._ends.wait(_LOOK_S) and not self._finished:
                        break
                    continue
                writer = writer or self._make_writer()
                self.busy = True
                if not self._ship(path, writer):
                    break
            except Exception as error:
                self._trouble.begins(f"trace: the spool cannot be shipped: {error!r}")
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

    def _ship(self, path: Path, writer: EventWriter) -> bool:
        """Send a file's batches until all are acked, then delete it; False where the end came."""
        unacked = self._batches(path)
        wait_s = _AGAIN_S[0]
        while unacked and self._goes_on:
            waiting = set(unacked)
            for index, data in list(unacked.items()):
                writer.send(data, partial(self._answered, unacked, waiting, index))
                writer.serve(0)
            while waiting and self._goes_on:
                writer.serve(_LOOK_S)
            if unacked and self._goes_on:
                self._ends.wait(wait_s)
                wait_s = min(2 * wait_s, _AGAIN_S[1])
        if unacked:
            return False
        self._trouble.ends()
        path.unlink(missing_ok=True)
        return True

    @property
    def _goes_on(self) -> bool:
        return not self._ends.is_set() or monotonic() < self._deadline

    def _batches(self, path: Path) -> dict[int, bytes]:
        read = list(enumerate(batches_in(path)))
        torn = sum(data is None for _, data in read)
        if torn:
            self.torn += torn
            self._logger.warning(
                "trace: %s: %d torn batches are left out: their process or its disk stopped while"
                " they were written",
                path,
                torn,
            )
        return {index: data for index, data in read if data is not None}

    def _answered(
        self,
        unacked: dict[int, bytes],
        waiting: set[int],
        index: int,
        error: PublishFailedError | None,
    ) -> None:
        waiting.discard(index)
        if error is None:
            unacked.pop(index, None)
        elif error.too_large:
            lost = count_of(unacked.pop(index, b""))
            self.refused += lost
            self._logger.warning("trace: a batch of %d events is lost: %s", lost, error.why)
        else:
            self._trouble.begins(
                f"trace: {self._topic} does not take events ({error.why}); they stay in the spool"
            )
