"""A feature in one file: it counts a worker's calls and the records that are done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import click
from attrs import define, field, frozen
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from window_consumer.cli import options
from window_consumer.config import kinds, load
from window_consumer.config.options import Section, about
from window_consumer.config.problems import Problem
from window_consumer.engine.observer import Observer
from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.turn import Finish, Turn, TurnRule
from window_consumer.model.errors import Skip
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AppStart, Feature, PageContext, PageLink
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.topics.prepared_worker import PreparedWorker
from window_consumer.runtime.calls.layer import CallLayer, CallSite, LayerPlace
from window_consumer.runtime.calls.steps import Called
from window_consumer.runtime.figures.measures import FeatureFigures
from window_consumer.runtime.figures.metric import MetricKind, metric_of


@frozen(kw_only=True)
class TallyConfig:
    """The section `tally`."""

    enabled: bool = field(
        default=False,
        metadata=about(
            "Whether calls are counted.", kind=kinds.boolean(), reason="few want to know"
        ),
    )
    most: int = field(
        default=1000,
        metadata=about(
            "The process stops being ready after this many calls.",
            kind=kinds.whole_number(1, 1_000_000),
            reason="a round number",
        ),
    )


def conflicts(section: TallyConfig, given: Collection[str]) -> Iterator[Problem]:
    """Yield problems of keys that are valid by themselves."""
    if "most" in given and not section.enabled and section.most < 2:
        yield Problem(("most",), "is of no use without enabled: true")


@frozen
class TallyFigures:
    """The counts of a process."""

    calls: int
    done: int


@define
class DoneObserver(Observer):
    """Counts the records of a worker that are done. Owner: its poll thread."""

    done: int = 0

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,
    ) -> None:
        del partition, outcome, slice_, now
        self.done += len(messages)


@frozen
class CountingLayer:
    """Counts the calls of a handler."""

    on_call: Callable[[], object]
    place: LayerPlace = LayerPlace.MIDDLEWARE
    in_children: None = None

    def refuse(self, form: object) -> None:
        """Refuse nothing."""

    def wrap(self, call: Called, site: CallSite) -> Called:
        """See CallLayer."""

        def counted(given: object) -> object:
            self.on_call()
            return call(given)

        del site
        return counted


@frozen
class EmptyRule(TurnRule):
    """Skips records without a value at their turn: they are not calls."""

    def turns(
        self, partition: Partition, messages: Sequence[Message], now: float, wall_ms: float
    ) -> Mapping[int, Turn]:
        """See TurnRule."""
        del partition, now, wall_ms
        return {at: Finish(Skip.outcome) for at, each in enumerate(messages) if not each.value()}


class RunningTally(RunningFeature):
    """The tally of an application."""

    def __init__(self, most: int):
        self._most = most
        self._calls = count()  # its next number is taken by one thread at a time
        self._last_call = -1
        self._observers: list[DoneObserver] = []

    def _on_call(self) -> None:
        self._last_call = next(self._calls)

    def observer_of(self, worker: PreparedWorker) -> Observer:
        del worker
        self._observers.append(DoneObserver())
        return self._observers[-1]

    def layers_of(self, worker: PreparedWorker) -> Sequence[CallLayer]:
        del worker
        return [CountingLayer(self._on_call)]

    def turn_rules_of(self, worker: PreparedWorker) -> Sequence[TurnRule]:
        del worker
        return [EmptyRule()]

    def figures(self) -> TallyFigures:
        return TallyFigures(self._last_call + 1, sum(each.done for each in self._observers))

    def failure(self) -> str | None:
        calls = self.figures().calls
        return f"tally: {calls} calls are too many" if calls > self._most else None


@frozen
class TallyPages:
    """Answers at /tally."""

    figures: Callable[[], FeatureFigures]
    is_there: bool = True
    link: PageLink | None = None

    def routes(self) -> Sequence[Route]:
        return [Route("/tally", self._answer)]

    async def _answer(self, _: Request) -> JSONResponse:
        found = self.figures().of(TallyFigures)
        return JSONResponse({"calls": found and found.calls, "done": found and found.done})


@click.command("tally")
@options.config
@options.features
def tally_command(*, config: Path, features: FeatureList) -> int:
    """Print how many calls a configuration allows."""
    loaded = load(config, without_handlers=True, sections=features.sections)
    click.echo(str(loaded.config.section(TallyConfig).most))
    return 0


class TallyFeature(Feature):
    """Counts calls, and the records that are done."""

    name = "tally"
    section = Section("tally", TallyConfig, "Counts calls.", conflicts)
    commands: ClassVar[Mapping[str, str]] = MappingProxyType({"tally": f"{__name__}:tally_command"})
    metrics = (
        metric_of(
            TallyFigures,
            "tally.calls",
            MetricKind.COUNTER,
            "{call}",
            "Calls that were counted.",
            lambda tally: tally.calls,
        ),
    )

    def warnings(self, plan: AppPlan) -> Iterable[str]:
        if plan.config.section(TallyConfig).most == 1:
            yield "tally.most: the second call is one too many"

    def pages(self, context: PageContext) -> TallyPages:
        return TallyPages(context.figures)

    @contextmanager
    def starting(self, start: AppStart) -> Iterator[RunningFeature | None]:
        config = start.plan.config.section(TallyConfig)
        yield RunningTally(config.most) if config.enabled else None
