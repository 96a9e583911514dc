"""Targets that refuse records: these wait in levels, and those for others are delivered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.commands import DEADLINE_S
from tests.conftest import MakeTopic
from tests.delay.service import DelayService
from tests.engine.driver import COPIES
from tests.engine.producing import REFUSED, TOO_LARGE, ProducingDriven, invoice
from tests.engine.support import ORDERS, Note
from tests.new_failures.shop import Version
from tests.waiting import wait_until
from window_consumer.delay.config import WORKER, DelayConfig
from window_consumer.delay.copies import LevelCopies
from window_consumer.delay.refusing_targets import MOST_COUNTED, MOST_TRIED, RefusingTargets
from window_consumer.delay.request import Targets
from window_consumer.delay.waiting import DelayRule
from window_consumer.model import headers as names
from window_consumer.model.copy_headers import Hop
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.headers import Reason
from window_consumer.model.protocols import Copy
from window_consumer.model.record import TopicPartition
from window_consumer.plan.ladder_topics import LadderNames
from window_consumer.testing.real_kafka import RealKafka

MISSING = PublishFailedError("copy to mail: unknown", of_topic=True, why="unknown topic")
HOUR_S = 3600.0


class Delivering(ProducingDriven):
    """An Engine that delivers records which are due, one result each."""

    wall_clock_runs = True

    def __init__(self) -> None:
        self.news: list[str] = []
        section = DelayConfig(to=("*",), max=24 * HOUR_S)
        refusing = RefusingTargets(
            lambda target, why: self.news.append(f"{target}: {why.split()[-2]}"), self.news.append
        )
        targets = Targets(("*",), LadderNames(("wc.delay",), frozenset()))
        copies = LevelCopies("orders", "wc.delay", COPIES.target_of)
        self.rule = DelayRule(section, targets, copies, refusing)
        self.offset = 0
        super().__init__(slots=20, turns=[self.rule])

    def deliver_to(self, *targets: str, overdue_s: float = 0.0) -> None:
        """Deliver a record for each target, and answer for none."""
        due = (names.DELIVER_AT, b"%d" % (self.wall_ms - overdue_s * 1000))
        for target in targets:
            headers = [(names.DELIVER_TO, target.encode()), due]
            self.deliver(Note(self.offset, headers=headers))
            self.offset += 1
        self.tick()
        self.produce_all(invoice())

    def refuse_all(self, *targets: str, overdue_s: float = 0.0) -> list[Any]:
        """Deliver records whose targets are missing; return those that leave."""
        self.deliver_to(*targets, overdue_s=overdue_s)
        self.answer_all(MISSING)
        return self.published()

    def copy_of(self, failed: Any) -> Copy:
        return self.engine.copy_of(failed)

    @property
    def found(self) -> list[tuple[object, object]]:
        figures = [each.figures for each in self.engine.turns.findings(self.now)]
        return [(each["target"], each["waiting"]) for each in figures]


def test_a_refused_record_waits_in_a_level_without_an_attempt() -> None:
    driven = Delivering()
    (failed,) = driven.refuse_all("mail")
    copy = driven.copy_of(failed)
    assert copy.topic == "g.orders.retry.5s"
    assert names.ATTEMPTS not in dict(copy.headers)
    driven.copied(failed)
    assert driven.committable == 1
    assert driven.engine.counters.delayed == 1
    assert driven.take_news() == []


@pytest.mark.parametrize(
    ("overdue_s", "level"),
    [(0.0, "5s"), (9.0, "5s"), (65.0, "1m"), (599.0, "5m"), (20 * HOUR_S, "10m")],
)
def test_it_is_tried_again_after_as_long_as_it_is_overdue_but_soon(
    overdue_s: float, level: str
) -> None:
    driven = Delivering()
    (failed,) = driven.refuse_all("mail", overdue_s=overdue_s)
    assert driven.copy_of(failed).topic == f"g.orders.retry.{level}"


def test_it_is_a_dead_letter_once_max_has_passed_since_it_was_due() -> None:
    driven = Delivering()
    (failed,) = driven.refuse_all("mail", overdue_s=24 * HOUR_S + 1)
    headers = dict(driven.copy_of(failed).headers)
    assert failed.reason is Reason.TARGET_REFUSED
    assert headers[names.REASON] == b"TARGET_REFUSED"
    assert headers[names.ATTEMPTS] == b"0"
    assert driven.found == [("mail", 1)]
    driven.copied(failed)
    assert driven.found == []


def test_records_for_a_missing_topic_are_not_tried_for_some_seconds() -> None:
    driven = Delivering()
    driven.refuse_all("mail")
    driven.deliver_to("mail", "orders")
    assert len(driven.sent) == 1
    driven.answer()
    assert driven.found == [("mail", 2)]
    driven.tick(5.0)
    driven.deliver_to("mail")
    assert len(driven.sent) == 1


def test_of_a_topic_that_nobody_knows_some_records_find_out_whether_it_takes_any() -> None:
    driven = Delivering()
    driven.deliver_to(*["mail"] * (MOST_TRIED + 5))
    for _ in range(20):
        driven.produce_all(invoice())
    assert len(driven.sent) == MOST_TRIED
    driven.deliver_to("mail", "orders", "orders")
    assert len(driven.sent) == MOST_TRIED + 1, "one more for another topic"
    driven.answer()
    driven.deliver_to("mail")
    assert len(driven.sent) == MOST_TRIED + 1


def test_one_record_at_a_time_finds_out_whether_a_topic_exists_again() -> None:
    driven = Delivering()
    driven.refuse_all("mail")
    driven.tick(5.0)
    driven.deliver_to("mail", "mail")
    assert len(driven.sent) == 1
    driven.answer()
    driven.deliver_to("mail", "mail")
    assert len(driven.sent) == 2


@pytest.mark.parametrize("refusal", [TOO_LARGE, REFUSED])
def test_a_refusal_of_a_single_record_holds_up_no_other(refusal: PublishFailedError) -> None:
    driven = Delivering()
    driven.deliver_to("mail")
    driven.answer(refusal)
    if refusal.too_large:  # it is sent once more, alone
        driven.tick()
        driven.answer(refusal)
    driven.deliver_to("mail")
    assert len(driven.sent) == 1
    driven.answer()
    assert driven.found == [("mail", 1)]


def test_a_target_that_refuses_is_known_until_it_takes_a_record() -> None:
    driven = Delivering()
    for failed in driven.refuse_all("mail", "mail", "push"):
        driven.copied(failed)
    assert driven.found == [("mail", 2), ("push", 1)]
    assert not driven.engine.pauses.worker
    driven.tick(6.0)
    driven.deliver_to("mail")
    driven.answer()
    assert driven.found == [("push", 1)]
    assert driven.news == ["mail: unknown", "push: unknown", "mail"]


def test_records_of_a_released_partition_wait_elsewhere() -> None:
    driven = Delivering()
    driven.refuse_all("mail")
    driven.engine.on_lost([ORDERS], driven.now)
    assert driven.found == []


def test_the_most_awaited_targets_are_shown() -> None:
    driven = Delivering()
    driven.refuse_all(*(f"t{number}" for number in range(9)), "t7", "t8")
    assert driven.found == [("t7", 2), ("t8", 2), ("t0", 1), ("t1", 1), ("t2", 1)]


def test_any_number_of_records_may_wait_and_some_are_counted() -> None:
    refusing = RefusingTargets(lambda _target, _why: None, lambda _target: None)
    for offset in range(MOST_COUNTED + 5):
        hop = Hop(b"", TopicPartition("wc.delay", 0), offset, None)
        refusing.refused("mail", "unknown", hop, 0.0, of_topic=True)
    (finding,) = refusing.findings(1.0)
    assert finding.figures["waiting"] == MOST_COUNTED


def test_records_wait_for_a_missing_topic_and_those_for_others_do_not(
    on_kafka: DelayService,
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
) -> None:
    there, missing = make_topic("orders", 1), unique_name("late")
    on_kafka.configure(to=[there, missing])
    running = Version(on_kafka.start(), on_kafka.commands)
    on_kafka.send("a", "b", to=missing, wc_delay=0)
    on_kafka.send("c", to=there, wc_delay=0)
    assert set(on_kafka.wait_for(there, 1)) == {"c"}

    def found() -> list[tuple[str, str, int]]:
        findings = running.snapshot(WORKER)["findings"]
        return [(e["kind"], e["figures"]["target"], e["figures"]["waiting"]) for e in findings]

    wait_until(
        lambda: found() == [("target_refuses", missing, 2)], DEADLINE_S, "it knows the cause"
    )
    topics.make(AdminClient({"bootstrap.servers": kafka.bootstrap}), NewTopic(missing, 1, 1))
    assert set(on_kafka.wait_for(missing, 2)) == {"a", "b"}
    wait_until(lambda: found() == [], DEADLINE_S, "nothing waits any longer")
