"""A wheel whose process is killed at any step: nothing is lost, and nothing is early.

The Engine, the rule, the guarantee and the files are real. The log, the clock and the broker are
the test's. A kill is an exception out of a step that reaches the disk, the broker or the log.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.engine.driver import COPIES, NO_LEVELS, Driven
from tests.engine.support import ORDERS, Note
from window_consumer.delay.cancel_layer import CancelCheck
from window_consumer.delay.cancellations import Cancellations
from window_consumer.delay.config import DelayConfig
from window_consumer.delay.copies import LevelCopies
from window_consumer.delay.refusing_targets import RefusingTargets
from window_consumer.delay.waiting import DelayRule
from window_consumer.delay.wheel.preparation import WheelPreparation
from window_consumer.delay.wheel.rule import Admission, WheelRule
from window_consumer.delay.wheel.slot_files import OpenFiles
from window_consumer.delay.wheel.wheels import DueSending, WheelGuarantee, Wheels
from window_consumer.delay.wish import Targets
from window_consumer.engine.commits.commit_metadata import CommitNote, decode
from window_consumer.engine.commits.start_offset import Found, resolve
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.engine import Engine
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.kafka.topic_reader import Span
from window_consumer.model import headers
from window_consumer.model.protocols import CommittedOffset, Copy, Delivery
from window_consumer.model.record import Message, TopicPartition
from window_consumer.plan.ladder_topics import LadderNames

TARGETS = Targets(("*",), LadderNames(("wc.delay",), frozenset()))
CHECK = CancelCheck(Cancellations(1e9), lambda: 0.0)
RECORDS = 60
BEGIN_MS = 1_700_000_000_000


class Killed(BaseException):
    """The process has ended here."""


class World:
    """What survives a kill: the log, the commit, the target, the time."""

    def __init__(self, seed: int):
        self.draw = random.Random(seed)
        self.now = 1000.0
        self.log: list[Note] = []
        self.committed = CommittedOffset(0, "")
        self.delivered: Counter[int] = Counter()
        self.early: list[int] = []
        self.fuse: int | None = None
        """The process ends at the step with this number."""
        self.due: dict[int, int] = {}
        self.wheels: Wheels | None = None
        """Those of the last process."""

    @property
    def wall_ms(self) -> float:
        return BEGIN_MS + self.now * 1000

    def step(self) -> None:
        """Count one step of the process; it may be the last."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise Killed

    def write(self) -> None:
        """Add a record to the log, which is due soon, or was already."""
        offset = len(self.log)
        due = int(self.wall_ms) + self.draw.randrange(-300, 4000)
        self.due[offset] = due
        wish = [(headers.DELIVER_TO, b"mail"), (headers.DELIVER_AT, b"%d" % due)]
        self.log.append(Note(offset, headers=wish, written_ms=int(self.wall_ms)))

    # ---- the sink

    def deliver(self, copy: Copy) -> None:
        offset = int(
            (dict(copy.headers)[headers.ID] or b"").rpartition(b"@")[2].rpartition(b"/")[2]
        )
        self.delivered[offset] += 1
        if self.wall_ms < self.due[offset]:
            self.early.append(offset)

    # ---- the reader of commits

    def notes(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, CommitNote | None]:
        return dict.fromkeys(partitions, decode(self.committed.metadata))

    def read(self, spans: Mapping[TopicPartition, Span], take: Callable[[Message], None]) -> None:
        for span in spans.values():
            for note in self.log[span.first : span.end]:
                take(note)


class Sink:
    """Delivers when the test says so: before that the broker may have a record, or not."""

    def __init__(self, world: World):
        self.world = world
        self.answers: list[tuple[Copy, Delivery]] = []

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        self.world.step()
        self.answers.append((copy, on_delivery))

    def answer(self) -> None:
        for copy, on_delivery in self.answers:
            self.world.deliver(copy)
            self.world.step()
            on_delivery(None)
        self.answers.clear()

    def serve(self, timeout_s: float) -> None:
        del timeout_s

    def close(self, timeout_s: float) -> int:
        del timeout_s
        return 0


class Clock:
    def __init__(self, world: World):
        self.world = world

    def now(self) -> float:
        return self.world.now

    def wall_ms(self) -> int:
        return int(self.world.wall_ms)

    def sleep(self, seconds: float) -> None:
        self.world.now += seconds


class FragileFiles(OpenFiles):
    """A process may end at each use of a file."""

    def __init__(self, world: World):
        super().__init__(2)
        self.world = world

    def descriptor(self, path: str) -> int:
        self.world.step()
        return super().descriptor(path)

    def close(self, path: str) -> None:
        self.world.step()
        super().close(path)


class Process(Driven):
    """A process with the partition, which begins as the last commit and the files say."""

    def __init__(self, world: World, directory: Path):
        self.world = world
        self.sink = Sink(world)
        self.wheels = world.wheels = Wheels(FragileFiles(world))
        self.wheels.sending = DueSending(
            self.sink, Clock(world), lambda record, _: record.copy, lambda _: True, CHECK
        )
        admission = Admission(TARGETS, 1e9)
        self.preparation = WheelPreparation(
            world, directory, self.wheels, admission, RetryTopicLevel
        )
        refusing = RefusingTargets(lambda *_: None, lambda _: None)
        copies = LevelCopies("orders", "wc.delay", COPIES.target_of)
        self.rules = [
            WheelRule(admission, self.wheels),
            DelayRule(DelayConfig(to=("*",)), TARGETS, copies, refusing),
        ]
        super().__init__(names=(), turns=self.rules, commit_interval_s=0.2)
        self.now, self.wall_ms = world.now, world.wall_ms
        self.begin()

    def make(  # type: ignore[override] # the guarantee is this object's
        self, rules: EngineRules, retry_levels: Mapping[str, RetryTopicLevel] = NO_LEVELS
    ) -> Engine:
        guarantee = partial(
            WheelGuarantee, wheels=self.wheels, open_empty=self.preparation.open_empty
        )
        return Engine(rules, lambda: 0.0, retry_levels, COPIES.copy, guarantee)

    def begin(self) -> None:
        future: Future[None] = Future()
        self.preparation.make_ready({ORDERS: future})
        future.result(0)
        log = (0, len(self.world.log))
        found = Found(ORDERS, self.world.committed, log, keeps_finished=True)
        assigned = resolve(found, "earliest").assigned
        self.position = assigned.next_offset
        self.engine.on_assigned([assigned], self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass; deliver, call, answer and commit."""
        world = self.world
        world.now += seconds
        self.now, self.wall_ms = world.now, world.wall_ms
        new = world.log[self.position : self.position + 5]
        if new:
            self.position += len(new)
            self.deliver(*new)
        decisions = self.tick()
        for slice_ in list(self.out):
            for message in slice_.messages:
                world.delivered[message.offset()] += 1
                assert world.wall_ms >= world.due[message.offset()]
            self.finish(slice_)
        if world.draw.random() < 0.7:
            self.sink.answer()
        self.commit([*decisions.commit, *self.tick().commit])

    def commit(self, commits: Sequence[Any]) -> None:
        for commit in commits:
            self.world.step()
            self.world.committed = CommittedOffset(commit.next_offset, commit.metadata)
            self.world.step()
            self.engine.on_committed({commit.name: None}, self.now)

    def stop(self) -> None:
        """Give the partition up in good order."""
        self.sink.answer()
        commits, _ = self.engine.on_revoked([ORDERS], self.now)
        self.commit(commits)
        self.preparation.remove(ORDERS)


def step(world: World, process: Process | None, hosts: Sequence[Path]) -> Process | None:
    """Run a process for a moment, a new one if there is none; return it if it still runs."""
    try:
        process = process or Process(world, world.draw.choice(hosts))
        process.advance(world.draw.random() * 0.4)
        if world.draw.random() < 0.1:
            process.stop()
            return None
    except Killed:
        world.fuse = None
        # Nothing but files is left: the system closes them, and ends locks.
        if world.wheels is not None:
            world.wheels.clear()
        return None
    return process


@pytest.mark.parametrize("seed", range(30))
def test_kills_at_any_step_lose_nothing(seed: int, tmp_path: Path) -> None:
    world = World(seed)
    hosts = [tmp_path / "one", tmp_path / "two"]
    process: Process | None = None
    for _ in range(RECORDS):
        world.write()
        if world.draw.random() < 0.3:
            world.fuse = world.draw.randrange(12)
        process = step(world, process, hosts)
        world.fuse = None
    last = process or Process(world, hosts[0])
    for _ in range(80):
        last.advance(0.1)
    assert world.early == []
    assert [offset for offset in range(RECORDS) if not world.delivered[offset]] == []
    assert last.engine.partitions[ORDERS].window.next_offset == RECORDS
    assert world.committed.next_offset == RECORDS
