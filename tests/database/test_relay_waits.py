"""When a relay looks again: nothing waits for the next poll, which may be a minute away."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from attrs import evolve

from tests.database.conftest import AnsweredRows, OutboxBench, relaying
from tests.database.test_relay_order import PartialSender
from tests.waiting import wait_until
from window_consumer.database.outbox.relay import RelayRules
from window_consumer.database.outbox.row import OutboxRow
from window_consumer.database.outbox.sender import RelayTurn, RowsInFlight
from window_consumer.model.errors import PublishFailedError

TOPIC = "order-events"
NOWHERE = "127.0.0.1:1"
RARELY = RelayRules(poll_s=60.0, first_pause_s=0.1)
"""The patience of these tests is shorter than such a poll."""
ONCE = evolve(RARELY, looks_s=())

SLOW_COMMIT = """
CREATE FUNCTION wait_a_while() RETURNS trigger AS $$
BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$ LANGUAGE plpgsql;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON wc_outbox DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION wait_a_while();
"""


def test_a_silent_topic_is_tried_again_when_its_pause_is_over(bench: OutboxBench) -> None:
    sender = PartialSender(silent={b"1"})
    bench.add(TOPIC, b"key", b"1")
    with relaying(bench, NOWHERE, ONCE, sender=sender) as relay:
        wait_until(lambda: relay.trouble is not None)
        sender.silent.clear()
        wait_until(lambda: bench.count() == 0)
    assert sender.taken == [b"1"]


def test_rows_in_a_lane_that_another_session_holds_are_sent_once_it_is_free(
    in_postgres: OutboxBench,
) -> None:
    sender = PartialSender()
    database = in_postgres.database()
    in_postgres.add(TOPIC, b"key", b"1")
    with database.engine.connect() as other, other.begin() as holding:
        for lane in range(4):
            assert database.store.dialect.lock(other, database.store.lock_name, lane)
        with relaying(in_postgres, NOWHERE, ONCE, sender=sender) as relay:
            wait_until(lambda: relay.figures().oldest_s > 0)  # it has looked
            holding.rollback()
            wait_until(lambda: in_postgres.count() == 0)
    database.engine.dispose()


class OneAtATime(PartialSender):
    """Takes the first row of a batch, and says nothing of the others."""

    def begin(self, rows: Sequence[OutboxRow], timeout_s: float, turn: RelayTurn) -> RowsInFlight:
        others = [PublishFailedError("no answer")] * (len(rows) - 1)
        return AnsweredRows([*super().begin(rows[:1], timeout_s, turn).answers(timeout_s), *others])


def test_a_topic_that_takes_some_rows_of_a_batch_gets_the_others_at_once(
    bench: OutboxBench,
) -> None:
    sender = OneAtATime()
    rules = evolve(ONCE, first_pause_s=60.0)
    with bench.engine.begin() as connection:
        for number in range(5):
            bench.outbox.add(connection, TOPIC, b"key", b"%d" % number)
    with relaying(bench, NOWHERE, rules, sender=sender):
        wait_until(lambda: bench.count() == 0)
    assert sender.taken == [b"%d" % number for number in range(5)]


def test_a_row_whose_commit_takes_a_while_is_sent_without_a_poll(in_postgres: OutboxBench) -> None:
    with in_postgres.engine.begin() as connection:
        connection.execute(sa.text(SLOW_COMMIT))
    sender = PartialSender()
    with relaying(in_postgres, NOWHERE, RARELY, sender=sender):
        in_postgres.add(TOPIC, b"key", b"1")
        wait_until(lambda: in_postgres.count() == 0)
    assert sender.taken == [b"1"]
