"""Targets that refuse records: those of others are delivered, and doctor knows the cause."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.commands import DEADLINE_S
from tests.conftest import MakeTopic
from tests.delay.service import DelayService
from tests.doctor.made_up import evidence, working
from tests.engine.producing import REFUSED, ProducingDriven, invoice
from tests.engine.support import ORDERS, Note, spent_after
from tests.integration.members import wait_until
from tests.new_failures.shop import Version
from window_consumer.admin.doctor.diagnosis import diagnose
from window_consumer.delay.config import WORKER
from window_consumer.delay.refusing_targets import KIND, RefusingTargets
from window_consumer.engine.guards.pause_rule import RuleFinding
from window_consumer.model import headers as names
from window_consumer.testing.real_kafka import RealKafka


class Delivering(ProducingDriven):
    """An Engine that delivers records to ``invoices``, one result each."""

    def __init__(self, attempts: int = 100):
        super().__init__(slots=20, retry=spent_after(attempts))
        self.engine.obey([RefusingTargets()])

    def deliver_to(self, *targets: str) -> None:
        """Deliver a record for each target, with the offsets 0, 1 ..., and answer for none."""
        headers = [[(names.DELIVER_TO, each.encode())] for each in targets]
        self.deliver(*(Note(offset, headers=each) for offset, each in enumerate(headers)))
        self.tick()
        self.produce_all(invoice())

    @property
    def found(self) -> list[tuple[object, object]]:
        figures = [each.figures for each in self.engine.pauses.findings()]
        return [(each["target"], each["waiting"]) for each in figures]


def test_a_target_that_refuses_is_known_until_it_takes_its_records() -> None:
    driven = Delivering()
    driven.deliver_to("mail", "mail", "push", "orders")
    assert driven.found == []
    for _ in range(3):
        driven.answer(REFUSED)
    driven.answer()
    assert driven.found == [("mail", 2), ("push", 1)]
    assert not driven.engine.pauses.worker
    driven.tick(2.0)
    driven.produce_all(invoice())
    driven.answer_all()
    assert driven.found == []


def test_a_record_that_leaves_waits_no_longer() -> None:
    driven = Delivering(attempts=1)
    driven.deliver_to("mail")
    driven.answer(REFUSED)
    driven.copied(driven.published_one())
    assert driven.found == []


def test_records_of_a_released_partition_wait_elsewhere() -> None:
    driven = Delivering()
    driven.deliver_to("mail")
    driven.answer(REFUSED)
    driven.engine.on_lost([ORDERS], driven.now)
    assert driven.found == []


def test_the_most_awaited_targets_are_shown() -> None:
    driven = Delivering()
    driven.deliver_to(*(f"t{number}" for number in range(9)), "t7", "t8")
    driven.answer_all(REFUSED)
    assert driven.found == [("t7", 2), ("t8", 2), ("t0", 1), ("t1", 1), ("t2", 1)]


def test_failures_of_other_kinds_are_no_refusals() -> None:
    driven = Delivering()
    driven.deliver(Note(0, headers=[(names.DELIVER_TO, b"mail")]))
    driven.tick()
    driven.fail(driven.out[0], 0)
    assert driven.found == []


@pytest.mark.parametrize("ends_itself", [True, False])
def test_doctor_asks_to_accept_only_what_does_not_end_by_itself(*, ends_itself: bool) -> None:
    finding = RuleFinding(KIND, "3 records wait", ends_itself=ends_itself)
    seen = evidence(lambda second: {**working(busy=0.0, per_s=0)(second), "findings": (finding,)})
    (cause,) = diagnose([seen]).causes
    assert cause.kind == KIND
    assert ("window-consumer resume" in cause.sentence) is not ends_itself


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

    wait_until(lambda: found() == [(KIND, missing, 2)], DEADLINE_S, "it knows the cause")
    topics.make(AdminClient({"bootstrap.servers": kafka.bootstrap}), NewTopic(missing, 1, 1))
    assert set(on_kafka.wait_for(missing, 2)) == {"a", "b"}
    wait_until(lambda: found() == [], DEADLINE_S, "nothing waits any longer")
