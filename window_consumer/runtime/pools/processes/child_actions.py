"""Actions that the table of children requests and the pool carries out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import WorkerStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import Message


class Post(NamedTuple):
    """Action: send a slice to the child of a slot."""

    slot: int
    serial: int
    shared_slot: int
    slice_: Slice
    messages: Sequence[Message]


class Complete(NamedTuple):
    """Action: report a slice to the poll thread."""

    slice_: Slice


class StartChild(NamedTuple):
    """Action: start a child for a slot."""

    slot: int
    delay_s: float


class EndChild(NamedTuple):
    """Action: let a slot's child end after its current work."""

    slot: int


class KillChild(NamedTuple):
    """Action: end a slot's child at once."""

    slot: int


class StopWorker(NamedTuple):
    """Action: report why the worker must stop."""

    error: WorkerStoppedError


class Log(NamedTuple):
    """Action: log a warning, after the worker's name."""

    event: LogEvent
    text: str
    args: tuple[Any, ...]


Action = Post | Complete | StartChild | EndChild | KillChild | StopWorker | Log
