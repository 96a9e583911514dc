"""Health of several replicas: their supervisor queries each and answers for all."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from time import monotonic

from attrs import define, field

from window_consumer.metrics import exposition
from window_consumer.metrics.health import SILENT_S
from window_consumer.runtime.replica import HttpAnswer, ask


@define
class ReplicasHealth:
    """Answers for all replicas, see ``health``. Any thread may ask."""

    sockets: Mapping[str, Path]
    """Where each replica listens, by its number."""
    _now: Callable[[], float] = monotonic
    _answering: set[str] = field(factory=set)
    """Replicas that have begun to answer."""
    _silent_since: dict[str, float] = field(factory=dict)
    """When silent replicas first failed to answer."""

    def live(self) -> HttpAnswer:
        """Answer ``/livez``: 503 if a poll thread hangs, or a whole process.

        An ended replica does not count, because its supervisor restarts it.
        """
        why = []
        for number, answer in self._ask_all("/livez").items():
            if answer is not None and answer.status != http.client.OK:
                why += [f"process {number}: {line}" for line in answer.text.splitlines()]
            silent_s = self._now() - self._silent_since.get(number, self._now())
            if silent_s > SILENT_S:
                why.append(f"process {number}: has not answered for {silent_s:.0f} s")
        if why:
            return HttpAnswer(503, "".join(f"{line}\n" for line in why))
        return HttpAnswer(200, "live\n")

    def ready(self) -> HttpAnswer:
        """Answer ``/readyz``: 503 while a replica is not ready."""
        answers = self._ask_all("/readyz")
        lines = [
            f"process {number}: {line}\n"
            for number, answer in answers.items()
            for line in (self._silence(number) if answer is None else answer.text).splitlines()
        ]
        ready = all(each is not None and each.status == http.client.OK for each in answers.values())
        return HttpAnswer(200 if ready else 503, "".join(lines))

    def metrics(self) -> HttpAnswer:
        """Answer ``/metrics`` with those of all replicas that answer, each with its number."""
        answers = [each for each in self._ask_all("/metrics").values() if each is not None]
        text = exposition.joined(each.text for each in answers)
        return HttpAnswer(200, text, exposition.CONTENT_TYPE)

    def ended(self, number: str) -> None:
        """Record that a replica has ended: no answer is due until its next process gives one."""
        self._answering.discard(number)
        self._silent_since.pop(number, None)

    def run_periodic(self) -> None:
        """Do nothing: the replicas sample themselves."""

    def _ask_all(self, route: str) -> dict[str, HttpAnswer | None]:
        now = self._now()
        # In parallel: a frozen replica takes the whole timeout.
        with ThreadPoolExecutor(len(self.sockets), "wc-replicas") as pool:
            found = pool.map(ask, self.sockets.values(), repeat(route))
            answers = dict(zip(self.sockets, found, strict=True))
        for number, answer in answers.items():
            if answer is not None:
                self._answering.add(number)
                self._silent_since.pop(number, None)
            elif number in self._answering:
                self._silent_since.setdefault(number, now)
        return answers

    def _silence(self, number: str) -> str:
        return "does not answer" if number in self._answering else "starting"
