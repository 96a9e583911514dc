"""The ladder of a simulation: its topics, the configured levels, and their readers.

Levels may be edited while members run: removed, renamed, added or put back. New members start with
the present levels; running ones keep theirs, as in a rolling change.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from window_consumer.engine.retry.retry_topics import Level, RetryTopicLevel, is_read_on
from window_consumer.simulator.schedule import (
    DELAYS_S,
    GROUP,
    Action,
    SchedulePlan,
    copy_topic,
    entry_topic,
    park_topic,
    retry_levels_of,
)
from window_consumer.simulator.system_under_test import ReadsOn
from window_consumer.testing.fakes.broker import FakeBroker

_ENTER: frozenset[Action] = frozenset({"redrive", "replay"})
"""The processes that copy records into the entry topics."""


class LadderTopics:
    """The topics for copies of one simulation. Owner: one thread."""

    def __init__(self, plan: SchedulePlan, broker: FakeBroker, reads_on: ReadsOn = is_read_on):
        self._plan = plan
        self._broker = broker
        self._reads_on = reads_on
        self.levels: tuple[Level, ...] = ()
        """The levels configured now, shortest delay first."""
        self.retry_levels: dict[str, RetryTopicLevel] = {}
        """The existing retry topics by name, those of removed levels included."""

    def create(self) -> None:
        """Create the topics of the plan, after the sources."""
        for source in self._plan.sources:
            self._create(copy_topic(source), source, self._plan.copy_limit)
            if self._plan.parks:
                park = park_topic(source)
                self.retry_levels[park] = RetryTopicLevel(source, is_copy=True)
                self._create(park, source, 100_000)
            if not _ENTER.isdisjoint(self._plan.actions):
                entry = entry_topic(source)
                self.retry_levels[entry] = RetryTopicLevel(source, is_copy=True)
                self._create(entry, source, self._plan.redriving.entry_limit)
        self._configure(self._plan.engine.retry.levels)

    @property
    def names(self) -> list[str]:
        """All topics for copies."""
        return [*map(copy_topic, self._plan.sources), *self.retry_levels]

    def read_by(self, levels: Sequence[Level]) -> dict[str, RetryTopicLevel]:
        """Return the retry topics that a member with these levels must read now.

        These are the same as for a real worker: the topics of its levels, those of other levels
        while the group has unfinished records in them, and those that redriven and replayed records
        enter.
        """
        return {
            topic: retry_level
            for topic, retry_level in self.retry_levels.items()
            if retry_level.level in levels or self._reads_on(retry_level, self.backlog(topic))
        }

    def backlog(self, topic: str) -> int:
        """Return how many of a topic's records the group has not finished, by its commits."""
        group = self._broker.group(GROUP)
        logs = self._broker.topics.by_name[topic].logs
        return sum(
            log.end - max(log.start, group.committed(log.name).next_offset or 0) for log in logs
        )

    def edit(self, rng: Random) -> None:
        """Change one of the configured levels; usually remove one with waiting records."""
        levels = list(self.levels)
        chance = rng.random()
        delays = [each for each in DELAYS_S if all(each != level.delay_s for level in levels)]
        if levels and (chance < 0.65 or not delays):
            waiting = [each for each in levels if self._holds(each)]
            gone = rng.choice(waiting if waiting and rng.random() < 0.8 else levels)
            levels.remove(gone)
            if chance < 0.2:
                levels.append(_renamed(gone))
        else:
            delay = rng.choice(delays)
            levels.append(Level(f"{delay:g}", delay))
        self._configure(sorted(levels, key=lambda level: level.delay_s))

    def widen(self, source: str, partitions: int) -> None:
        """Widen the levels with their source, so that equal numbers stay with one member."""
        for topic, retry_level in self.retry_levels.items():
            if retry_level.source == source:
                self._broker.topics.widen(topic, partitions + self._plan.wider)

    def _configure(self, levels: Sequence[Level]) -> None:
        self.levels = tuple(levels)
        for topic, retry_level in retry_levels_of(self._plan.sources, levels).items():
            if topic not in self.retry_levels:
                self.retry_levels[topic] = retry_level
                self._create(topic, retry_level.source, self._plan.copy_limit)

    def _create(self, topic: str, source: str, limit: int) -> None:
        wider = self._plan.wider if topic in self.retry_levels else 0
        partitions = self._broker.topics.partitions(source) + wider
        self._broker.create_topic(topic, partitions, limit)

    def _holds(self, level: Level) -> bool:
        topics = (copy_topic(source, level) for source in self._plan.sources)
        return any(map(self.backlog, topics))


def _renamed(level: Level) -> Level:
    """Return a level with the same delay, written differently."""
    name = level.name.removesuffix("s")
    return Level(name if name != level.name else f"{name}s", level.delay_s)
