"""One run of a peer in a separate process: its arguments, recording handlers, and the result.

A runner is called with ``key=value`` arguments: ``bootstrap``, ``topic``, ``group``, ``records``,
``partitions``, ``slots``, ``cap_s``, ``timed``, ``journal``, and the peer's own options. It handles
records until all are finished or ``cap_s`` is over, stops the peer as its documentation says,
writes the journal, and prints one line of JSON. A run that will be killed has ``finished``: a file
to which the number of each finished record is added at once, in four bytes, big-endian.

Standard library only: it runs in every peer's environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import threading
import time
from array import array
from collections.abc import Awaitable, Callable, Iterable
from importlib import metadata
from pathlib import Path
from struct import Struct
from typing import Any

from benchmarks.peers.journal import Journal

FIRST_S = 30.0
"""How long to wait for a first record before the run is abandoned."""

STOP_S = 15.0
"""How long a graceful stop may take."""

_CHECK_S = 0.005
_HEAD = Struct(">II")
"""The head of a value: the record's number, and its handler's wait in microseconds."""
_NUMBER = Struct(">I")


class Trial:
    """A run. Owner: the main thread; any thread may call the handlers.

    An untimed run's handler only keeps the value, the cheapest operation in Python; a thread that
    checks every 5 ms determines the rate. A timed run records everything.
    """

    def __init__(self, arguments: Iterable[str]):
        self.options = dict(each.split("=", 1) for each in arguments)
        self.bootstrap = self.options["bootstrap"]
        self.topic = self.options["topic"]
        self.group = self.options["group"]
        self.records = int(self.options["records"])
        self.partitions = int(self.options["partitions"])
        self.slots = int(self.options["slots"])
        self.timed = self.options["timed"] == "yes"
        self.over = threading.Event()
        """Set when all records are finished, or the time is up: the peer must stop now."""
        self._cap_s = float(self.options["cap_s"])
        self._values: list[bytes] = []
        self._entries: list[tuple[int, int, int]] = []
        self._fetched = array("q", bytes(8 * self.records))
        self._stops: list[Callable[[], object]] = []
        self._answered = threading.Lock()
        self._seconds = 0.0
        self._seen = 0
        self._over_at = 0.0
        threading.Thread(target=self._watch, daemon=True, name="watch").start()

    # ---- what peers call

    def handler(self) -> Callable[[bytes], object]:
        """Return what the peer's handler does with a value."""
        return self._writing(self._handler()) if self.is_killed else self._handler()

    @property
    def is_killed(self) -> bool:
        """Whether the process will be killed: what has finished is written down at once."""
        return "finished" in self.options

    def _writing(self, handle: Callable[[bytes], object]) -> Callable[[bytes], object]:
        file = os.open(self.options["finished"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

        def handle_and_write(value: bytes) -> None:
            handle(value)
            os.write(file, value[: _NUMBER.size])

        return handle_and_write

    def _handler(self) -> Callable[[bytes], object]:
        if not self.timed:
            return self._values.append
        note, clock, sleep = self._entries.append, time.perf_counter_ns, time.sleep

        def handle(value: bytes) -> None:
            number, wait_us = _HEAD.unpack_from(value)
            begun = clock()
            if wait_us:
                sleep(wait_us / 1_000_000)
            note((number, begun, clock()))

        return handle

    def coroutine(self) -> Callable[[bytes], Awaitable[None]]:
        """Return what the peer's ``async def`` handler does with a value."""
        keep = self._values.append
        note, clock, sleep = self._entries.append, time.perf_counter_ns, asyncio.sleep

        async def handle_untimed(value: bytes) -> None:
            keep(value)

        async def handle(value: bytes) -> None:
            number, wait_us = _HEAD.unpack_from(value)
            begun = clock()
            if wait_us:
                await sleep(wait_us / 1_000_000)
            note((number, begun, clock()))

        return handle if self.timed else handle_untimed

    def handed_over(self, values: Iterable[bytes]) -> None:
        """Record that the client has just handed records over, in a timed run."""
        now = time.perf_counter_ns()
        fetched = self._fetched
        for value in values:
            (number,) = _NUMBER.unpack_from(value)
            fetched[number] = now

    def when_over(self, stop: Callable[[], object]) -> None:
        """Register a function to call at the end, on the watching thread."""
        self._stops.append(stop)

    def answer(self, *packages: str, problem: str = "") -> None:
        """Write the journal and print the result; the peer has stopped.

        ``packages`` are those whose versions matter.
        """
        with self._answered:
            took = time.monotonic() - self._over_at if self._over_at else 0.0
            entries, values = list(self._entries), list(self._values)
            if self.timed:
                fetched = self._fetched
                journal = Journal.of(
                    (number, fetched[number], begun, ended) for number, begun, ended in entries
                )
            else:
                journal = Journal.untimed(_NUMBER.unpack_from(value)[0] for value in values)
            journal.write(Path(self.options["journal"]))
            said: dict[str, Any] = {
                "seconds": self._seconds,
                "seen": self._seen,
                "stop_s": took,
                "problem": problem,
                "versions": {name: metadata.version(name) for name in packages}
                | {"Python": platform.python_version()},
            }
            print(json.dumps(said), flush=True)
            # Ends the process whatever threads the peer has left behind.
            os._exit(0)

    # ---- the thread that watches

    def _watch(self) -> None:
        done: list[Any] = self._entries if self.timed else self._values
        give_up = time.monotonic() + FIRST_S
        while not done and time.monotonic() < give_up:
            time.sleep(_CHECK_S)
        began, before = time.perf_counter(), len(done)
        problem = "" if done else f"no record within {FIRST_S:g} s"
        last = began
        while time.perf_counter() - began < self._cap_s and not problem:
            now, count = time.perf_counter(), len(done)
            if count - before > self._seen:
                self._seen, last = count - before, now
            if count >= self.records and self._distinct() >= self.records:
                break
            time.sleep(_CHECK_S)
        self._seconds = last - began
        self._over_at = time.monotonic()
        self.over.set()
        for stop in self._stops:
            try:
                stop()
            except Exception as exception:  # goes into the result; the run is valid all the same
                problem = problem or f"stop: {type(exception).__name__}: {exception}"
        time.sleep(STOP_S)
        self.answer(problem=problem or f"did not stop within {STOP_S:g} s")

    def _distinct(self) -> int:
        if self.timed:
            return len({number for number, _, _ in list(self._entries)})
        return len(set(self._values))


def begin() -> Trial:
    """Return the run for the command line."""
    return Trial(sys.argv[1:])
