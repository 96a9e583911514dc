"""An application under test: its handlers, rules and configuration, on a broker in memory.

Everything runs on the test's thread, and only the test advances time.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from window_consumer.config.units import parse_duration
from window_consumer.dlq.dead_letter import DeadLetter
from window_consumer.model.errors import UsageError
from window_consumer.model.record import Call, Record
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.loading import load_app
from window_consumer.testing.application_process import ApplicationProcess, CrashedError
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.findings import GuaranteeFindings
from window_consumer.testing.journal import UNFINISHED, Journal, Sent
from window_consumer.testing.producer import TestProducer
from window_consumer.testing.records import HeaderValues, KeyOf, Value
from window_consumer.testing.redrives import TestRedrive
from window_consumer.testing.stepped_worker import SteppedSetting, StillClock
from window_consumer.testing.topics import TestTopics

PARTITIONS = 4
"""The default number of partitions per topic: more than one, so that keys are spread."""

MAX_CRASHES = 100
"""A limit for a record that ends every process."""

_AWAY = 'kafka.bootstrap.servers="in memory"'
"""Replaces the brokers in the file, which need no values because no client is created."""

_STEP_S = 0.005
"""How often the Engine checks paused partitions."""


class TestApp(GuaranteeFindings):
    """Runs the workers of a configuration within a test, without Kafka and without threads.

    ``app`` is an App, or its place, as in ``shop:app``. ``config`` is a configuration file, or the
    content of one. ``only`` and ``overrides`` are those of ``App.start``. ``topics`` sets numbers
    of partitions, and adds topics that the configuration does not name; ``partitions`` is for all
    others. Use it as a context manager: entering starts the workers and the lifespan, leaving
    drains them.

    Its clock moves only by ``advance``. Retries wait the longest time that the configuration
    allows: there is no jitter.

    Raises ConfigError and other UsageErrors like ``window-consumer check``. Owner: one thread.
    """

    __test__ = False  # pytest would take it for a class of tests

    def __init__(
        self,
        app: AppDefinition | str,
        config: str | Path | Mapping[str, Any] = "workers.yaml",
        *,
        only: Sequence[str] = (),
        overrides: Sequence[str] = (),
        topics: Mapping[str, int] | None = None,
        partitions: int = PARTITIONS,
    ):
        self.app = load_app(app) if isinstance(app, str) else app
        self.plan = _plan_of(self.app, config, only, [*overrides, _AWAY])
        run_id = uuid.uuid4().hex[:8]
        self.broker = FakeBroker(run_id)
        """The topics and groups in memory, to cause faults and to inspect topics."""
        self.clock = StillClock(now=1.0)
        topics_seen = TestTopics(self.broker, self.plan)
        topics_seen.create(
            topics or {}, partitions, self.app.features.state_topics(self.plan.config)
        )
        sources = topics_seen.sources
        journal = Journal(sources, topics_seen.copy_of)
        groups = {each.config.group for each in self.plan.workers} - {""}
        super().__init__(journal, topics_seen, groups)
        self._redrive = TestRedrive(self.broker, self.plan, self.create_topic)
        with_once = {
            worker.name
            for worker in self.plan.workers
            if any(route.handler.once is not None for route in worker.routes)
        }
        self._producer = TestProducer(self.broker, self.clock, sources, with_once, run_id)
        self._setting = SteppedSetting(self.broker, self.clock, journal)
        self._process: ApplicationProcess | None = None
        self._lifespans = ExitStack()
        self._raised = False

    # ---- life

    def __enter__(self) -> Self:
        """Start the workers; raise a lifespan's error unchanged."""
        for worker in self.plan.workers:
            for route in worker.routes:
                if route.handler.once is not None:
                    # Entered first, so that it ends after the loops.
                    self._lifespans.callback(route.handler.once.close_loops)
        try:
            self._begin()
            self.run_until_idle()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drain, commit, leave the lifespan. Raises a worker's failure that was not raised yet."""
        process, self._process = self._process, None
        with self._lifespans:
            if process is not None:
                process.stop()
        failure = None if process is None else process.failure
        if failure is not None and not self._raised and error is None:
            raise failure

    def _begin(self) -> None:
        self._process = ApplicationProcess(self.app, self.plan, self._setting, self._lifespans)
        self._topics.find_sources(self._process.workers)

    def _running(self) -> ApplicationProcess:
        process = self._process
        if process is None:
            raise UsageError("the application is not running: use `with TestApp(...) as wc_app`")
        if process.failure is not None:
            self._raised = True
            raise process.failure
        return process

    @property
    def parked_keys(self) -> dict[bytes, int]:
        """The keys in the ladder, with ``on_failure: park``, and how many records follow the first.

        It covers all workers and partitions.
        """
        found: dict[bytes, int] = {}
        for rule in self._running().parking.values():
            for index in rule.indexes.values():
                for each in index.parked():
                    key = each.lane if isinstance(each.lane, bytes) else str(each.lane).encode()
                    found[key] = found.get(key, 0) + each.followers
        return found

    # ---- records

    def send(  # noqa: PLR0913 - the parts of a record, by name
        self,
        topic: str,
        value: Value = None,
        key: KeyOf = None,
        *,
        headers: HeaderValues = (),
        partition: int | None = None,
        timestamp: int | None = None,
        run: bool = True,
    ) -> Sent:
        """Write a record, run until nothing is left to do now, and return its result.

        ``value`` is bytes, text, None for a tombstone, or anything that JSON can express. ``key``
        is bytes, text or None, or a function that returns it for the value. It chooses the
        partition like Java's producers; records without a key go to the partitions in turn.
        ``timestamp`` is in milliseconds since 1970, now by default. With ``run`` False, and within
        a handler, the record is only written.

        Raises UsageError for a topic or partition that does not exist, WorkerStoppedError if a rule
        of the configuration stops the worker at this record.
        """
        process = self._running()
        key = key(value) if callable(key) else key
        sent = self._write(topic, value, key, headers, partition, timestamp)
        if run and not process.calling:
            self.run_until_idle()
        return sent

    def send_many(
        self, topic: str, values: Iterable[Value], *, key: KeyOf = None, run: bool = True
    ) -> list[Sent]:
        """Write several records and then run, as with a topic that has a backlog.

        ``key`` is the key of all of them, or a function that returns the key of each value.
        """
        sent = [self.send(topic, value, key, run=False) for value in values]
        if run and not self._running().calling:
            self.run_until_idle()
        return sent

    def _write(
        self,
        topic: str,
        value: Value,
        key: bytes | str | None,
        headers: HeaderValues,
        partition: int | None,
        timestamp: int | None,
    ) -> Sent:
        message = self._producer.write(
            topic, value, key, headers=headers, partition=partition, timestamp=timestamp
        )
        readers = [each for each in self._running().workers if topic in each.source.topics]
        handlings = {each.name: self._journal.of(each.name, message) for each in readers}
        return Sent(Record.of(message, Call()), handlings)

    def redrive(self, *letters: DeadLetter) -> None:
        """Put dead letters back as ``window-consumer dlq redrive`` does, and run until idle.

        Without arguments it takes all that were not put back yet. Their ``Sent`` objects continue
        to show their results. Raises UsageError for a dead letter of another application.
        """
        self._redrive.put_back(letters or self._redrive.unresolved(self.dead_letters))
        self.run_until_idle()

    def create_topic(self, topic: str, partitions: int = PARTITIONS) -> None:
        """Create a topic while the workers run; workers with a matching pattern find it."""
        self.broker.create_topic(topic, partitions)
        for worker in self._running().workers:
            worker.discover_topics()
        self.run_until_idle()
        self._topics.find_sources(self._running().workers)

    # ---- time

    def run_until_idle(self) -> None:
        """Do everything that can be done without time passing.

        Raises WorkerStoppedError if a rule of the configuration stops a worker. Passes on
        exceptions that are not a handler's errors: KeyboardInterrupt, and pytest.fail.
        """
        for _ in range(MAX_CRASHES):
            process = self._running()
            try:
                process.run_until_idle()
            except CrashedError:
                self._begin_again()
            except BaseException:
                self._raised = process.failure is not None
                raise
            else:
                return
        raise UsageError(f"the process crashed {MAX_CRASHES} times without an end")

    def advance(self, duration: float | str) -> None:
        """Advance time, in seconds or as text such as ``10m``, and run everything that falls due.

        Within a handler, time passes as if the handler took that long, with the same consequences.
        """
        seconds = parse_duration(duration) if isinstance(duration, str) else duration
        process = self._running()
        if process.calling:
            process.last(seconds)
            return
        deadline = self.clock.now() + seconds
        self.run_until_idle()
        while (left := deadline - self.clock.now()) > 0:
            wait = self._running().next_event_s(left)
            self.clock.advance(min(left, max(wait, _STEP_S)))
            self.run_until_idle()

    def run_until_settled(self, limit: float | str = "7d") -> None:
        """Advance time until every record has its final outcome, however long its retries take.

        Raises AssertionError, with the remaining records, if that takes longer than ``limit``.
        """
        longest = parse_duration(limit) if isinstance(limit, str) else limit
        deadline = self.clock.now() + longest
        self.run_until_idle()
        while open_ := self._journal.with_outcome(*UNFINISHED):
            left = deadline - self.clock.now()
            if left <= 0:
                shown = "\n".join(map(repr, open_[:10]))
                raise AssertionError(
                    f"{len(open_)} records are not settled after {limit}:\n{shown}"
                )
            self.advance(min(left, max(_STEP_S, self._running().next_event_s(left))))

    # ---- faults

    def rebalance(self, *, lost: bool = False) -> None:
        """Take all partitions away and give them back.

        Running calls end and are committed first; records that wait for a retry start again. With
        ``lost`` the session has timed out: nothing more can be committed, and everything without a
        commit runs again, as if another member had had the partitions.
        """
        process = self._running()
        self.run_until_idle()
        process.rebalance(lost=lost)
        self.run_until_idle()

    def crash(self) -> None:
        """End the process as by kill -9, and restart it: uncommitted records run again.

        Within a handler the process ends right there, though a ``finally`` of the handler still
        runs. The lifespan of the crashed process is left only at the end of the test.
        """
        if self._running().calling:
            raise CrashedError("the process ends here, because the test said so")
        self._begin_again()
        self.run_until_idle()

    def _begin_again(self) -> None:
        self._running().die()
        self._begin()


def _plan_of(
    app: AppDefinition,
    config: str | Path | Mapping[str, Any],
    only: Sequence[str],
    overrides: Sequence[str],
) -> AppPlan:
    if not isinstance(config, Mapping):
        return app.plan(config, only=only, overrides=overrides)
    with tempfile.TemporaryDirectory() as directory:
        # JSON is YAML: it is read and checked like a file.
        file = Path(directory, "workers.yaml")
        file.write_text(json.dumps(config, indent=2), "utf-8")
        return app.plan(file, only=only, overrides=overrides)
