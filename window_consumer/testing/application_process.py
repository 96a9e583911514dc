"""One run of an application under test, from its start to its stop or crash."""

from __future__ import annotations

import logging
from contextlib import ExitStack

import attrs

from window_consumer.kafka.client_log import ClientLog
from window_consumer.parking.rules import Parking
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.topics.preparation import Preparation
from window_consumer.plan.worker_setup import setup_of
from window_consumer.runtime.pools.inline_event_loop import InlineEventLoop
from window_consumer.testing.cancellations import cancel_layers
from window_consumer.testing.fakes.cluster import FakeCluster
from window_consumer.testing.parking import parking_of
from window_consumer.testing.schedules import SteppedSchedules
from window_consumer.testing.stepped_worker import Rival, SteppedSetting, SteppedWorker

_MOMENT_S = 0.005
"""How often the Engine checks paused partitions, and how long records wait for more."""

_CHECK_S = 0.5
"""The time between turns during a long call; a real poll loop takes one every few milliseconds."""

_QUIET_ROUNDS = 2
"""One worker may see another's work of a round only in the next round."""


_OWING_ROUNDS = 50
"""A limit of rounds while records start one at a time after a crash, and wait for commits that are
a few milliseconds apart: a quarter of a second for each.
"""


class CrashedError(BaseException):
    """Ends the process within a handler. Not an Exception, so that no handler catches it."""


class ApplicationProcess:
    """The workers of an application and its lifespan. Owner: one thread."""

    def __init__(
        self, app: AppDefinition, plan: AppPlan, setting: SteppedSetting, lifespans: ExitStack
    ):
        self._setting = setting
        self.failure: BaseException | None = None
        """Why it ended by itself, else None."""
        cluster = FakeCluster(setting.broker)
        log = ClientLog(logging.getLogger("window_consumer.client"), plan.mask)
        prepared = [
            Preparation(plan, each, cluster, log).prepare(all_of_them=False)
            for each in plan.workers
        ]
        loop = lifespans.enter_context(InlineEventLoop())
        state = lifespans.enter_context(app.resources(loop.run))
        self.parking: dict[str, Parking] = {}
        """By worker, for workers that park."""
        self._schedules = SteppedSchedules.of(plan, setting)
        self.workers = []
        for each in prepared:
            layers = cancel_layers(plan, each.plan.name, setting.broker, setting.clock)
            setup = setup_of(app, plan, each, setting.clock, layers)
            rule = parking_of(each, plan.config.topics, setting.broker)
            if rule is not None:
                self.parking[setup.name] = rule
                setup = attrs.evolve(setup, turn_rules=(*setup.turn_rules, rule))
            self.workers.append(SteppedWorker(setup, setting, state, loop))

    @property
    def calling(self) -> bool:
        """Whether a handler is being called now."""
        return any(worker.calling for worker in self.workers)

    def run_until_idle(self) -> None:
        """Do everything that can be done without time passing.

        Raises the error of a worker that stops by itself, which stops all.
        """
        quiet = 0
        while quiet < _QUIET_ROUNDS or (self._owes_a_commit and quiet < _OWING_ROUNDS):
            if self._round():
                quiet = 0
            elif self._owes_a_commit:
                self._setting.clock.advance(_MOMENT_S)
                quiet += 1
            elif any(worker.needs_a_moment for worker in self.workers) and not quiet:
                self._setting.clock.advance(_MOMENT_S)
                quiet = 1
            else:
                quiet += 1

    @property
    def _owes_a_commit(self) -> bool:
        return any(worker.owes_a_commit for worker in self.workers)

    def _round(self) -> bool:
        worked = self._schedules is not None and self._schedules.step()
        for worker in self.workers:
            try:
                worked = worker.step() or worked
            except Exception as error:
                self.failure = worker.failure or error
                raise
        return worked

    def last(self, seconds: float) -> None:
        """Let time pass within a handler while the poll loops run."""
        clock = self._setting.clock
        deadline = clock.now() + seconds
        while (left := deadline - clock.now()) > 0:
            clock.advance(min(left, _CHECK_S))
            for worker in self.workers:
                worker.turn()

    def next_event_s(self, longest_s: float) -> float:
        """Return the seconds until something falls due, at most ``longest_s``."""
        if self._schedules is not None:
            longest_s = self._schedules.next_event_s(longest_s)
        return min(worker.next_event_s(longest_s) for worker in self.workers)

    def rebalance(self, *, lost: bool) -> None:
        """Take all partitions away and give them back."""
        if lost:
            for worker in self.workers:
                if worker.group:
                    worker.lose_all()
            return
        topics: dict[str, set[str]] = {}
        for worker in self.workers:
            if worker.group:
                topics.setdefault(worker.group, set()).update(worker.source.topics)
        for group, names in topics.items():
            self._take_turns(group, sorted(names))

    def _take_turns(self, group: str, topics: list[str]) -> None:
        """Give every partition to a rival for a while, one member's share at a time."""
        rival = Rival(self._setting.broker, group, topics)
        members = self._setting.broker.group(group)
        self._until_dealt(rival)
        for _ in members.members[1:]:
            members.rebalance(turn=True)
            self._until_dealt(rival)
        rival.leave()
        self.run_until_idle()

    def _until_dealt(self, rival: Rival) -> None:
        quiet = 0
        while quiet < _QUIET_ROUNDS:
            moved = [self._round(), rival.step()]
            quiet = 0 if any(moved) else quiet + 1

    def stop(self) -> None:
        """Drain and leave."""
        for worker in self.workers:
            worker.stop()

    def die(self) -> None:
        """End as by kill -9."""
        for worker in self.workers:
            worker.die()
