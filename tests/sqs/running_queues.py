"""Queues of workers that run in this process, driven directly, without the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from attrs import define, field

from tests.waiting import wait_until
from window_consumer import App
from window_consumer.plan.feature import AppStart
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.sqs.feature import RunningSqs, SqsFeature
from window_consumer.sqs.queue import QueuedMessage
from window_consumer.sqs.worker_queue import WorkerQueue

T = TypeVar("T")

WAIT_S = 60.0
LONG_S = 600.0
_started: list[RunningSqs] = []


class VisibleSqs(SqsFeature):
    """The feature, whose queues tests can reach."""

    @contextmanager
    def starting(self, start: AppStart) -> Iterator[RunningFeature | None]:
        with super().starting(start) as running:
            if isinstance(running, RunningSqs):
                _started.append(running)
            yield running


_OURS = "tests.sqs.running_queues:VisibleSqs"
VISIBLE = FeatureList(
    tuple(_OURS if path.endswith(":SqsFeature") else path for path in App("shop").features.paths)
)


@define
class Shop:
    """An application whose only worker is a queue."""

    running: Any
    queue: WorkerQueue
    port: int
    """Where the endpoint listens."""
    runner: asyncio.Runner = field(factory=asyncio.Runner)

    @classmethod
    def start(cls, file: Path, kafka: Mapping[str, Any], **more: Any) -> Self:
        """Start the worker of ``configured``, with further sections of the file."""
        file.write_text(yaml.safe_dump({"kafka": dict(kafka), **more}))
        running = App("shop", features=VISIBLE).start(file, start_timeout=WAIT_S)
        sqs = _started.pop()
        (queue,) = sqs.queues.values()
        return cls(running, queue, sqs.port)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def receive(
        self, most: int = 10, wait_s: float = WAIT_S, lease_s: float | None = None
    ) -> Sequence[QueuedMessage]:
        return self.run(self.queue.receive(most, wait_s, lease_s))

    def receive_all(self, count: int) -> list[QueuedMessage]:
        """Receive until ``count`` are leased."""
        found: list[QueuedMessage] = []
        while len(found) < count:
            found += self.receive(min(10, count - len(found)))
        return found

    def one(self, lease_s: float | None = None) -> QueuedMessage:
        (message,) = self.receive(1, lease_s=lease_s)
        return message

    def delete(self, *messages: QueuedMessage) -> None:
        for each in messages:
            self.run(self.queue.delete(each.receipt_handle))

    def count(self, **counts: int) -> None:
        """Wait until counters of the worker have these values."""
        counters = self.running.counters["orders"]
        for name, count in counts.items():
            wait_until(lambda: getattr(counters, name) == count, WAIT_S, f"{count} {name}")  # noqa: B023 - called at once

    def stop(self) -> None:
        self.running.stop()
        self.running.wait()
        self.runner.close()


def configured(**keys: Any) -> dict[str, Any]:
    """Return the sections of a queue over `orders`, with further keys of its worker."""
    pull = {"visibility_timeout": "10m", **keys.pop("pull", {})}
    worker = {"topics": ["orders"], "group": "shop", "pull": pull, "stop_timeout": "0s", **keys}
    return {"sqs": {"listen": "127.0.0.1:0"}, "workers": {"orders": worker}}
