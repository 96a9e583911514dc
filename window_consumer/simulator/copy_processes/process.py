"""The base of processes beside the group: time passes, others act, and they may be killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from attrs import frozen

from window_consumer.model.errors import WindowConsumerError
from window_consumer.simulator.fault_plan import FaultPlan
from window_consumer.simulator.shared import SharedSimulation
from window_consumer.testing.fakes.redrive import Step

T = TypeVar("T")

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
