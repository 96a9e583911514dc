"""Push as a feature: the section of workers, and their handlers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from window_consumer.config import Config, WorkerConfig
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AppStart, Feature, RunningFeature
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
            name: HandlerSpec(name, PushHandler.post, {}, made_with=partial(_made, worker))
            for name, worker in config.workers.items()
            if worker.handled_by == SECTION.name
        }

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
    return PushHandler(worker.section(HttpConfig), worker.slots, tools.wall_ms).post


def _pushes(plan: AppPlan) -> bool:
    return any(worker.config.handled_by == SECTION.name for worker in plan.workers)
