"""The endpoint for clients of SQS as a feature: its sections, and its queues beside the workers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from window_consumer.config import Config
from window_consumer.engine.observer import Observer
from window_consumer.model.errors import UsageError
from window_consumer.model.record import Record
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AclRule, AppStart, Feature, RunningFeature
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.plan.preflight import Prepared, PreparedWorker
from window_consumer.runtime.running import Running
from window_consumer.sqs.config import ENDPOINT, QUEUE, SqsConfig, pulls, send_topic
from window_consumer.sqs.sending import QueueSender
from window_consumer.sqs.worker_queue import WorkerQueue

_THREADS: Final = 2


class RunningSqs(RunningFeature):
    """The queues of an application that runs."""

    def __init__(self, plan: AppPlan):
        self._plan = plan
        self.queues: dict[str, WorkerQueue] = {}
        """By the names of their workers."""

    @contextmanager
    def beside(self, prepared: Prepared) -> Iterator[None]:
        """Make the queues, and serve them until all workers have ended."""
        owner, url = secrets.token_hex(8), self._plan.config.section(SqsConfig).url
        token = prepared.oauth_token
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="wc-sqs-ask") as executor:
            for each in self._plan.workers:
                if pulls(each.config):
                    sender = QueueSender(self._plan, each, token)
                    self.queues[each.name] = WorkerQueue(each, owner, url, sender, executor)
            try:
                yield
            finally:
                for queue in self.queues.values():
                    queue.sender.close()

    def observer_of(self, worker: PreparedWorker) -> Observer | None:
        """Return what counts the assignments of a queue's worker."""
        queue = self.queues.get(worker.plan.name)
        return None if queue is None else queue.assignments

    def attach(self, running: Running) -> None:
        """Let the queues use the workers."""
        for queue in self.queues.values():
            queue.attach(running)


class SqsFeature(Feature):
    """Queues for clients of SQS."""

    name = "sqs"
    section = ENDPOINT
    worker_section = QUEUE

    def handlers(self, config: Config) -> Mapping[str, HandlerSpec]:
        """Return a handler for each queue, which clients take the place of."""
        return {
            name: HandlerSpec(name, _called_by_nobody, {})
            for name, worker in config.workers.items()
            if pulls(worker)
        }

    def rights(self, config: Config) -> Iterator[AclRule]:
        """Yield WRITE on the topics that clients send to."""
        for name, worker in config.workers.items():
            topic = send_topic(worker) if pulls(worker) else None
            if topic is not None:
                why = f"clients of the queue {name} send to it"
                yield AclRule("topic", topic, ("WRITE", "DESCRIBE"), why)

    def starting(self, start: AppStart) -> AbstractContextManager[RunningFeature | None]:
        """Run the queues if there are any."""
        if not any(pulls(each.config) for each in start.plan.workers):
            return nullcontext()
        return nullcontext(RunningSqs(start.plan))


def _called_by_nobody(record: Record) -> None:
    raise UsageError(f"{record} is for the clients of a queue: no function handles it")
