"""Lines of the log that say what somebody has to know."""

from __future__ import annotations

import logging
import re

import pytest
from attrs import evolve

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, Note, failure, notes
from tests.golden_texts import Golden
from tests.logged import events_in, fields_of, lines_of
from window_consumer.engine.decisions import Outlived, OwnerAway
from window_consumer.engine.guards.breaker_state import BreakerRules, BreakerState
from window_consumer.engine.guards.crash_suspects import crashed
from window_consumer.engine.guards.stuck_calls import Ending, Stalled
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import ProcessDiedError, RetryLater
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.limited_log import QUIET_S
from window_consumer.runtime.worker_log import WorkerLog


@pytest.fixture
def reports() -> WorkerLog:
    return WorkerLog("charge", logging.getLogger("window_consumer"), lambda: 0.0)


def away(number: int) -> OwnerAway:
    home = TopicPartition("orders", number)
    return OwnerAway(
        TopicPartition("g.orders.retry.1s", number), home, copies=3, seconds=10.0 + number
    )


def test_copies_that_wait_are_reported_with_their_partitions_and_why(
    reports: WorkerLog, caplog: pytest.LogCaptureFixture
) -> None:
    reports.away([away(0), away(1)])
    worker, copies, seconds, places, _ = fields_of(caplog, LogEvent.COPIES_HELD)["args"]
    assert (worker, copies, seconds) == ("charge", 6, 11.0)
    named = re.findall(r"[\w.]+\[\d\]", places)
    assert named == ["g.orders.retry.1s[0]", "orders[0]", "g.orders.retry.1s[1]", "orders[1]"]


def test_many_partitions_whose_copies_wait_make_one_line(
    reports: WorkerLog, caplog: pytest.LogCaptureFixture
) -> None:
    reports.away([away(number) for number in range(30)])
    assert "26" in fields_of(caplog, LogEvent.COPIES_HELD)["args"][-1]


def test_of_keys_only_what_may_be_logged_stands_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("window_consumer")
    reports = WorkerLog("charge", logger, lambda: 0.0, lambda topic, _: f"{topic}'s")
    slice_ = Slice(Driven().engine.partitions[ORDERS], notes(1), range(1), 10)
    call = Stalled(slice_, ORDERS, 1, b"anna", 1, 31.0, abandon=False)
    reports.calls.stalled(call, failure(), "cancelled")
    reports.calls.outlived([Outlived(ORDERS, 5, b"anna")])
    assert [text.count('(key "orders\'s"') for text in caplog.messages] == [1, 1]
    assert "anna" not in caplog.text


def test_a_copy_that_outlives_its_home_is_not_said_to_be_ignored(
    reports: WorkerLog, caplog: pytest.LogCaptureFixture
) -> None:
    name = TopicPartition("g.orders.retry.1s", 0)
    reports.calls.outlived([Outlived(name, 5, b"k", counts=True), Outlived(name, 6, b"k")])
    assert events_in(caplog) == [LogEvent.CALL_OUTLIVED_SOURCE, LogEvent.CALL_OUTLIVED]


def test_each_call_that_outlives_its_partition_has_a_line_unless_many_hang(
    reports: WorkerLog, caplog: pytest.LogCaptureFixture
) -> None:
    late = [Outlived(ORDERS, offset, b"k") for offset in range(20)]
    reports.calls.outlived(
        [*late, *(Outlived(ORDERS, 100 + n, b"k", hangs=True) for n in range(20))]
    )
    together, *apart = caplog.records
    assert [each.__dict__["offset"] for each in apart] == list(range(20))
    assert vars(together)["event"] == LogEvent.CALLS_OUTLIVED
    assert all(f"@{100 + n} " in together.getMessage() for n in range(20))


def test_of_many_calls_that_hang_at_one_place_few_have_a_line_which_counts_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    calls = WorkerLog("charge", logging.getLogger("window_consumer"), lambda: now).calls
    partition = Driven().engine.partitions[ORDERS]

    def hang(*offsets: int) -> None:
        for offset in offsets:
            slice_ = Slice(partition, notes(offset), range(1), 10)
            call = Stalled(slice_, ORDERS, offset, b"k", 1, 31.0, abandon=False)
            calls.stalled(call, failure(), "cancelled")

    hang(*range(40))
    assert [each.__dict__["offset"] for each in caplog.records] == [0, 1, 2]
    now = QUIET_S
    hang(40)
    calls.calm()
    assert events_in(caplog) == [LogEvent.CALL_STALLED] * 4
    assert re.findall(r"\d+ [\w ]+ \(orders\[0\]@3, ", caplog.messages[3])[0].startswith("37 ")
    hang(*range(41, 45))
    calls.calm()
    assert events_in(caplog)[-1] == LogEvent.CALLS_STALLED
    assert re.search(r"\b1 [\w ]+ \(orders\[0\]@44\)", caplog.messages[-1])


def test_a_record_that_ends_processes_is_reported_with_how_often_it_may(
    reports: WorkerLog, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    rules = RetryRules(attempts=1, crash_attempts=2)
    driven = Driven(retry=rules, slots=1)
    driven.deliver(*notes(0))
    driven.tick()
    for end in ("first", "second"):
        died = failure(ProcessDiedError(f"the {end} process ended"))
        died = evolve(died, fault=evolve(died.fault, fingerprint=end))
        (slice_,) = driven.out
        slice_.deviate().failed.append((slice_.messages[0], died))
        driven.finish(slice_)
        driven.tick()
        reports.calls.failed(driven.last.failed, rules, driven.now)
        driven.tick(10.0)
    first, second = caplog.messages
    golden(first)
    golden(second)


@pytest.mark.parametrize("most", [1, 3])
def test_lines_of_an_outage_count_attempts_and_name_no_end_of_records_that_stay(
    reports: WorkerLog, caplog: pytest.LogCaptureFixture, most: int
) -> None:
    rules = RetryRules(attempts=most, backoff_min_s=0.1, backoff_max_s=1.0)
    driven = Driven(retry=rules, slots=4, breaker=BreakerRules())
    driven.deliver(*notes(*range(200)))
    left = set()
    for _ in range(4000):
        for failed in driven.published(0.01):
            left.add(failed.message.offset())
            driven.copied(failed)
        reports.calls.failed(driven.last.failed, rules, driven.now)
        for slice_ in list(driven.out):
            for message in driven.claim(slice_):
                fault = Fault("Down", "", "", f"{len(caplog.records)} {message.offset()}")
                slice_.deviate().failed.append((message, Failure(ConnectionError(), fault)))
            driven.finish(slice_)
    assert driven.engine.breaker.state is BreakerState.OPEN
    line = re.compile(rf"@(\d+) failed at (?:attempt |call (\d+) \()(\d+) of {most}")
    called, attempts, ends = [], [], set()
    for text in caplog.messages:
        if found := line.search(text):
            offset, calls, attempt = found.groups()
            called.append(int(calls or attempt))
            attempts.append(int(attempt))
            if text.endswith("dead letter"):
                ends.add(int(offset))
    assert max(called) > most >= max(attempts)
    assert ends <= left
    assert bool(ends) is (most == 1)


@pytest.mark.parametrize(
    ("rules", "asked_s", "said"),
    [
        (RetryRules(), 1800.0, "retry.levels"),
        (RetryRules(on_failure="block"), 1800.0, "on_failure: block"),
        (RetryRules(levels=(Level("10m", 600.0),)), 1800.0, "600 s"),
        (RetryRules(levels=(Level("1h", 3600.0),)), 1800.0, None),
        (RetryRules(), 4.0, None),
    ],
)
def test_a_wait_that_is_cut_short_is_reported_once(
    reports: WorkerLog,
    caplog: pytest.LogCaptureFixture,
    rules: RetryRules,
    asked_s: float,
    said: str | None,
) -> None:
    driven = Driven(retry=rules)
    driven.deliver(*notes(0, 1))
    driven.tick()
    later = failure(RetryLater(asked_s))
    for slice_ in list(driven.out):
        slice_.deviate().failed.extend((message, later) for message in slice_.messages)
        driven.finish(slice_)
    driven.tick()
    reports.calls.failed(driven.last.failed, rules, driven.now)
    found = [each.args for each in lines_of(caplog, LogEvent.RETRY_SHORTENED)]
    assert len(found) == (said is not None)
    if said is not None:
        assert found[0] is not None
        worker, place, wanted_s, why = tuple(found[0])
        assert (worker, place, wanted_s) == ("charge", "orders[0]@0", asked_s)
        assert said in str(why)


def test_a_record_that_ended_the_whole_process_is_not_counted_by_attempts(
    reports: WorkerLog, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    driven = Driven(retry=RetryRules(attempts=1, crash_attempts=3))
    driven.deliver(*notes(0))
    (message,) = notes(0)
    driven.crash(message, crashed(0, 3), 3)
    reports.calls.failed(driven.take_news(), driven.engine.rules.retry, driven.now)
    (text,) = caplog.messages
    golden(text)


@pytest.mark.parametrize(
    ("ending", "then", "interrupted"),
    [
        ("cancelled", "it is cancelled; it is at:", "2 calls were cancelled (orders[0]@1"),
        (
            "killed",
            "it is killed with its process, which is replaced; it is at:",
            "2 calls were killed with their processes (orders[0]@1",
        ),
    ],
)
def test_a_call_that_is_ended_is_reported_with_how(
    reports: WorkerLog,
    caplog: pytest.LogCaptureFixture,
    ending: Ending,
    then: str,
    interrupted: str,
    golden: Golden,
) -> None:
    slice_ = Slice(Driven().engine.partitions[ORDERS], notes(1), range(1), 10)
    call = Stalled(slice_, ORDERS, 1, b"k", 1, 31.0, abandon=False, end=True)
    reports.calls.stalled(call, evolve(failure(), handler="refund"), ending)
    reports.calls.interrupted(
        [(ORDERS, 1), (ORDERS, 2)], 0, "revoke_timeout is over", ending, "they run again"
    )
    stalled, ended = caplog.messages
    assert then in stalled
    golden(stalled)
    assert interrupted in ended


def test_lines_about_a_record_say_to_which_trace_it_belongs(
    reports: WorkerLog, caplog: pytest.LogCaptureFixture
) -> None:
    headers = [("traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")]
    driven = Driven(retry=RetryRules(attempts=1))
    driven.deliver(Note(0, headers=headers))
    driven.tick()
    (slice_,) = driven.out
    driven.claim(slice_, 1)
    reports.calls.stalled(
        Stalled(slice_, ORDERS, 0, None, 1, 3.0, abandon=False), failure(), "killed"
    )
    slice_.deviate().failed.append((slice_.messages[0], failure()))
    driven.finish(slice_)
    reports.calls.failed(driven.take_news(), driven.engine.rules.retry, driven.now)
    assert len(caplog.records) == 2
    for line in map(vars, caplog.records):
        assert (line["offset"], line["trace_id"], line["span_id"]) == (0, "a" * 32, "b" * 16)
