"""What a worker with ``pool: processes`` takes from itself: said by ``check`` and at the start."""

from __future__ import annotations

from collections.abc import Iterator

from window_consumer.app.plan import PlannedWorker
from window_consumer.config.cores import usable_cores


def process_warnings(worker: PlannedWorker) -> Iterator[str]:
    """Yield that there are more processes than cores, unless the worker finds their number."""
    config, cores = worker.config, usable_cores()
    if config.pool == "processes" and isinstance(config.concurrency, int) and config.slots > cores:
        yield (
            f"concurrency {config.slots} with pool: processes, and this process may use {cores} of"
            " the machine's processor cores: handlers that compute only take turns, each in memory"
            " of its own; leave concurrency out to have as many as there are, or say auto"
        )
