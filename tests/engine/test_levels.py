"""Retry levels: where a record goes when its attempts are spent, when it is due, and its lane."""

from __future__ import annotations

import pytest

from tests.engine.driver import Driven
from tests.engine.laddered import LEVELS, LONG, MIDDLE, RETRIED, RETRIED_LATER, SHORT, Laddered
from tests.engine.support import ORDERS, Note, notes, spent_after
from window_consumer.engine.retry.copy_record import CopyOrigin, Target, copy_of
from window_consumer.engine.retry.failed_record import Detail
from window_consumer.engine.retry.policy import Retry, RetryRules, Spent
from window_consumer.engine.retry.retry_topics import MAX_SKEW_S, Level, next_level, state_topic
from window_consumer.model import headers as names
from window_consumer.model.errors import Fatal, PublishFailedError, RetryLater
from window_consumer.model.headers import Reason
from window_consumer.model.record import Record, TopicPartition

ORIGIN = CopyOrigin("g", "charge", "7")


def no_jitter() -> float:
    return 0.0


# ---- which level


@pytest.mark.parametrize(
    ("after", "at_least_s", "expected"),
    [
        (None, 0.0, SHORT),
        (SHORT, 0.0, MIDDLE),
        (LONG, 0.0, None),
        (Level("5s", 5.0), 0.0, MIDDLE),
        (Level("2h", 7200.0), 0.0, None),
        (None, 5.0, MIDDLE),
        (None, 3600.0, LONG),
        (LONG, 3600.0, None),
    ],
)
def test_the_next_level_is_the_first_with_a_longer_delay(
    after: Level | None, at_least_s: float, expected: Level | None
) -> None:
    assert next_level(LEVELS, after, at_least_s) == expected


def test_attempts_are_counted_anew_at_each_level() -> None:
    rules = RetryRules(attempts=2, attempts_per_level=1, levels=LEVELS)
    exhausted = Reason.RETRIES_EXHAUSTED
    assert isinstance(rules.next_step(ValueError(), 1, no_jitter), Retry)
    assert rules.next_step(ValueError(), 2, no_jitter) == Spent(exhausted, level=SHORT)
    assert rules.next_step(ValueError(), 1, no_jitter, SHORT) == Spent(exhausted, level=MIDDLE)
    assert rules.next_step(ValueError(), 1, no_jitter, LONG) == Spent(exhausted)
    assert [rules.allowed(each) for each in (None, SHORT, LONG)] == [2, 1, 1]


def test_fatal_leaves_the_ladder_from_every_level() -> None:
    rules = RetryRules(levels=LEVELS)
    assert rules.next_step(Fatal(), 1, no_jitter, SHORT) == Spent(Reason.FATAL)


def test_whoever_asks_for_a_long_wait_moves_to_a_level_that_waits_as_long() -> None:
    rules = RetryRules(attempts=9, backoff_max_s=5.0, levels=LEVELS)
    assert rules.next_step(RetryLater(5.0), 1, no_jitter) == Retry(5.0)
    step = rules.next_step(RetryLater(9.0), 1, no_jitter)
    assert step == Spent(Reason.RETRIES_EXHAUSTED, level=MIDDLE)


# ---- what is asked for


def test_copies_are_asked_for_while_the_source_brings_more_than_enough() -> None:
    driven = Laddered(slots=1)
    driven.deliver(*(Note(offset, b"%d" % offset) for offset in range(500)))
    driven.tick()
    assert driven.engine.appetite() == 0
    assert driven.engine.appetite(for_copies=True) == driven.engine.rules.batch_records
    driven.engine.on_stopping(driven.now)
    assert driven.engine.appetite(for_copies=True) == 0


def test_where_nothing_but_sources_is_read_enough_is_enough() -> None:
    driven = Driven(slots=1)
    driven.deliver(*(Note(offset, b"%d" % offset) for offset in range(500)))
    driven.tick()
    assert driven.engine.appetite(for_copies=True) == 0


# ---- moving


def test_a_spent_record_is_finished_when_its_copy_in_the_level_is_acked() -> None:
    driven = Laddered()
    driven.deliver(Note(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    failed = driven.published_one()
    assert failed.level == SHORT
    assert driven.committable == 0
    driven.copied(failed)
    assert driven.committable == 1
    assert (driven.engine.counters.moved, driven.engine.counters.dead_lettered) == (1, 0)


def test_a_copy_that_the_broker_refuses_holds_the_offset_and_is_tried_again() -> None:
    driven = Laddered()
    driven.deliver(Note(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.copied(driven.published_one(), PublishFailedError("no answer"))
    assert driven.committable == 0
    assert driven.published(1.0)[0].level == SHORT


def test_a_value_that_no_level_takes_becomes_a_dead_letter_with_a_reference() -> None:
    retry = spent_after(1, levels=LEVELS, on_oversize="reference")
    driven = Laddered(retry=retry)
    driven.deliver(Note(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    for detail, level in ((Detail.FULL, SHORT), (Detail.WITHOUT_ERROR_TEXTS, SHORT)):
        failed = driven.published_one()
        assert (failed.detail, failed.level) == (detail, level)
        too_large = PublishFailedError("too large", too_large=True)
        driven.copied(failed, too_large)
    failed = driven.published_one()
    assert (failed.detail, failed.level) == (Detail.REFERENCE, None)


def test_drop_drops_only_at_the_end_of_the_ladder() -> None:
    driven = Laddered(retry=spent_after(1, levels=(SHORT,), when_spent="drop"))
    driven.deliver(Note(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    assert driven.published_one().level == SHORT
    driven.deliver(driven.copy(0, due_in=0.0), name=RETRIED)
    driven.tick()
    driven.fail(driven.out[0], 0)
    assert driven.published() == []
    assert driven.engine.counters.dropped == 1


# ---- the way so far


def headers_after(driven: Laddered, message: Note, name: TopicPartition) -> dict[str, bytes | None]:
    """Let a record's handler fail, and return the headers of its copy."""
    driven.deliver(message, name=name)
    driven.tick()
    driven.fail(driven.out[0], message.offset())
    copy = copy_of(driven.published_one(), ORIGIN, Target("t", 1, 1), wall_offset_ms=0.0)
    found = dict(copy.headers)
    assert len(found) == len(copy.headers)
    return found


def test_a_copy_tells_its_level_and_when_it_is_due() -> None:
    driven = Laddered()
    found = headers_after(driven, Note(7), ORDERS)
    assert found[names.LEVEL] == b"1s"
    assert found[names.NOT_BEFORE] == b"%d" % round((driven.now + SHORT.delay_s) * 1000)


def test_attempts_first_failure_and_origin_survive_a_hop() -> None:
    driven = Laddered()
    found = headers_after(driven, driven.copy(40, due_in=0.0, attempts=5), RETRIED)
    assert found[names.ATTEMPTS] == b"6"
    assert found[names.FIRST_FAILURE] == b"1600000000000"
    assert found[names.ID] == b"orders/0/7"
    assert found[names.ORIGINAL_TOPIC] == b"orders"
    assert found[names.ORIGINAL_OFFSET] == b"7"
    assert found[names.LEVEL] == b"10s"


def test_a_dead_letter_names_the_last_level_and_no_due_time() -> None:
    driven = Laddered(retry=spent_after(1, levels=(SHORT,)))
    found = headers_after(driven, driven.copy(40, due_in=0.0), RETRIED)
    assert names.NOT_BEFORE not in found
    assert found.get(names.LEVEL) is None  # this copy named none


def test_ten_hops_replace_our_headers_and_keep_the_users() -> None:
    user = [("trace", b"1"), ("trace", None), ("x", b"y" * 100)]
    message = Note(7, headers=user)
    for _ in range(10):
        driven = Laddered()
        driven.deliver(message, name=RETRIED)
        driven.tick(MIDDLE.delay_s + MAX_SKEW_S)
        driven.tick()
        driven.fail(driven.out[0], 7)
        copy = copy_of(driven.published_one(), ORIGIN, Target("t", 1, 1), 0.0)
        message = Note(7, topic=RETRIED.topic, headers=list(copy.headers))
    headers = message.headers() or []
    assert [each for each in headers if not each[0].startswith(names.PREFIX)] == user
    ours = [name for name, _ in headers if name.startswith(names.PREFIX)]
    assert len(ours) == len(set(ours))
    assert sum(len(name) + len(value or b"") for name, value in headers) < 8192
    assert dict(headers)[names.ATTEMPTS] == b"10"


def test_a_handler_sees_the_attempts_of_all_hops() -> None:
    driven = Laddered()
    driven.deliver(driven.copy(0, due_in=0.0, attempts=4), name=RETRIED)
    driven.tick()
    (slice_,) = driven.out
    assert Record.of(slice_.messages[0], slice_.call).attempt == 5


@pytest.mark.parametrize("value", [b"", b"many", b"-1", b"9" * 30, "²".encode(), None])
def test_headers_that_make_no_sense_count_as_missing(value: bytes | None) -> None:
    driven = Laddered()
    headers = [(names.ATTEMPTS, value), (names.NOT_BEFORE, value), (names.ORIGINAL_OFFSET, value)]
    driven.deliver(Note(3, topic=RETRIED.topic, headers=headers), name=RETRIED)
    driven.tick()
    (slice_,) = driven.out
    assert Record.of(slice_.messages[0], slice_.call).attempt == 1


# ---- due times


def test_a_copy_is_called_when_it_is_due_and_not_before() -> None:
    driven = Laddered()
    driven.deliver(driven.copy(0, due_in=0.5), driven.copy(1, due_in=0.9), name=RETRIED)
    assert driven.tick().dispatch == []
    assert driven.engine.wait_s(driven.now, 60.0) == pytest.approx(0.5)
    assert driven.tick(0.49).dispatch == []
    driven.tick(0.011)
    assert driven.running_offsets == [0]
    driven.tick(0.38)
    assert driven.running_offsets == [0]
    driven.tick(0.03)
    assert driven.running_offsets == [0, 1]


def test_a_copy_that_waits_is_not_committed_over() -> None:
    driven = Laddered()
    driven.deliver(driven.copy(0, due_in=0.5), name=RETRIED)
    driven.tick(0.01)
    partition = driven.engine.partitions[RETRIED]
    assert partition.window.next_offset == 0
    assert not partition.idle


def test_a_due_time_of_a_wrong_clock_counts_as_delay_and_skew() -> None:
    driven = Laddered()
    driven.deliver(driven.copy(0, due_in=86_400.0), name=RETRIED)
    assert driven.tick(SHORT.delay_s + MAX_SKEW_S - 0.01).dispatch == []
    driven.tick(0.02)
    assert driven.running_offsets == [0]


def test_a_head_that_waits_long_does_not_delay_another_level() -> None:
    driven = Laddered()
    driven.deliver(driven.copy(0, due_in=9.0), name=RETRIED_LATER)
    driven.deliver(driven.copy(5, due_in=0.5), name=RETRIED)
    driven.tick(0.51)
    assert driven.running_offsets == [5]


def test_a_level_with_a_full_buffer_is_paused_and_goes_on_behind_it() -> None:
    driven = Laddered(window_cells=2, cell_records=10)
    driven.deliver(*(driven.copy(n, due_in=0.9) for n in range(40)), name=RETRIED)
    assert driven.tick(0.01).pause == [RETRIED]
    assert driven.tick(0.95).resume == []
    assert driven.running_offsets == [0, 1]
    while driven.out:
        driven.finish_all()
        driven.tick(0.01)
    partition = driven.engine.partitions[RETRIED]
    assert driven.last.resume == [(RETRIED, 40)]
    assert (partition.window.next_offset, partition.is_fetched) == (40, True)


# ---- lanes


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_copy_waits_while_a_record_of_its_lane_runs(ordering: str) -> None:
    driven = Laddered(ordering=ordering)
    driven.deliver(Note(0, b"k"))
    driven.tick()
    driven.deliver(driven.copy(5, due_in=0.0), name=RETRIED)
    assert driven.tick().dispatch == []
    driven.finish(driven.out[0])
    driven.tick()
    assert driven.running_offsets == [5]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_record_waits_while_a_copy_of_its_lane_runs(ordering: str) -> None:
    driven = Laddered(ordering=ordering)
    driven.deliver(driven.copy(5, due_in=0.0), name=RETRIED)
    driven.tick()
    driven.deliver(Note(0, b"k"))
    assert driven.tick().dispatch == []
    driven.finish(driven.out[0])
    driven.tick()
    assert driven.running_offsets == [0]


def test_two_copies_of_one_lane_in_two_levels_do_not_run_at_once() -> None:
    driven = Laddered(ordering="key")
    driven.deliver(driven.copy(5, due_in=0.0), name=RETRIED)
    driven.deliver(driven.copy(6, due_in=0.0), name=RETRIED_LATER)
    driven.tick()
    assert len(driven.running_offsets) == 1
    driven.finish(driven.out[0])
    driven.tick()
    assert len(driven.running_offsets) == 1


def test_copies_of_another_key_run_beside_each_other() -> None:
    driven = Laddered(ordering="key")
    driven.deliver(Note(0, b"k"))
    driven.tick()
    driven.deliver(driven.copy(5, due_in=0.0, key=b"other"), name=RETRIED)
    driven.tick()
    assert driven.running_offsets == [0, 5]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_lane_is_free_when_the_partition_that_kept_it_busy_is_lost(ordering: str) -> None:
    driven = Laddered(ordering=ordering)
    driven.deliver(driven.copy(5, due_in=0.0), name=RETRIED)
    driven.tick()
    driven.deliver(Note(0, b"k"))
    driven.tick()
    driven.engine.on_lost([RETRIED], driven.now)
    driven.tick(0.01)
    assert [m.offset() for slice_ in driven.last.dispatch for m in slice_.messages] == [0]


def test_a_lane_stays_busy_while_a_call_of_a_partition_that_is_given_up_runs() -> None:
    driven = Laddered(ordering="key")
    driven.deliver(driven.copy(5, due_in=0.0), name=RETRIED)
    driven.tick()
    driven.claim(driven.out[0], 1)
    driven.deliver(Note(0, b"k"))
    driven.engine.on_revoking([RETRIED], driven.now)
    assert driven.tick(0.01).dispatch == []
    driven.finish(driven.out[0])
    driven.tick()
    assert driven.running_offsets == [0]


@pytest.mark.parametrize("runs", [True, False])
def test_a_hovering_copy_is_reported_with_the_attempts_before_it(*, runs: bool) -> None:
    driven = Laddered(ordering="key", hover_s=30.0)
    if not runs:
        driven.deliver(*notes(0, keys=[b"k"]))
        driven.tick()
        driven.claim(driven.out[0])
    driven.deliver(driven.copy(5, due_in=0.0, attempts=3), name=RETRIED)
    driven.tick()
    if runs:
        driven.claim(driven.out[0])
    hovering = {each.name: each.attempt for each in driven.tick(31.0).hovering}
    assert hovering[RETRIED] == 4


def test_the_topic_of_redrives_belongs_to_the_group() -> None:
    assert state_topic("shop") == "shop.dlq.state"
