"""One worker at one moment, for the page, ``top``, ``doctor`` and metrics.

Its JSON form is the answer of ``/api/windows``, and its field names are promises. The poll thread
takes its windows, see ``engine.windows_snapshot``; any thread may read the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeVar

import cattrs
from attrs import frozen
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.model.record import TopicPartition

T = TypeVar("T")


class Phase(Enum):
    """The stage of a worker's life."""

    JOINING = "joining"
    RUNNING = "running"
    DRAINING = "draining"
    DRAINED = "drained"
    LEFT = "left"


@frozen(kw_only=True)
class RecordSnapshot:
    """The displayable part of a record that a worker holds, never its value."""

    offset: int
    state: str = ""
    """Its outcome, or the reason why it waits, in words."""
    key: str | None = None
    bytes: int | None = None
    headers: Sequence[tuple[str, str | None]] = ()
    more_headers: int = 0
    """The number of headers that are not shown."""
    attempts: int = 0
    error: str = ""
    """Class and message of its last failure."""
    due_s: float | None = None
    """Seconds until its next call, if it waits for one."""
    running_s: float | None = None
    """How long its slice has been running, if it may include a running call of this record."""
    behind: int = 0
    """The number of records of its lane that wait for it."""


@frozen(kw_only=True)
class FailingRecord(RecordSnapshot):
    """A record that has failed and has no outcome yet."""

    topic: str
    partition: int

    @property
    def name(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)


@frozen(kw_only=True)
class CallStack:
    """A running call and its stack."""

    topic: str
    partition: int
    offset: int
    attempt: int = 1
    seconds: float = 0.0
    abandoned: bool = False
    process: str = ""
    """The child process of the call, and its handler."""
    stack: str = ""

    @property
    def name(self) -> TopicPartition:
        """The partition of its record."""
        return TopicPartition(self.topic, self.partition)


@frozen(kw_only=True)
class WorkerSnapshot:
    """One worker of one process."""

    process: str = ""
    """The process, if several answer at one address; empty for a single one."""
    name: str
    group: str = ""
    """Empty for a worker that reads all partitions without one."""
    handlers: Sequence[str] = ()
    phase: str = ""
    is_ready: bool = False
    """Whether it is in its group and running, idle or not; ``ready`` in JSON."""
    catching_up: int | None = None
    """How many records a worker without a group must handle before it is ready; else None."""
    silent_s: float = 0.0
    """Seconds since its poll thread last reported activity."""
    slots: int = 1
    windows: WindowsSnapshot | None = None
    """None if its poll thread did not answer in time; ``snapshot`` in JSON."""
    failing: Sequence[FailingRecord] = ()
    """The records of each partition that began to fail last."""
    blocking: Sequence[FailingRecord] = ()
    """The records of each partition that began to fail first and block their lanes."""
    busy_ratio: float | None = None
    """The share of the slots' time spent in calls in the last minute; None while unknown."""
    time_to_drain_s: float | None = None
    """How long the lag would take at the pace of the last minute. None while unknown, and at a
    standstill, because JSON has no infinity."""
    stands_still: bool = False
    """Whether there is a lag and nothing was finished in the last minute."""
    history: Sequence[Mapping[str, Any]] = ()
    """Samples for charts, if requested."""
    stacks: Sequence[CallStack] | None = None
    """The stacks of running calls, if requested; otherwise JSON omits the field."""

    @property
    def drain_s(self) -> float | None:
        """The time to drain, infinity where it stands still."""
        return math.inf if self.stands_still else self.time_to_drain_s


def to_json(value: Any) -> Any:
    """Return a snapshot, or a part of one, in JSON types; durations are seconds."""
    return _CONVERTER.unstructure(value)


def from_json(fields: Any, kind: type[T]) -> T:
    """Return the object that ``to_json`` converted, in this version or another.

    Unknown fields are ignored, missing ones get their defaults. Raises ValueError for anything
    else.
    """
    try:
        return _CONVERTER.structure(fields, kind)
    except Exception as error:
        # Callers handle all failures alike, so they get one class.
        raise ValueError("this is not a worker's answer, or one of another version") from error


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
