"""The layer around deliveries: cancelled records, how long and in how much memory that is known."""

from __future__ import annotations

import tracemalloc

import pytest

from window_consumer.delay.cancel_layer import CancelCheck, CancelLayer, Cancelled
from window_consumer.delay.cancellations import Cancellations, mark_of
from window_consumer.delay.request import Targets
from window_consumer.model.errors import CallAgain
from window_consumer.model.record import Call, Record, TopicPartition
from window_consumer.plan.ladder_topics import LadderNames
from window_consumer.runtime.calls.layer import CallForm, CallSite, CallTools
from window_consumer.testing.fakes.log import FakeMessage

NOW_S = 1_800_000_000
HOUR_S = 3_600
DAY_S = 24 * HOUR_S
MIB = 1024**2


def cancelled(
    record_id: bytes, value: bytes | None = b"yes", due_s: int | None = None
) -> FakeMessage:
    headers = [] if due_s is None else [("wc-deliver-at", b"%d" % (due_s * 1000))]
    return FakeMessage(
        TopicPartition("wc.delay.cancel", 0), 0, record_id, value, headers, NOW_S * 1000
    )


class Service:
    """Delivers records to ``orders``."""

    def __init__(self, *cancellations: FakeMessage):
        self.age_s = 0.0
        self.early_ms = 0
        """How long before a record is due it is called."""
        self.known = Cancellations(30.0 * DAY_S)
        self.take(*cancellations)
        targets = Targets(("orders",), LadderNames((), frozenset()))
        layer = CancelLayer(CancelCheck(self.known, lambda: self.age_s), targets)
        self._now_ms = 0
        site = CallSite(CallForm(), CallTools(lambda _record: False, lambda: self._now_ms))
        self._call = layer.wrap(lambda _record: "delivered", site)

    def take(self, *cancellations: FakeMessage) -> None:
        for each in cancellations:
            self.known.take(each, NOW_S)

    def deliver(self, record_id: str, due_s: int = NOW_S) -> str:
        """Return what becomes of a record that is called."""
        headers = [
            ("wc-id", record_id.encode()),
            ("wc-deliver-to", b"orders"),
            ("wc-deliver-at", b"%d" % (due_s * 1000)),
        ]
        message = FakeMessage(TopicPartition("wc.delay", 0), 7, b"a", b"b", headers)
        self._now_ms = due_s * 1000 - self.early_ms
        try:
            return str(self._call(Record.of(message, Call())))
        except Cancelled:
            return "cancelled"


def test_only_what_is_cancelled_is_not_delivered() -> None:
    service = Service(cancelled(b"a"), cancelled(b"b"), cancelled(b"b", None), cancelled(b"c", b""))
    assert [service.deliver(each) for each in "abc"] == ["cancelled", "delivered", "delivered"]


def test_the_place_of_a_record_without_an_id_cancels_it() -> None:
    service = Service(cancelled(b"wc.delay/0/7"))
    assert service.deliver("") == "cancelled"


@pytest.mark.parametrize(
    ("named_s", "due_s", "becomes"),
    [
        (NOW_S, NOW_S, "cancelled"),
        (NOW_S, NOW_S + 1, "delivered"),
        (NOW_S + HOUR_S, NOW_S, "cancelled"),
        (None, NOW_S + 30 * DAY_S, "cancelled"),
        (None, NOW_S + 30 * DAY_S + 1, "delivered"),
        (NOW_S + 99 * DAY_S, NOW_S + 31 * DAY_S, "delivered"),
    ],
)
def test_it_is_for_records_that_are_due_by_its_time(
    named_s: int | None, due_s: int, becomes: str
) -> None:
    assert Service(cancelled(b"a", due_s=named_s)).deliver("a", due_s) == becomes


def test_a_time_that_is_no_number_is_none() -> None:
    message = FakeMessage(
        TopicPartition("wc.delay.cancel", 0), 0, b"a", b"yes", [("wc-deliver-at", b"noon")]
    )
    assert Service(message).deliver("a") == "cancelled"


def test_it_is_kept_for_a_day_after_its_record_was_due() -> None:
    service = Service(cancelled(b"a", due_s=NOW_S + HOUR_S), cancelled(b"b"))
    service.known.remove_past(NOW_S + HOUR_S + DAY_S)
    assert service.known.figures().kept == 2
    service.known.remove_past(NOW_S + HOUR_S + DAY_S + 1)
    assert service.known.figures().kept == 1
    assert service.deliver("a") == "delivered"


def test_those_that_come_after_the_delivery_are_counted() -> None:
    service = Service()
    assert service.deliver("a") == "delivered"
    service.take(cancelled(b"a"), cancelled(b"b"))
    assert (service.known.figures().late, service.known.figures().kept) == (1, 2)


@pytest.mark.parametrize(
    ("age_s", "wait_s"), [(1.01, 0.05), (5.0, 1.0), (100.0, 5.0), (float("inf"), 0.25)]
)
def test_records_wait_while_cancellations_are_not_known(age_s: float, wait_s: float) -> None:
    service = Service(cancelled(b"a"))
    service.age_s = age_s
    for record_id in "ab":
        with pytest.raises(CallAgain) as caught:
            service.deliver(record_id)
        assert caught.value.after_s == pytest.approx(wait_s)
    service.age_s = 1.0
    assert [service.deliver(each) for each in "ab"] == ["cancelled", "delivered"]


@pytest.mark.parametrize(
    ("early_ms", "wait_s"), [(1, 0.001), (3000, 3.0), (86_400_000, 5.0), (0, None), (-7, None)]
)
def test_a_record_is_never_early_by_a_clock_that_was_set_back(
    early_ms: int, wait_s: float | None
) -> None:
    service = Service(cancelled(b"a"))
    service.early_ms = early_ms
    if wait_s is None:
        assert [service.deliver(each) for each in "ab"] == ["cancelled", "delivered"]
        return
    for record_id in "ab":
        with pytest.raises(CallAgain) as caught:
            service.deliver(record_id)
        assert caught.value.after_s == pytest.approx(wait_s)


def test_a_million_takes_at_most_150_mib() -> None:
    known, some = Cancellations(30.0 * DAY_S), 50_000
    tracemalloc.start()
    for number in range(some):
        known.take(cancelled(b"%036d" % number, due_s=NOW_S + number), NOW_S)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert known.due(mark_of("0" * 36)) == NOW_S
    assert used * 1_000_000 / some < 150 * MIB
