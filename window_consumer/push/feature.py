"""Push as a feature: the section of workers, and their handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

from attrs import frozen

from window_consumer.config import Config, WorkerConfig
from window_consumer.engine.guards.pause_rule import PauseRule
from window_consumer.model.errors import UsageError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AclRule, AppStart, Feature
from window_consumer.plan.handler_types.parameters import Parameters
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.topics.prepared_worker import PreparedWorker
from window_consumer.push.config import SECTION, HttpConfig
from window_consumer.push.pause import ServicePause
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
        """Yield WRITE on the topics that responses may name."""
        for name, worker in config.workers.items():
            for topic in worker.section(HttpConfig).may_produce:
                why = f"answers to {name} may produce records"
                yield AclRule("topic", topic, ("WRITE", "DESCRIBE"), why)

    def warnings(self, plan: AppPlan) -> Iterator[str]:
        """Yield the statuses that would move whole topics to the dead letters."""
        for worker in plan.workers:
            section = worker.config.section(HttpConfig)
            for status in section.fatal_status if section.url else ():
                if status in {401, 403, 404} or status >= 500:
                    yield (
                        f"{worker.name}: http.fatal_status: with {status}, all records of an outage"
                        " become dead letters: remove it, so that the breaker holds them"
                    )

    def starting(self, start: AppStart) -> AbstractContextManager[RunningFeature | None]:
        """Show the pauses of services."""
        del start
        return nullcontext(RunningPush())


def _spec(worker: WorkerConfig, handler: type[PushHandler]) -> HandlerSpec:
    function: Callable[..., object] = handler.post_batch if worker.has_batch else handler.post
    parameters = Parameters(batches=worker.has_batch)
    made = Maker(worker, handler, ServicePause(worker.name))
    return HandlerSpec(worker.name, function, {}, parameters=parameters, made_with=made)


@frozen
class Maker:
    """Makes the function that a worker calls; the worker's clock ends its pauses."""

    worker: WorkerConfig
    handler: type[PushHandler]
    pause: ServicePause

    def __call__(self, tools: CallTools) -> Called:
        section, slots = self.worker.section(HttpConfig), self.worker.slots
        made = self.handler(section, slots, tools.wall_ms, self.pause)
        return made.post_batch if self.worker.has_batch else made.post


class RunningPush(RunningFeature):
    """The workers that post."""

    def pause_rules_of(self, worker: PreparedWorker) -> Sequence[PauseRule]:
        """Return the rules that show a pause of the service; they pause nothing."""
        makers = (route.handler.made_with for route in worker.plan.routes)
        return [maker.pause for maker in makers if isinstance(maker, Maker)]
