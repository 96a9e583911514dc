"""The base of processes beside the group: time passes, others act, and they may be killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from attrs import frozen

from window_consumer.model.errors import PublishFailedError, WindowConsumerError
from window_consumer.model.protocols import Copy, Delivery
from window_consumer.model.record import Message, TopicPartition
from window_consumer.simulator.fault_plan import FaultPlan
from window_consumer.simulator.shared import SharedSimulation
from window_consumer.testing.fakes.log import FakeMessage
from window_consumer.testing.fakes.redrive import FakeProgress, Step
from window_consumer.testing.fakes.sink import FakeSink, FateOf
from window_consumer.testing.fakes.topics import FakeTopics

T = TypeVar("T")
P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)
"""What a watch knows of a process."""

CONDITIONS: Final[Mapping[str, Callable[[Message], bool] | None]] = {
    "all": None,
    "of one key": lambda message: message.key() == b"a",
    "at odd offsets": lambda message: message.offset() % 2 == 1,
}
"""Which records somebody may want to have copied."""

_MEANWHILE = 0.15
"""The share of steps after which the simulation continues elsewhere."""

_STOPS = 0.05
"""The share of batches after which a stop is requested."""


class KilledError(BaseException):
    """The process is gone: none of its further steps happen."""


class StepClock:
    """A clock: while one process waits, time passes for all."""

    def __init__(self, scene: SharedSimulation, step: Step):
        self._step = step
        self._scene = scene
        self.now = scene.clock.now
        self.wall_ms = scene.clock.wall_ms

    def sleep(self, seconds: float) -> None:
        """Let time pass and others act."""
        self._scene.clock.advance(seconds)
        self._step()


@frozen
class CopyProcess:
    """The course of a process, of one kind. Owner: one thread."""

    scene: SharedSimulation
    fault_plan: FaultPlan
    meanwhile: Callable[[], None]
    killed: float
    """The share of steps at which it ends."""

    def may_die(self) -> None:
        """Die now and then while there are faults."""
        if not self.fault_plan.calm and self.scene.rng.random() < self.killed:
            raise KilledError

    def step(self) -> None:
        """Pass from one step to the next, or die."""
        self.may_die()
        if not self.fault_plan.calm and self.scene.rng.random() < _MEANWHILE:
            self.meanwhile()

    def stop_asked(self) -> bool:
        """Return whether a stop is requested."""
        return not self.fault_plan.calm and self.scene.rng.random() < _STOPS

    def clock(self) -> StepClock:
        """Return its clock."""
        return StepClock(self.scene, self.step)

    def outcome(self, name: object, run: Callable[[], T]) -> T | None:
        """Return the result of a process; None if it is killed, gives up, or dies of a bug."""
        history = self.scene.history
        try:
            return run()
        except KilledError:
            history.record(f"{name} is killed")
        except WindowConsumerError as error:
            history.record(f"{name} gives up: {error}")
            if self.fault_plan.calm:
                history.violate(f"{name} gives up although nothing fails: {error}")
        except Exception as error:
            history.violate(f"{name} dies of a bug: {error!r}")
        return None


class ProcessWatch(Protocol[P_contra]):
    """Checks the steps of a process."""

    def read(self, process: P_contra, messages: Sequence[FakeMessage], /) -> None:
        """Check the records that it reads."""

    def committing(self, process: P_contra, progress: Mapping[TopicPartition, int], /) -> None:
        """Check a commit of its progress."""

    def sending(self, process: P_contra, copy: Copy, /) -> None:
        """Check what it sends."""

    def written(self, process: P_contra, copy: Copy, message: FakeMessage, /) -> None:
        """Record what it has written."""

    def answered(self, process: P_contra, copy: Copy, error: PublishFailedError | None, /) -> None:
        """Record the broker's answer for what it sent."""


class WatchedProgress(FakeProgress, Generic[P]):
    """What a process reads and commits. Owner: one thread."""

    def __init__(self, steps: CopyProcess, group: str, watch: ProcessWatch[P], process: P):
        scene = steps.scene
        super().__init__(scene.broker, group, scene.rng, steps.step, steps.may_die)
        self._watch, self._process = watch, process

    def read(self, max_records: int) -> Sequence[FakeMessage]:
        """Return the next records of some partition, none at the end of all."""
        messages = super().read(max_records)
        self._watch.read(self._process, messages)
        return messages

    def commit(self) -> None:
        """Commit the progress; raises CommitFailedError where that fails."""
        self._watch.committing(self._process, self.progress())
        super().commit()


class CopyProcessSink(FakeSink, Generic[P]):
    """What a process writes. Owner: one thread."""

    def __init__(self, topics: FakeTopics, fate_of: FateOf, watch: ProcessWatch[P], process: P):
        super().__init__(topics, fate_of)
        self._watch, self._process = watch, process

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Send a copy; answer at once if it cannot be queued."""
        self._watch.sending(self._process, copy)

        def answer(error: PublishFailedError | None) -> None:
            self._watch.answered(self._process, copy, error)
            on_delivery(error)

        super().write(copy, answer)

    def append(self, name: TopicPartition, copy: Copy) -> FakeMessage:
        """Write a copy to its log."""
        message = super().append(name, copy)
        self._watch.written(self._process, copy, message)
        return message
