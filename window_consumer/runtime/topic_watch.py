"""The topic watch detects recreated topics, and new topics that match a pattern.

It also fetches the log ends of paused partitions; for others, the client learns them from its
fetches. Answers can take seconds, so a separate thread asks and reports to the poll thread through
the completions queue.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from attrs import frozen

from window_consumer.model.errors import RunError, WindowConsumerError
from window_consumer.model.protocols import TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.threads import WatchedThread

WATCH_S = 5.0


@frozen
class TopicNews:
    """The cluster's answer about the topics to read now."""

    facts: Mapping[str, TopicFacts]


@frozen
class LogEnds:
    """The log ends of partitions that are not fetched."""

    ends: Mapping[TopicPartition, int]


AskEnds = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Returns the ends (exclusive) of logs; raises a WindowConsumerError on failure."""

Ask = Callable[[], Mapping[str, TopicFacts]]
"""Returns the facts of the topics to read; raises a WindowConsumerError on failure."""


class TopicWatch:
    """Asks the cluster every few seconds. Owns nothing but the request."""

    def __init__(
        self,
        worker: str,
        ask: Ask,
        completions: SimpleQueue[Any],
        every_s: float = WATCH_S,
        ask_ends: AskEnds = lambda _names: {},
    ):
        self._ask = ask
        self._ask_ends = ask_ends
        self._paused: Sequence[TopicPartition] = ()
        """The partitions whose log ends are also requested."""
        self._completions = completions
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = WatchedThread(self._run, f"wc-{worker}-topics", completions.put)

    def set_paused(self, names: Sequence[TopicPartition]) -> None:
        """Set the partitions that are not fetched at the moment. Owner: poll thread."""
        self._paused = names

    def start(self) -> None:
        """Start asking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop asking; ``end`` waits for a pending answer."""
        self._ended.set()

    def end(self, timeout_s: float) -> None:
        """Stop asking and wait for a pending answer.

        The client delivers it through the interpreter. If that were gone, the process would end
        with a segmentation fault.
        """
        self.stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                facts = self._ask()
                ends = self._ask_ends(paused) if (paused := self._paused) else None
            except WindowConsumerError as error:
                self._completions.put(error)
            except Exception as error:
                # A watch that ended here would never report new topics, and copies would wait for
                # ever.
                stack = "".join(traceback.format_exception(error))
                self._completions.put(RunError(f"topics: a bug, please report it:\n{stack}"))
            else:
                self._completions.put(TopicNews(facts))
                if ends is not None:
                    self._completions.put(LogEnds(ends))
