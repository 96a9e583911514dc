"""One worker at one moment: the one model that page, ``top``, ``doctor`` and metrics read.

As JSON it is what ``/api/windows`` answers, and the names of its fields are promises. Its windows
are taken by the poll thread, see ``engine.windows_snapshot``; the rest any thread may read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import cattrs
from attrs import frozen
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.model.record import TopicPartition

T = TypeVar("T")


@frozen(kw_only=True)
class RecordSnapshot:
    """A record that a worker holds, as far as it may be told; never with its value."""

    offset: int
    state: str = ""
    """What became of it, or what it waits for, in words."""
    key: str | None = None
    bytes: int | None = None
    headers: Sequence[tuple[str, str | None]] = ()
    more_headers: int = 0
    """So many are not shown."""
    attempts: int = 0
    error: str = ""
    """Class and message of its last failure."""
    due_s: float | None = None
    """How long until its next call, where it waits for that."""
    running_s: float | None = None
    """How long its slice has been running, where its call may be."""
    behind: int = 0
    """How many records of its lane wait for it."""


@frozen(kw_only=True)
class FailingRecord(RecordSnapshot):
    """A record that has failed and has no outcome yet."""

    topic: str
    partition: int

    @property
    def name(self) -> TopicPartition:
        """The partition that it lies in."""
        return TopicPartition(self.topic, self.partition)


@frozen(kw_only=True)
class CallStack:
    """A running call, and where it stands."""

    topic: str
    partition: int
    offset: int
    attempt: int = 1
    seconds: float = 0.0
    abandoned: bool = False
    process: str = ""
    """The child process that it runs in, and its handler."""
    stack: str = ""

    @property
    def name(self) -> TopicPartition:
        """The partition of its record."""
        return TopicPartition(self.topic, self.partition)


@frozen(kw_only=True)
class WorkerSnapshot:
    """One worker of one process."""

    process: str = ""
    """Which of several processes that answer at one address; empty where there is one."""
    name: str
    group: str = ""
    handlers: Sequence[str] = ()
    phase: str = ""
    is_ready: bool = False
    """It is in its group and works, or waits for something to do; ``ready`` in JSON."""
    silent_s: float = 0.0
    """For how long its poll thread has not been seen at work."""
    slots: int = 1
    windows: WindowsSnapshot | None = None
    """None where its poll thread did not answer in time; ``snapshot`` in JSON."""
    failing: Sequence[FailingRecord] = ()
    """Those of each partition that began to fail last."""
    blocking: Sequence[FailingRecord] = ()
    """Those of each partition that began to fail first, and hold up their lanes."""
    busy_ratio: float | None = None
    """The share of the slots' time that calls took in the last minute; None while unknown."""
    time_to_drain_s: float | None = None
    """How long all that lags would take at the pace of the last minute; None while unknown, and
    where it stands still: JSON has no infinity."""
    stands_still: bool = False
    """Something lags, and nothing was finished in the last minute."""
    history: Sequence[Mapping[str, Any]] = ()
    """Samples for charts, where they were asked for."""
    stacks: Sequence[CallStack] | None = None
    """Where running calls stand, where that was asked for; else JSON does not have the field."""

    @property
    def drain_s(self) -> float | None:
        """The time to drain, infinity where it stands still."""
        return math.inf if self.stands_still else self.time_to_drain_s


def to_json(value: Any) -> Any:
    """Return a snapshot, or a part of one, as what JSON can carry; durations are seconds."""
    return _CONVERTER.unstructure(value)


def from_json(fields: Any, kind: type[T]) -> T:
    """Return what ``to_json`` made these of, in this version or another.

    Fields that are unknown here are left out, those that are missing have their defaults. Raises
    ValueError where it is something else.
    """
    try:
        return _CONVERTER.structure(fields, kind)
    except Exception as error:
        # Whatever the fields are, there is but one thing that a caller can do.
        raise ValueError("this is no worker's answer, or one of another version") from error


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=False)
    converter.register_unstructure_hook(TopicPartition, TopicPartition._asdict)
    converter.register_structure_hook(TopicPartition, _name_of)
    names: dict[str, Any] = {
        "is_ready": override(rename="ready"),
        "windows": override(rename="snapshot"),
    }
    unstructure = make_dict_unstructure_fn(
        WorkerSnapshot, converter, stacks=override(omit_if_default=True), **names
    )
    converter.register_unstructure_hook(WorkerSnapshot, unstructure)
    structure = make_dict_structure_fn(WorkerSnapshot, converter, **names)
    converter.register_structure_hook(WorkerSnapshot, structure)
    return converter


def _name_of(fields: Any, _: object) -> TopicPartition:
    return TopicPartition(str(fields["topic"]), int(fields["partition"]))


_CONVERTER: Final = _converter()
