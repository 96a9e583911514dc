"""Push as a feature: the section of workers, and their handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from window_consumer.config import Config, WorkerConfig
from window_consumer.model.errors import UsageError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AclRule, Feature
from window_consumer.plan.handler_types.parameters import Parameters
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.push.config import SECTION, HttpConfig
from window_consumer.runtime.calls.layer import CallTools
from window_consumer.runtime.calls.steps import Called

if TYPE_CHECKING:
    from window_consumer.push.handler import PushHandler


class PushFeature(Feature):
    """Workers that post their records to a URL."""

    name = "push"
    worker_section = SECTION

    def handlers(self, config: Config) -> Mapping[str, HandlerSpec]:
        """Return the handlers that post records; raises UsageError without aiohttp."""
        workers = [each for each in config.workers.values() if each.handled_by == SECTION.name]
        if not workers:
            return {}
        if find_spec("aiohttp") is None:
            raise UsageError("workers with http need aiohttp: pip install 'window-consumer[http]'")
        from window_consumer.push.handler import PushHandler  # noqa: PLC0415 - aiohttp is optional

        return {each.name: _spec(each, PushHandler) for each in workers}

    def rights(self, config: Config) -> Iterator[AclRule]:
        """Yield WRITE on the topics that answers may name."""
        for name, worker in config.workers.items():
            for topic in worker.section(HttpConfig).may_produce:
                why = f"answers to {name} may have records produced"
                yield AclRule("topic", topic, ("WRITE", "DESCRIBE"), why)

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


def _spec(worker: WorkerConfig, handler: type[PushHandler]) -> HandlerSpec:
    """Return the handler of a worker; its pauses end by the worker's clock."""
    function: Callable[..., object] = handler.post_batch if worker.has_batch else handler.post

    def made(tools: CallTools) -> Called:
        made = handler(worker.section(HttpConfig), worker.slots, tools.wall_ms)
        return made.post_batch if worker.has_batch else made.post

    parameters = Parameters(batches=worker.has_batch)
    return HandlerSpec(worker.name, function, {}, parameters=parameters, made_with=made)
