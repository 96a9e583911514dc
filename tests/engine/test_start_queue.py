"""Which waiting records get the next free slot: by another rule than the order of arrival."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from tests.engine.driver import COPIES, NO_LEVELS, Driven
from tests.engine.support import notes
from window_consumer.engine.commits.delivery_guarantee import MakeGuarantee
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.engine import Engine
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.scheduling.start_queue import Backlog
from window_consumer.model.record import TopicPartition

GOLD, IRON = TopicPartition("gold", 0), TopicPartition("iron", 0)
WEIGHTS = {"gold": 3.0, "iron": 1.0}
SLOTS = 4


class FairShares:
    """Deficit round robin over slot time, a class for each topic."""

    def __init__(self) -> None:
        self._backlogs: dict[str, Backlog] = {}
        self._asked: set[str] = set()
        self.used_s: dict[str, float] = defaultdict(float)
        self.out: Counter[str] = Counter()
        self.most = SLOTS
        """The slots that one class may hold while others wait."""

    def __iter__(self) -> Iterator[Backlog]:
        return iter(list(self._backlogs.values()))

    def __len__(self) -> int:
        return len(self._backlogs)

    @property
    def startable(self) -> int:
        return sum(records.startable for _, records in self)

    def wake(self, partition: Partition) -> None:
        self._backlogs[partition.name.topic] = partition, partition.ordering

    def remove(self, partition: Partition) -> None:
        self._backlogs.pop(partition.name.topic, None)

    def begin(self) -> None:
        self._asked.clear()

    def next(self) -> Backlog | None:
        ready = [name for name in self._backlogs if name not in self._asked]
        if len(self._backlogs) > 1:
            ready = [name for name in ready if self.out[name] < self.most]
        first = min(ready, key=lambda each: self.used_s[each] / WEIGHTS[each], default=None)
        return None if first is None else self._backlogs[first]

    def served(self, _backlog: Backlog) -> None:
        self._asked.clear()

    def pass_over(self, backlog: Backlog) -> None:
        self._asked.add(backlog[0].name.topic)

    def leave(self, backlog: Backlog) -> None:
        self.remove(backlog[0])

    def sent(self, slice_: Slice) -> None:
        self.out[slice_.partition.name.topic] += 1

    def over(self, slice_: Slice) -> None:
        self.out[slice_.partition.name.topic] -= 1
        self.used_s[slice_.partition.name.topic] += slice_.elapsed


class Fair(Driven):
    """An Engine whose queues go by shares."""

    @staticmethod
    def make(
        rules: EngineRules,
        retry_levels: Mapping[str, RetryTopicLevel] = NO_LEVELS,
        guarantee: MakeGuarantee | None = None,
    ) -> Engine:
        shares = FairShares()

        class FairEngine(Engine):
            start_queue_type = staticmethod(lambda: shares)

        engine = FairEngine(rules, lambda: 0.0, retry_levels, COPIES.copy, guarantee)
        engine.dispatcher.ledger = shares
        engine.dispatcher.slices_per_slot = 1
        return engine

    @property
    def shares(self) -> FairShares:
        assert isinstance(self.engine.dispatcher.ledger, FairShares)
        return self.engine.dispatcher.ledger


def two_topics() -> Fair:
    driven = Fair(names=(GOLD, IRON), slots=SLOTS)
    driven.engine.dispatcher.length.record(1000, 1000 * 0.01)  # a slice is a record
    driven.engine.dispatcher.length.learn()
    return driven


def run(driven: Fair, slices: int, cost_s: Mapping[str, float]) -> Counter[str]:
    """Let slots run slices one after another; return how many records each topic had."""
    had: Counter[str] = Counter()
    driven.tick()
    for _ in range(slices):
        slice_ = driven.out[0]
        topic = slice_.partition.name.topic
        had[topic] += 1
        driven.finish(slice_, cost_s[topic])
        driven.tick(0.001)
    return had


def test_classes_share_the_slot_time_by_their_weights_whatever_their_calls_take() -> None:
    driven = two_topics()
    driven.deliver(*notes(*range(1_000)), name=IRON)
    driven.deliver(*notes(*range(1_000)), name=GOLD)
    run(driven, 800, {"gold": 0.010, "iron": 0.020})
    used = driven.shares.used_s
    assert 2.8 < used["gold"] / used["iron"] < 3.2


def test_a_class_that_waits_alone_gets_all_slots() -> None:
    driven = two_topics()
    driven.deliver(*notes(*range(100)), name=IRON)
    driven.tick()
    assert driven.shares.out == {"iron": SLOTS}


def test_a_class_has_at_most_its_slots_while_others_wait() -> None:
    driven = two_topics()
    driven.shares.most = 3
    driven.deliver(*notes(*range(100)), name=GOLD)
    driven.deliver(*notes(*range(100)), name=IRON)
    driven.tick()
    assert driven.shares.out == {"gold": 3, "iron": 1}


def test_retries_use_up_the_share_of_their_class() -> None:
    driven = two_topics()
    driven.deliver(*notes(0), name=GOLD)
    driven.tick()
    driven.fail(driven.out[0], 0, elapsed=0.5)
    driven.tick(60.0)
    driven.finish(driven.out[0], 0.25)
    assert driven.shares.used_s["gold"] == 0.75
