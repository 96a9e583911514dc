"""A wheel in a world of the test's own: its log, clock and broker, and processes that are killed.

The Engine, the rule, the guarantee and the files are real. A kill is an exception out of a step
that reaches the disk, the broker or the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from attrs import astuple, frozen

from tests.engine.driver import COPIES, Driven, role_of
from tests.engine.support import ORDERS, Note, failure
from window_consumer.delay.cancel_layer import CancelCheck, CancelLayer, Cancelled
from window_consumer.delay.cancellations import Cancellations
from window_consumer.delay.config import DelayConfig
from window_consumer.delay.copies import LevelCopies
from window_consumer.delay.refusing_targets import RefusingTargets
from window_consumer.delay.request import Targets
from window_consumer.delay.waiting import DelayRule
from window_consumer.delay.wheel.guarantee import WheelGuarantee
from window_consumer.delay.wheel.partition_files import WheelFolder
from window_consumer.delay.wheel.preparation import WheelPreparation
from window_consumer.delay.wheel.rule import Admission, WheelRule
from window_consumer.delay.wheel.slot_files import OpenFiles
from window_consumer.delay.wheel.wheels import DueSending, Wheels
from window_consumer.engine.commits.commit_metadata import CommitNote, decode
from window_consumer.model import headers
from window_consumer.model.errors import CallAgain, PublishFailedError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.protocols import CommittedOffset, Copy, Delivery
from window_consumer.model.record import Call, Message, Record, TopicPartition
from window_consumer.plan.ladder_topics import LadderNames
from window_consumer.runtime.calls.layer import CallForm, CallSite, CallTools

TARGETS = Targets(("*",), LadderNames(("wc.delay",), frozenset()))
BEGIN_MS = 1_700_000_000_000
LEVEL_S = 60.0
"""Longer than any record here waits, so none goes to a level."""


class Killed(BaseException):
    """The process has ended here."""


@frozen
class Parts:
    """The parts of a wheel; a test may plant a bug in one."""

    wheels: type[Wheels] = Wheels
    guarantee: type[WheelGuarantee] = WheelGuarantee
    preparation: type[WheelPreparation] = WheelPreparation
    folder: type[WheelFolder] = WheelFolder

    @property
    def planted(self) -> str:
        """The name of the bug, if there is one."""
        honest = Parts()
        found = [each for each in astuple(self) if each not in astuple(honest)]
        return ", ".join(each.__name__ for each in found)


class World:
    """The state that survives a kill: the log, the commit, the target, the cancellations, the
    time."""

    def __init__(self, parts: Parts):
        self.parts = parts
        self.now = 1000.0
        self.clock_ahead_s = 0.0
        """How far wrong the clock of the hosts is."""
        self.log: list[Note] = []
        self.committed = CommittedOffset(0, "")
        self.delivered: Counter[int] = Counter()
        self.early: list[int] = []
        self.fuse: int | None = None
        """The process ends at the step with this number."""
        self.due: dict[int, int] = {}
        self.cancellations = Cancellations(1e9)
        self.cancelled: dict[int, int] = {}
        """How often these had been delivered when they were cancelled."""
        self.sent: set[int] = set()
        self.refused: set[int] = set()
        """They were due when they were sent first; the copies in levels wait for their times."""
        self.wheels: Wheels | None = None
        """Those of the last process."""

    @property
    def wall_ms(self) -> float:
        return BEGIN_MS + (self.now + self.clock_ahead_s) * 1000

    def step(self) -> None:
        """Count one step of the process; it may be the last."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise Killed

    def write(self, left_ms: int) -> None:
        """Add a record to the log, which is due then, or was already."""
        offset = len(self.log)
        due = self.due[offset] = int(self.wall_ms) + left_ms
        asked = [(headers.DELIVER_TO, b"mail"), (headers.DELIVER_AT, b"%d" % due)]
        note = Note(offset, headers=asked, written_ms=int(self.wall_ms))
        note.belong_to(ORDERS)
        self.log.append(note)

    def cancel(self, offset: int) -> None:
        """Cancel a record that is not due, and was not when the clock was another."""
        is_open = offset not in self.cancelled and offset not in self.sent
        if is_open and self.due[offset] > self.wall_ms:
            record_id = _id(offset)
            cancellation = Note(0, key=record_id.encode(), written_ms=int(self.wall_ms))
            self.cancellations.take(cancellation, self.wall_ms / 1000)
            self.cancelled[offset] = self.delivered[offset]

    def send(self, offset: int) -> None:
        self.sent.add(offset)
        if self.wall_ms < self.due[offset] and offset not in self.refused:
            self.early.append(offset)

    def called(self, record: Record) -> None:
        """Deliver a record that is past due, as the handler does."""
        self.send(record.offset)
        self.delivered[record.offset] += 1

    def judge(self) -> None:
        """Fail if a promise is broken."""
        assert not self.early, f"early: {self.early}"
        wrong = [each for each, times in self.cancelled.items() if self.delivered[each] > times]
        assert not wrong, f"cancelled and delivered: {wrong}"
        all_ = range(len(self.log))
        lost = [each for each in all_ if not self.delivered[each] and each not in self.cancelled]
        assert not lost, f"lost: {lost}"
        assert self.committed.next_offset == len(self.log), "not committed"

    # ---- the reader of commits

    def notes(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, CommitNote | None]:
        return dict.fromkeys(partitions, decode(self.committed.metadata))

    def read(self, spans: Mapping[TopicPartition, Span], take: Callable[[Message], None]) -> None:
        for span in spans.values():
            for note in self.log[span.first : span.end]:
                take(note)


def _id(offset: int) -> str:
    return f"{ORDERS.topic}/{ORDERS.partition}/{offset}"


def _offset(copy: Copy) -> int:
    return int((dict(copy.headers)[headers.ID] or b"").rpartition(b"/")[2])


class Sink:
    """Delivers on the test's command: before that the broker may or may not have a record."""

    def __init__(self, world: World):
        self.world = world
        self.answers: list[tuple[Copy, Delivery]] = []

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        self.world.step()
        self.world.send(_offset(copy))
        self.answers.append((copy, on_delivery))

    def answer(self, *, refused: bool = False) -> None:
        """Accept the sent records, or refuse them."""
        while self.answers:
            copy, on_delivery = self.answers.pop(0)
            if refused:
                self.world.refused.add(_offset(copy))
                on_delivery(PublishFailedError("refused"))
                continue
            self.world.delivered[_offset(copy)] += 1
            self.world.step()
            on_delivery(None)

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


def _fragile(world: World) -> type[WheelPreparation]:
    """Return a preparation whose folders may end the process before and after they record."""
    parts = world.parts

    class Folder(parts.folder):  # type: ignore[name-defined, misc] # one of several
        def record(self) -> None:
            world.step()
            super().record()
            world.step()

    class Preparation(parts.preparation):  # type: ignore[name-defined, misc] # one of several
        def _open(self, name: TopicPartition, note: CommitNote | None) -> WheelFolder:
            files, wall_ms = OpenFiles(1), self._wheels.wall_ms
            folder: WheelFolder = Folder.open(self._directory, name, files, note, wall_ms)
            return folder

    return Preparation


class Process(Driven):
    """A process with the partition, which begins as the last commit and the files say."""

    def __init__(self, world: World, directory: Path):
        self.world = world
        self.sink = Sink(world)
        self.wheels = world.wheels = world.parts.wheels(FragileFiles(world))
        check, clock = CancelCheck(world.cancellations, lambda: 0.0), Clock(world)
        self.wheels.sending = DueSending(
            self.sink, clock, lambda record, _: record.copy, lambda _: True, check
        )
        site = CallSite(CallForm(), CallTools(lambda _record: False, clock.wall_ms))
        self.call = CancelLayer(check, TARGETS).wrap(world.called, site)
        admission = Admission(TARGETS, 1e9)
        self.preparation = _fragile(world)(world, directory, self.wheels, admission, role_of)
        refusing = RefusingTargets(lambda *_: None, lambda _: None)
        copies = LevelCopies("orders", "wc.delay", COPIES.target_of)
        self.rules = [
            WheelRule(admission, self.wheels),
            DelayRule(DelayConfig(to=("*",), levels=(LEVEL_S,)), TARGETS, copies, refusing),
        ]
        guarantee = partial(
            world.parts.guarantee, wheels=self.wheels, open_empty=self.preparation.open_empty
        )
        super().__init__(names=(), turns=self.rules, guarantee=guarantee, commit_interval_s=0.2)
        self.now, self.wall_ms = world.now, world.wall_ms
        self.begin()

    def begin(self) -> None:
        future: Future[None] = Future()
        self.preparation.make_ready({ORDERS: future})
        future.result(0)
        self.position = self.start_from(ORDERS, self.world.committed, len(self.world.log))

    def advance(self, seconds: float) -> None:
        """Let time pass; deliver, call and commit."""
        world = self.world
        world.now += seconds
        self.now, self.wall_ms = world.now, world.wall_ms
        new = world.log[self.position : self.position + 5]
        if new:
            self.position += len(new)
            self.deliver(*new)
        decisions = self.tick()
        for slice_ in list(self.out):
            for message in self.claim(slice_):
                with suppress(Cancelled):
                    try:
                        self.call(Record.of(message, Call()))
                    except CallAgain as error:
                        slice_.deviate().failed.append((message, failure(error)))
            self.finish(slice_)
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
