"""Polls admin addresses, each on its own thread, so that none delays another."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from time import monotonic

from attrs import evolve

from window_consumer.admin.client import (
    DEADLINE_S,
    Access,
    AdminAddress,
    AdminAnswer,
    AskError,
    ask,
)
from window_consumer.admin.commands.screen import Memory, TopScene, WorkerScene
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot

_LATE_S = 2 * DEADLINE_S
"""An address that is silent for this long, and for twice the interval, counts as gone."""


class AddressWatch:
    """The latest answer of one address. Any thread may read it."""

    def __init__(self, address: AdminAddress, access: Access, interval_s: float):
        self.address = address
        self._access = access
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._polled = threading.Event()
        self._latest: AdminAnswer | str = "no answer yet"
        self._at = monotonic()
        threading.Thread(target=self._poll, name=f"wc-watch-{address}", daemon=True).start()

    def wait(self, timeout_s: float) -> None:
        """Wait for the first answer, or the first failure."""
        self._polled.wait(timeout_s)

    def stop(self) -> None:
        """Stop polling."""
        self._stopped.set()

    @property
    def latest(self) -> AdminAnswer | None:
        """Return the latest answer, None while the address does not answer."""
        return None if self.why_gone else self._latest_answer

    @property
    def why_gone(self) -> str:
        """Return why there is nothing to show, empty if there is something."""
        latest, silent_s = self._latest, monotonic() - self._at
        if isinstance(latest, str):
            return latest
        if silent_s > _LATE_S + 2 * self._interval_s:
            return f"{self.address}: no answer for {silent_s:.0f} s"
        return ""

    @property
    def _latest_answer(self) -> AdminAnswer | None:
        latest = self._latest
        return None if isinstance(latest, str) else latest

    def _poll(self) -> None:
        while not self._stopped.is_set():
            try:
                latest: AdminAnswer | str = ask(self.address, self._access)
            except AskError as error:
                latest = str(error)
            self._latest, self._at = latest, monotonic()
            self._polled.set()
            self._stopped.wait(self._interval_s)


class AddressWatches:
    """Several addresses, shown as one scene. Owner: the thread that draws."""

    def __init__(self, addresses: Sequence[AdminAddress], access: Access, interval_s: float):
        access.headers()  # report errors now, not from each thread
        if any(address.is_tls for address in addresses):
            access.context()
        self.each = [AddressWatch(address, access, interval_s) for address in addresses]
        self._memory = Memory()
        self._started = monotonic()
        for watch in self.each:
            watch.wait(_LATE_S)

    def stop(self) -> None:
        """Stop polling."""
        for watch in self.each:
            watch.stop()

    @property
    def gone(self) -> dict[str, str]:
        """Return the addresses that do not answer, with the reason."""
        return {str(each.address): each.why_gone for each in self.each if each.why_gone}

    def scene(self) -> TopScene:
        """Return the current scene."""
        seconds = monotonic() - self._started
        workers = [
            scene for watch in self.each for scene in self._workers(watch, watch.latest, seconds)
        ]
        gone = {name: f"gone: {why.removeprefix(f'{name}: ')}" for name, why in self.gone.items()}
        silent = {
            name: "its poll thread does not answer"
            for watch in self.each
            for name in self._silent(watch, watch.latest)
        }
        missing = {
            f"{self._where(watch)}process {number}": "does not answer"
            for watch in self.each
            for number in (() if watch.latest is None else watch.latest.missing)
        }
        return TopScene("top", seconds, tuple(workers), {**gone, **missing, **silent})

    def _workers(
        self, watch: AddressWatch, answer: AdminAnswer | None, seconds: float
    ) -> Iterator[WorkerScene]:
        for worker in () if answer is None else answer.workers:
            if worker.windows is not None:
                name = self._name(watch, worker)
                yield evolve(
                    self._memory.worker(name, worker.windows, seconds),
                    state=_state(worker),
                    busy_ratio=worker.busy_ratio,
                    time_to_drain_s=worker.drain_s,
                )

    def _silent(self, watch: AddressWatch, answer: AdminAnswer | None) -> Iterator[str]:
        for worker in () if answer is None else answer.workers:
            if worker.windows is None:
                yield self._name(watch, worker)

    def _name(self, watch: AddressWatch, worker: WorkerSnapshot) -> str:
        process = f"process {worker.process} " if worker.process else ""
        return f"{self._where(watch)}{process}{worker.name}"

    def _where(self, watch: AddressWatch) -> str:
        return f"{watch.address} " if len(self.each) > 1 else ""


def _state(worker: WorkerSnapshot) -> str:
    """Return a worker's phase, empty while it works normally."""
    if worker.is_ready:
        return ""
    if worker.phase == "running" and worker.catching_up is not None:
        return f"catching up, {worker.catching_up} records are left"
    return "not in its group" if worker.phase == "running" else worker.phase
