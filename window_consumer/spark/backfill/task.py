"""A task: one worker, run like in ``run``, over the records that Spark supplies.

The driver passes plain values. A task imports the application like child processes do. Engine, poll
loop, pool and ladder are the consumer's, so order, retries, typed values, middleware, batches and
coroutines are the same. The task itself writes dead letters: a failed record is done when the
broker has acknowledged its copy.
"""

from __future__ import annotations

import gc
import pickle
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, field, frozen

from window_consumer.config import MaskRules
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.retry.copy_record import CopyOrigin
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.sink import KafkaSink
from window_consumer.model.errors import RunError
from window_consumer.model.protocols import TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.plan.child_spec import ChildSpec
from window_consumer.plan.loading import load_app
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.plan.topics.copy_topics import Ladder
from window_consumer.runtime.calls.layer import CallForm
from window_consumer.runtime.calls.spans import spanned
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.figures.worker_snapshot import Phase
from window_consumer.runtime.poll_loop import LoopRules
from window_consumer.runtime.pools.event_loop import EventLoop
from window_consumer.runtime.pools.pool import PoolParts
from window_consumer.runtime.pools.registry import kind_for
from window_consumer.runtime.worker import Worker
from window_consumer.runtime.worker_setup import WorkerSetup
from window_consumer.spark.backfill.held_records import HeldRecords, HeldRecordsError, HoldRules
from window_consumer.spark.backfill.messages import TaskMessage, ascending, messages_of
from window_consumer.spark.backfill.results import Stopwatches, TaskResults
from window_consumer.spark.backfill.source import BacklogSource
from window_consumer.spark.backfill.task_reports import ReportAddress, Reporter

if TYPE_CHECKING:
    import pyarrow as pa

AHEAD: Final = 10_000
"""The most records waiting for the worker: one Arrow batch."""

_WAIT_S: Final = 0.05
_OVER: Final = (Phase.DRAINED, Phase.LEFT)
_END_S: Final = 4.0
_GC_THRESHOLD: Final = 50_000
"""The log format of ``run``, see cli/logs.py."""


Piece = Iterable[tuple[TopicPartition, list[TaskMessage]]]
"""Records that arrive together; those of a partition are in offset order."""


@frozen
class WorkerPlan:
    """Everything that a task needs to know about the worker. Pickled."""

    child_spec: ChildSpec
    origin: CopyOrigin
    """Its host becomes the executor's."""
    engine: EngineRules
    ladder: Ladder
    topic: str
    facts: TopicFacts
    producer: Mapping[str, Any] = field(repr=False)
    """The user's Kafka properties, passwords included."""
    mask_rules: MaskRules
    stop_timeout_s: float
    rate_per_s: float | None = None
    """The most records that one task may take per second."""
    hold: HoldRules = field(factory=HoldRules)
    driver: ReportAddress | None = None
    """Where tasks report their progress; None if the driver does not listen."""

    @property
    def name(self) -> str:
        """The worker's name in the configuration."""
        return self.child_spec.config.name


@frozen
class BackfillTask:
    """The function that Spark calls in each task: ``records.mapInArrow(task, COLUMNS)``.

    The plan stays pickled until the application's directories are on the path: Spark's own pickler
    would import its classes earlier.
    """

    path: tuple[str, ...]
    """Directories to import from, in addition to the executor's."""
    plan: bytes = field(repr=False)

    @classmethod
    def of(cls, plan: WorkerPlan) -> BackfillTask:
        """Return a worker's task, which imports the application as this process does."""
        return cls(directories(), pickle.dumps(plan))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the outcome of each record, in no order."""
        plan: WorkerPlan = unpacked(self.path, self.plan)
        return run(plan, (messages_of(batch, plan.topic) for batch in batches))


def directories() -> tuple[str, ...]:
    """Return the directories that this process imports from."""
    return tuple(each for each in sys.path if each)


def unpacked(path: Sequence[str], data: bytes) -> Any:
    """Add the directories to the path, and return what the driver pickled."""
    sys.path.extend(each for each in path if each not in sys.path)
    return pickle.loads(data)  # noqa: S301 - the driver has pickled it


def run(plan: WorkerPlan, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    """Run the worker until all records have an outcome; raise the error that stops it."""
    remaining = iter(pieces)
    first = next(remaining, None)
    if first is None:
        return
    gc.set_threshold(_GC_THRESHOLD, 20, 50)
    with ExitStack() as resources:
        results = TaskResults()
        source = BacklogSource({plan.topic: plan.facts})
        worker = _worker(plan, source, results, resources)
        reporter = None if plan.driver is None else Reporter(plan.driver, *_numbers())
        if reporter is not None:
            resources.callback(reporter.close)
        worker.start()
        try:
            feed = _Feed(plan, worker, source, results, reporter)
            yield from feed.run(chain([first], remaining))
        finally:
            _end(worker, source, results, resources)


def _numbers() -> tuple[int, int]:
    """Return the number of this Spark task, and of its attempt."""
    from pyspark import TaskContext  # noqa: PLC0415 - optional, and slow

    context = TaskContext.get()
    return (0, 0) if context is None else (context.partitionId(), context.attemptNumber())


def _end(worker: Worker, source: BacklogSource, results: TaskResults, resources: ExitStack) -> None:
    """End the worker, and leave its resources after it has drained.

    An asynchronous lifespan needs the event loop, which ends with the pool.
    """
    worker.stop()
    source.wake()
    deadline = perf_counter() + worker.setup.loop.stop_timeout_s + _END_S
    while worker.loop.phase not in _OVER and perf_counter() < deadline:
        results.wait(_WAIT_S)
    try:
        resources.close()
    finally:
        worker.leave()
        worker.end(_END_S)


def _worker(
    plan: WorkerPlan, source: BacklogSource, results: TaskResults, stack: ExitStack
) -> Worker:
    """Return the worker, not started, with its resources entered."""
    child_spec = plan.child_spec
    equipment = child_spec()
    app = load_app(child_spec.application)
    is_async = app.handlers[child_spec.config.handlers[0]].is_async
    form = CallForm(batches=plan.engine.batch is not None, coroutines=is_async)
    handler = spanned(equipment.caller.handler, Stopwatches(), form)
    setup = WorkerSetup(
        name=plan.name,
        origin=evolve(plan.origin, host=socket.gethostname()),
        engine=plan.engine,
        loop=LoopRules(topics=(plan.topic,), stop_timeout_s=plan.stop_timeout_s),
        handler=handler,
        target_of=lambda _source, level: plan.ladder.target(level),
        ask_topics=lambda: {plan.topic: plan.facts},
        faults=ErrorReports(
            child_spec.mask, app.redactor, child_spec.errors.message, plan.mask_rules.error_text
        ),
        loggable_key=lambda topic, key: plan.mask_rules.loggable_key([topic], key),
        logger=LOGGER,
        is_async=is_async,
        observers=(results,),
    )
    if is_async:
        loop = EventLoop(f"wc-{plan.name}-loop")
        loop.start()
        kind = kind_for(child_spec.config.pool, coroutines=True)
        assert kind is not None  # the plan was made for this kind of pool
        setup = evolve(setup, make_pool=kind.make(PoolParts(loop)))
        state = stack.enter_context(app.resources(loop.run))
    else:
        state = stack.enter_context(equipment.lifespan)
    sink = KafkaSink(
        plan.producer, plan.name, ClientLog(LOGGER.getChild("client"), child_spec.mask)
    )

    def on_phase(_worker: Worker, _phase: Phase) -> None:
        results.wake()

    return Worker(setup, source, sink, state, on_phase)


class _Feed:
    """Supplies records to the worker and takes their outcomes. Owner: the task's thread."""

    def __init__(
        self,
        plan: WorkerPlan,
        worker: Worker,
        source: BacklogSource,
        results: TaskResults,
        reporter: Reporter | None,
    ):
        self._plan = plan
        self._reporter = reporter
        self._worker = worker
        self._source = source
        self._results = results
        self._held = HeldRecords(plan.hold, worker, results)
        self._brought = 0
        self._is_exhausted = False
        self._began = perf_counter()
        self._last: dict[TopicPartition, int] = {}

    def run(self, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        """Supply all records, at most one piece ahead of the worker; yield rows in the meantime."""
        for piece in pieces:
            self._wait_for_rate()
            for name, messages in piece:
                self._last[name] = ascending(messages, self._last.get(name, -1))
                self._brought += len(messages)
                self._source.bring(name, list(messages))
            while self._source.waiting > AHEAD:
                yield from self._taken(_WAIT_S)
            yield from self._taken(0.0)
        self._is_exhausted = True
        while self._results.count < self._brought:
            yield from self._taken(_WAIT_S)
        self._report(is_over=True)
        while (rows := self._results.rows(all_of_them=True)) is not None:
            yield rows

    def _taken(self, timeout_s: float) -> Iterator[pa.RecordBatch]:
        failure = self._worker.loop.failure
        if failure is not None:
            raise RunError(f"{self._plan.name}: the worker stopped: {failure}") from failure
        self._end_hold()
        self._results.wait(timeout_s)
        self._report()
        rows = self._results.rows()
        if rows is not None:
            yield rows

    def _end_hold(self) -> None:
        waiting = self._source.waiting
        try:
            self._held.check(
                perf_counter(),
                open_records=self._brought - self._results.count,
                taken_in=self._brought - waiting,
                may_come=not (self._is_exhausted or waiting),
            )
        except HeldRecordsError as error:
            if self._reporter is not None:
                self._reporter.give_up(str(error), error.without_error)
            raise

    def _report(self, *, is_over: bool = False) -> None:
        """Report the progress; a task whose records all have an outcome holds nothing."""
        if self._reporter is not None:
            partitions = {name.partition for name in self._last}
            results = self._results
            breaker = None if is_over else results.breaker_news
            self._reporter.report(results.count, partitions, breaker, at_once=is_over)

    def _wait_for_rate(self) -> None:
        """Wait until the rate, averaged since the beginning, allows more records."""
        if self._plan.rate_per_s is None:
            return
        due = self._began + self._brought / self._plan.rate_per_s
        while (left := due - perf_counter()) > 0:
            self._results.wait(0.0)
            self._report()
            sleep(min(left, _WAIT_S))
