"""Whether a process is live and ready, and its metrics: answers for probes and scrapers.

A failed *live* probe kills the process, so only a hanging poll thread fails it: a new process would
not fix failures, hanging calls or an absent broker. A rolling update waits for *ready*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from window_consumer.metrics import exposition
from window_consumer.metrics.catalog import METRICS
from window_consumer.runtime.figures.measures import MeasuredWorkers
from window_consumer.runtime.figures.metric import Metric
from window_consumer.runtime.figures.worker_snapshot import Phase
from window_consumer.runtime.replica import HttpAnswer
from window_consumer.runtime.worker import Worker, is_ready

SILENT_S: Final = 60.0
"""A poll thread that did nothing for this long hangs. It normally waits for tenths of a second, and
for some seconds if the cluster does not answer.
"""


class Health:
    """Answers for the workers of this process. Any thread may ask."""

    def __init__(
        self,
        workers: MeasuredWorkers,
        failures: Callable[[], Sequence[str]] = list,
        metrics: Sequence[Metric] = METRICS,
    ):
        self._workers = workers
        self._metrics = metrics
        self._failures = failures
        """Returns why the process is not ready, whatever its workers do."""

    def run_periodic(self) -> None:
        """Take a sample if one is due; call this every second or so."""
        self._workers.run_periodic()

    def live(self) -> HttpAnswer:
        """Answer ``/livez``: 503 if a poll thread did nothing for ``SILENT_S``."""
        hung = [worker for worker in self._workers.each if self._hangs(worker)]
        if not hung:
            return HttpAnswer(200, "live\n")
        return HttpAnswer(503, "".join(f"{_silence(worker)}\n" for worker in hung))

    def ready(self) -> HttpAnswer:
        """Answer ``/readyz``: 503 if a worker is not in its group, catching up, or stopping.

        It is also 503 if the producer of its copies has given up, or a feature has failed.
        """
        workers, failures = self._workers.each, self._failures()
        lines = [*(f"{worker.name}: {_state(worker)}" for worker in workers), *failures]
        if (
            not failures
            and workers
            and all(is_ready(each.loop) and each.cannot_write is None for each in workers)
        ):
            return HttpAnswer(200, "".join(f"{line}\n" for line in lines))
        return HttpAnswer(503, "".join(f"{line}\n" for line in lines or ["starting"]))

    def metrics(self) -> HttpAnswer:
        """Answer ``/metrics``."""
        text = exposition.exposition(
            self._workers.measures(), self._metrics, common=self._workers.labels
        )
        return HttpAnswer(200, text, exposition.CONTENT_TYPE)

    @staticmethod
    def _hangs(worker: Worker) -> bool:
        thread = worker.loop.thread
        return thread.is_alive() and worker.loop.silent_s > SILENT_S


def _state(worker: Worker) -> str:
    if worker.loop.phase is not Phase.RUNNING:
        return str(worker.loop.phase.value)
    in_group, left = worker.loop.ownership.in_group, worker.loop.catching_up
    state = "in its group" if in_group else "not in its group"
    if not worker.setup.origin.group:
        state = "reads all partitions" if in_group else "has no partitions yet"
        state = f"catching up, {left} records are left" if in_group and left is not None else state
    trouble = worker.cannot_write
    return state if trouble is None else f"{state}, cannot write copies: {trouble}"


def _silence(worker: Worker) -> str:
    return f"{worker.name}: its poll thread has stood still for {worker.loop.silent_s:.0f} s"
