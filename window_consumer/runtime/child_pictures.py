"""What a child process does at a moment, for people: SIGUSR1 shows it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from traceback import FrameSummary

from attrs import frozen

from window_consumer.model.record import TopicPartition


class ChildState(StrEnum):
    """What a child is about."""

    STARTING = "starts"
    RUNNING = "runs"
    IDLE = "has nothing to do"
    RESTING = "rests, as it is not needed"


@frozen
class ChildPicture:
    """One child process."""

    name: str
    pid: int
    state: ChildState
    on: tuple[TopicPartition, int] | None = None
    """The record that it runs, by its offset; the first one of a batch."""
    handler: str = ""
    """The one of several handlers that is called."""
    stack: Sequence[FrameSummary] = ()
    """Where that stands, the innermost frame last; empty where the child does not say."""
