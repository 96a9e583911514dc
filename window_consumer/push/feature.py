"""Push as a feature: the section of workers, and their handlers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from window_consumer.config import Config, WorkerConfig
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AclRule, AppStart, Feature, RunningFeature
from window_consumer.plan.handler_types.parameters import Parameters
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.push.client import require_aiohttp
from window_consumer.push.config import SECTION, HttpConfig
from window_consumer.push.handler import PushHandler
from window_consumer.runtime.calls.layer import CallTools
from window_consumer.runtime.calls.steps import Called


class PushFeature(Feature):
    """Workers that post their records to a URL."""

    name = "push"
    worker_section = SECTION

    def handlers(self, config: Config) -> Mapping[str, HandlerSpec]:
        """Return the handlers that post records."""
        return {
            name: HandlerSpec(
                name,
                PushHandler.post_batch if worker.has_batch else PushHandler.post,
                {},
                parameters=Parameters(batches=worker.has_batch),
                made_with=partial(_made, worker),
            )
            for name, worker in config.workers.items()
            if worker.handled_by == SECTION.name
        }

    def rights(self, config: Config) -> Iterator[AclRule]:
        """Yield WRITE on the topics that answers may name."""
        for name, worker in config.workers.items():
            for topic in worker.section(HttpConfig).may_produce:
                why = f"answers to {name} may have records produced"
                yield AclRule("topic", topic, ("WRITE", "DESCRIBE"), why)

    def refuse(self, plan: AppPlan) -> None:
        """Raise UsageError without aiohttp."""
        if _pushes(plan):
            require_aiohttp()

    def warnings(self, plan: AppPlan) -> Iterator[str]:
        """Yield the statuses that would move whole topics to the dead letters."""
        for worker in plan.workers:
            section = worker.config.section(HttpConfig)
            for status in section.fatal_status if section.url else ():
                if status in {401, 403, 404} or status >= 500:
                    yield (
                        f"{worker.name}: http.fatal_status: with {status}, all records of an outage"
                        " become dead letters: leave it out, then the breaker holds them"
                    )

    def starting(self, start: AppStart) -> AbstractContextManager[RunningFeature | None]:
        """Raise UsageError without aiohttp."""
        self.refuse(start.plan)
        return nullcontext()


def _made(worker: WorkerConfig, tools: CallTools) -> Called:
    """Return the function that a worker calls; its pause ends by the worker's clock."""
    handler = PushHandler(worker.section(HttpConfig), worker.slots, tools.wall_ms)
    return handler.post_batch if worker.has_batch else handler.post


def _pushes(plan: AppPlan) -> bool:
    return any(worker.config.handled_by == SECTION.name for worker in plan.workers)
