"""The ladder of a simulation: what members read while its levels are edited."""

from __future__ import annotations

from random import Random

from attrs import evolve

from window_consumer.engine.retry.retry_topics import Level
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition
from window_consumer.simulator.ladder_topics import LadderTopics
from window_consumer.simulator.schedule import GROUP
from window_consumer.simulator.schedule_builder import draw
from window_consumer.testing.fakes.broker import FakeBroker

SOON, LATER = Level("0.3", 0.3), Level("6", 6.0)
COPIES = TopicPartition("shop.orders.retry.0.3", 0)


class Ladder:
    """Two levels for the topic ``orders``."""

    def __init__(self) -> None:
        drawn = draw(Random(0))
        retry = evolve(drawn.engine.retry, levels=(SOON, LATER))
        plan = evolve(
            drawn, sources=("orders",), actions=(), engine=evolve(drawn.engine, retry=retry)
        )
        self.broker = FakeBroker()
        self.broker.create_topic("orders", 2)
        self.topics = LadderTopics(plan, self.broker)
        self.topics.create()

    def read_by(self, *levels: Level) -> set[str]:
        return {topic.removeprefix("shop.orders.retry.") for topic in self.topics.read_by(levels)}


def test_a_member_reads_its_levels_and_what_holds_records_of_others() -> None:
    ladder = Ladder()
    assert ladder.read_by(SOON, LATER) == {"0.3", "6"}
    assert ladder.read_by(LATER) == {"6"}
    ladder.broker.produce(*COPIES)
    assert ladder.read_by(LATER) == {"0.3", "6"}


def test_a_removed_level_is_read_until_the_group_has_committed_its_end() -> None:
    ladder = Ladder()
    for _ in range(2):
        ladder.broker.produce(*COPIES)
    for committed, read in ((1, {"0.3", "6"}), (2, {"6"})):
        ladder.broker.move_offset(GROUP, Commit(COPIES, committed, ""))
        assert ladder.read_by(LATER) == read


def test_edits_remove_rename_add_and_put_back() -> None:
    rng = Random(1)
    removed = renamed = added = back = 0
    for _ in range(20):
        ladder = Ladder()
        known: set[Level] = set()
        for _ in range(8):
            known.update(ladder.topics.levels)
            before = set(ladder.topics.levels)
            ladder.topics.edit(rng)
            now = set(ladder.topics.levels)
            gone, new = before - now, now - before
            removed += bool(gone and not new)
            renamed += bool(gone and {e.delay_s for e in gone} == {e.delay_s for e in new})
            added += bool(new - known)
            back += bool(new & known)
            delays = [level.delay_s for level in ladder.topics.levels]
            assert delays == sorted(set(delays))
            assert all(
                ladder.broker.topics.partitions(topic) == 2 for topic in ladder.topics.retry_levels
            )
    assert min(removed, renamed, added, back) > 5
