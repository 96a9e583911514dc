"""The publisher: sends copies and results, and hands the broker's answers to the poll thread.

Sending happens on the poll thread. One thread of its own waits for the answers, so that an ack
wakes the poll thread through the completions queue, like everything else.
"""

from __future__ import annotations

import threading
from functools import partial
from queue import SimpleQueue
from typing import Any

from attrs import frozen

from window_consumer.core.ladder import FailedRecord
from window_consumer.core.producing import Production
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Copy, Sink

_SERVE_S = 0.1


@frozen
class Published:
    """What became of a record's copy: ``error`` is None once it is acked."""

    failed: FailedRecord
    error: PublishFailedError | None


@frozen
class Produced:
    """What became of one of a call's results: ``error`` is None once it is acked."""

    production: Production
    index: int
    error: PublishFailedError | None


class Publisher:
    """Sends copies and results through a Sink.

    Owner: poll thread; its own thread only waits for answers.
    """

    def __init__(self, worker: str, sink: Sink, completions: SimpleQueue[Any]):
        self._sink = sink
        self._completions = completions
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, name=f"wc-{worker}-publisher", daemon=True
        )

    def start(self) -> None:
        """Start waiting for answers."""
        self._thread.start()

    def publish(self, failed: FailedRecord, copy: Copy) -> None:
        """Send a record's copy; exactly one ``Published`` will come for it."""
        completions = self._completions
        self._sink.write(copy, lambda error: completions.put(Published(failed, error)))

    def produce(self, production: Production) -> None:
        """Send the results of a call; exactly one ``Produced`` will come for each of them."""
        for index in production.to_send:
            result = production.results[index]
            copy = Copy(
                result.topic,
                result.partition,
                result.key,
                result.value,
                result.headers,
                result.timestamp,
            )
            self._sink.write(copy, partial(self._answer, production, index))

    def _answer(self, production: Production, index: int, error: PublishFailedError | None) -> None:
        self._completions.put(Produced(production, index, error))

    def stop(self, timeout_s: float) -> int:
        """End; return how many copies and results have no answer."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_SERVE_S * 2)
        return self._sink.close(timeout_s)

    def _serve(self) -> None:
        while not self._ended.is_set():
            self._sink.serve(_SERVE_S)
