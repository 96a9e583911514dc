"""What a worker is made of, before it has connections: rules, handler, and what features add."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from attrs import field, frozen

from window_consumer.engine.commits.start_offset import OnNoOffset
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.engine import Engine, MakeEngine
from window_consumer.engine.guards.pause_rule import PauseRule
from window_consumer.engine.observer import Observer
from window_consumer.engine.retry.copy_record import CopyOrigin, Target
from window_consumer.engine.retry.policy import Jitter
from window_consumer.engine.retry.retry_topics import Level, RetryTopicLevel
from window_consumer.engine.turn import TurnRule
from window_consumer.model.protocols import Clock
from window_consumer.runtime.calls.steps import Called
from window_consumer.runtime.clock import SystemClock
from window_consumer.runtime.context import LoggableKey
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.partitions.broadcast_offsets import BroadcastBegin
from window_consumer.runtime.partitions.offset_reset import OnOutOfRange
from window_consumer.runtime.partitions.preparation import PartitionPreparation
from window_consumer.runtime.poll_loop import LoopRules
from window_consumer.runtime.pools.pool import MakePool, PoolParts
from window_consumer.runtime.pools.registry import DEFAULT
from window_consumer.runtime.topic_watch import Ask, AskEnds


@frozen
class WorkerSetup:
    """Everything that defines a worker except its connections."""

    name: str
    origin: CopyOrigin
    engine: EngineRules
    loop: LoopRules
    handler: Called
    """The handler within its layers. It gets lists of records if the Engine's rules say so."""
    target_of: Callable[[str, Level | None], Target]
    """Returns the topic for copies of a source topic's records: a level's, or the dead-letter topic
    for None."""
    ask_topics: Ask
    """Returns the topics to read. Called every few seconds on a separate thread."""
    ask_ends: AskEnds = lambda _names: {}
    """Returns the log ends of partitions that are not fetched. Called on the same thread."""
    retry_levels: Mapping[str, RetryTopicLevel] = field(factory=dict)
    """The retry topics to read. ``ask_topics`` adds those found later."""
    on_no_offset: OnNoOffset = "earliest"
    on_out_of_range: OnOutOfRange = "fail"
    faults: ErrorReports = field(factory=ErrorReports)
    """Describes exceptions of handlers."""
    loggable_key: LoggableKey = lambda _, key: key
    """Masks keys for the log."""
    logger: logging.Logger = field(factory=own_logger)
    clock: Clock = field(factory=SystemClock)
    is_async: bool = False
    """The handler is a coroutine function, so ``make_pool`` must return a pool that runs
    coroutines."""
    make_engine: MakeEngine = Engine
    broadcast_begin: BroadcastBegin = "latest"
    """The start of reading for a worker that reads all partitions, without a group."""
    make_pool: MakePool = field(factory=lambda: DEFAULT.make(PoolParts()))
    make_queue: Callable[[], SimpleQueue[Any]] = SimpleQueue
    """Replaceable, like ``make_pool``: the test kit runs everything on one thread."""
    jitter: Jitter = random.random
    observers: tuple[Observer, ...] = ()
    """Receive the events of records."""
    turn_rules: tuple[TurnRule, ...] = ()
    """Keep some records from being called at their turn."""
    pause_rules: tuple[PauseRule, ...] = ()
    """May pause the worker until a user resumes it."""
    preparations: tuple[PartitionPreparation, ...] = ()
    """Prepare partitions before they start."""
