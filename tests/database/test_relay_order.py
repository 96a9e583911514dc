"""What the relay never does: pass over a row, send past a refused one, mark what is not acked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from attrs import define, field

from tests.database.conftest import AnsweredRows, OutboxBench, arrived, bench_at, header, relaying
from tests.waiting import wait_until
from window_consumer.database.outbox.lane_rows import LaneRows
from window_consumer.database.outbox.relay import OutboxRelay
from window_consumer.database.outbox.row import OutboxRow
from window_consumer.database.outbox.sender import RelayTurn, RowsInFlight
from window_consumer.database.outbox.store import OutboxStore
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.writing.batch_answers import Answer
from window_consumer.model.errors import PublishFailedError

TOPIC = "order-events"


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    embedded.create_topic(TOPIC, 1)
    return embedded


class RowsBeyondPosition(OutboxStore):
    """A mutant: reads on from the highest ``seq`` that it has seen."""

    position = 0

    def rows(
        self, connection: sa.Connection, shard: int, batch: int, held: Collection[str] = ()
    ) -> list[OutboxRow]:
        found = super().rows(connection, shard, batch, held)
        seq = self.outbox.table.c.seq
        ids = [row.id for row in found]
        later = sa.select(self.outbox.table.c.id, seq).where(
            self.outbox.table.c.id.in_(ids), seq > self.position
        )
        passed = {row.id: row.seq for row in connection.execute(later)}
        self.position = max([self.position, *passed.values()])
        return [row for row in found if row.id in passed]


class RelayBeyondPosition(OutboxRelay):
    """A relay with that mutant."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        store = RowsBeyondPosition(self._store.outbox, self._store.dialect.name)
        self._rows = LaneRows(store, self._rules.batch)


class RelayMarksFirst(OutboxRelay):
    """A mutant: marks what it has read, and sends then."""

    def _begin_lane(
        self, connection: sa.Connection, lane: int, shards: Sequence[int], held: set[str]
    ) -> None:
        rows = self._rows.read(connection, lane, shards, held)
        self._store.mark(connection, [row.id for row in rows], keep=False)
        # The transaction commits whatever Kafka answers.
        self._sender.begin(rows, 4.0, RelayTurn(f"lane-{lane}", bool)).answers(4.0)


def late_commit_is_lost(
    bench: OutboxBench, broker: EmbeddedBroker, relay_class: type[OutboxRelay]
) -> bool:
    """Commit a row after one with a higher ``seq`` was sent; return whether it never arrives."""
    with (
        relaying(bench, broker.bootstrap, relay_class=relay_class),
        bench.engine.connect() as slow,
        slow.begin() as transaction,
    ):
        bench.outbox.add(slow, TOPIC, b"slow", b"late")
        bench.outbox.add(slow, TOPIC, b"quick", b"of another transaction, later")
        bench.add(TOPIC, b"slow", b"early")
        arrived(broker, TOPIC, 1)
        wait_until(lambda: bench.count() == 0)
        transaction.commit()
        for last in (b"next to last", b"last"):
            # Rows of one turn are sent in any order of their shards: the second is of a later one.
            bench.add(TOPIC, last, last)
            wait_until(lambda last=last: last in values(broker))  # type: ignore[misc] # of a loop
    return b"late" not in values(broker)


def values(broker: EmbeddedBroker) -> list[bytes | None]:
    return [each.value() for each in broker.read_all(TOPIC)]


def test_a_row_that_becomes_visible_late_is_sent(
    in_postgres: OutboxBench, broker: EmbeddedBroker
) -> None:
    assert not late_commit_is_lost(in_postgres, broker, OutboxRelay)


def test_the_test_finds_a_relay_that_reads_beyond_a_position(
    in_postgres: OutboxBench, broker: EmbeddedBroker
) -> None:
    assert late_commit_is_lost(in_postgres, broker, RelayBeyondPosition)


def row_is_left(bench: OutboxBench, broker: EmbeddedBroker, relay_class: type[OutboxRelay]) -> bool:
    """Relay while Kafka takes nothing; return whether the row is still there to be sent."""
    sender = DeadSender()
    bench.add(TOPIC, b"1", b"precious")
    with relaying(bench, broker.bootstrap, relay_class=relay_class, sender=sender):
        wait_until(lambda: sender.asked > 0)
    return bench.count(bench.table.c.published_at.is_(None)) == 1


@define
class DeadSender:
    """A client whose brokers are away."""

    asked: int = 0

    def begin(
        self,
        rows: Sequence[OutboxRow],
        timeout_s: float,  # noqa: ARG002 - interface
        turn: RelayTurn,  # noqa: ARG002 - interface
    ) -> RowsInFlight:
        self.asked += 1
        return AnsweredRows([PublishFailedError("no broker") for _ in rows])


def test_nothing_is_marked_before_its_ack(bench: OutboxBench, broker: EmbeddedBroker) -> None:
    assert row_is_left(bench, broker, OutboxRelay)


def test_the_test_finds_a_relay_that_marks_before_the_ack(
    bench: OutboxBench, broker: EmbeddedBroker
) -> None:
    assert not row_is_left(bench, broker, RelayMarksFirst)


@define
class PartialSender:
    """Brokers that take rows but for those with some values; what they took is in ``taken``."""

    refuses: set[bytes] = field(factory=set)
    silent: set[bytes] = field(factory=set)
    taken: list[bytes] = field(factory=list)

    def begin(
        self,
        rows: Sequence[OutboxRow],
        timeout_s: float,  # noqa: ARG002 - interface
        turn: RelayTurn,  # noqa: ARG002 - interface
    ) -> RowsInFlight:
        return AnsweredRows([self._answer(row.payload or b"") for row in rows])

    def _answer(self, value: bytes) -> Answer:
        if value in self.refuses:
            return PublishFailedError("too large", too_large=True)
        if value in self.silent:
            return PublishFailedError("no answer")
        self.taken.append(value)
        return None


def test_only_the_acknowledged_prefix_of_a_key_is_marked(bench: OutboxBench) -> None:
    for value in (b"a1", b"a2", b"a3", b"b1"):
        bench.add(TOPIC, value[:1], value)
    sender = PartialSender(silent={b"a2"})
    with relaying(bench, "127.0.0.1:1", sender=sender):
        wait_until(lambda: {b"a1", b"b1"} <= set(sender.taken))
        wait_until(lambda: bench.count() == 2)
        assert [row.payload for row in bench.rows()] == [b"a2", b"a3"]
        sender.silent.clear()
        wait_until(lambda: bench.count() == 0)
    firsts = list(dict.fromkeys(each for each in sender.taken if each != b"a3"))
    assert [each for each in firsts if each.startswith(b"a")] == [b"a1", b"a2"]
    assert sender.taken[-2:] == [b"a2", b"a3"]


def test_a_refused_row_blocks_its_key_until_it_is_taken(bench: OutboxBench) -> None:
    sender = PartialSender(refuses={b"a1"})
    bench.add(TOPIC, b"a", b"a1")
    with relaying(bench, "127.0.0.1:1", sender=sender, refused_again_s=0.3):
        wait_until(lambda: bench.count(bench.table.c.status == "blocked") == 1)
        for value in (b"a2", b"a3", b"b1"):
            bench.add(TOPIC, value[:1], value)
        wait_until(lambda: sender.taken == [b"b1"])
        (first, *_) = bench.rows()
        assert (first.last_error, first.payload) == ("too large", b"a1")
        assert first.attempts >= 1
        sender.refuses.clear()
        wait_until(lambda: bench.count() == 0)
    assert sender.taken == [b"b1", b"a1", b"a2", b"a3"]


def test_with_skip_a_refused_row_is_marked_and_its_key_goes_on(bench: OutboxBench) -> None:
    sender = PartialSender(refuses={b"a1"})
    for value in (b"a1", b"a2"):
        bench.add(TOPIC, value[:1], value)
    with relaying(bench, "127.0.0.1:1", sender=sender, on_refused="skip"):
        wait_until(lambda: sender.taken == [b"a2"])
        wait_until(lambda: bench.count() == 1)
        (row,) = bench.rows()
        assert (row.status, row.attempts, row.last_error) == ("failed", 1, "too large")


def test_commands_act_on_refused_rows(bench: OutboxBench) -> None:
    sender = PartialSender(refuses={b"a1", b"b1"})
    store = OutboxStore(bench.outbox, bench.engine.dialect.name)
    for value in (b"a1", b"b1"):
        bench.add(TOPIC, value[:1], value)
    blocked = bench.table.c.status == "blocked"
    with relaying(bench, "127.0.0.1:1", sender=sender, refused_again_s=3600.0):
        wait_until(lambda: bench.count(blocked) == 2)
        for value in (b"a2", b"b2"):
            bench.add(TOPIC, value[:1], value)
        with bench.engine.begin() as connection:
            first, second = store.refused(connection, 10)
            assert store.skip(connection, [first.id]) == 1
        wait_until(lambda: sender.taken == [first.key + b"2" if first.key else b""])
        sender.refuses.clear()
        with bench.engine.begin() as connection:
            assert store.retry(connection, [second.id]) == 1
        wait_until(lambda: bench.count() == 1)
        assert sender.taken[1:] == [b"%s%d" % (second.key or b"", number) for number in (1, 2)]
        with bench.engine.begin() as connection:
            assert [row.id for row in store.refused(connection, 10)] == [first.id]
            assert store.retry(connection, None) == 1
        wait_until(lambda: bench.count() == 0)


def test_rows_wait_while_kafka_is_away(bench: OutboxBench, broker: EmbeddedBroker) -> None:
    with relaying(bench, broker.bootstrap) as relay:
        bench.add(TOPIC, b"1", b"before")
        arrived(broker, TOPIC, 1)
        broker.broker_down()
        for number in range(3):
            bench.add(TOPIC, b"1", b"%d" % number)
        wait_until(lambda: relay.trouble is not None)
        assert bench.count(bench.table.c.published_at.is_(None)) == 3
        wait_until(lambda: relay.figures().oldest_s > 0.0)
        broker.broker_up()
        wait_until(lambda: bench.count() == 0)
        wait_until(lambda: relay.trouble is None)
    assert list(dict.fromkeys(values(broker))) == [b"before", b"0", b"1", b"2"]


def test_a_repetition_has_the_same_id(bench: OutboxBench, broker: EmbeddedBroker) -> None:
    row_id = bench.add(TOPIC, b"1", b"twice")
    row: dict[str, Any] = bench.rows()[0]._asdict()
    with relaying(bench, broker.bootstrap):
        arrived(broker, TOPIC, 1)
        wait_until(lambda: bench.count() == 0)
        with bench.engine.begin() as connection:
            connection.execute(bench.table.insert().values(row))
        messages = arrived(broker, TOPIC, 2)
    assert {header(each, "wc-id") for each in messages} == {row_id.encode()}


def test_another_topic_goes_on_while_one_is_silent(bench: OutboxBench) -> None:
    sender = PartialSender(silent={b"silent"})
    bench.add("silent", b"1", b"silent")
    with relaying(bench, "127.0.0.1:1", sender=sender, first_pause_s=60.0, longest_pause_s=60.0):
        wait_until(lambda: bench.count(bench.table.c.topic != "silent") == 0)
        for number in range(20):
            bench.add(TOPIC, b"%d" % number, b"spoken")
        wait_until(lambda: bench.count() == 1)
    assert sender.taken == [b"spoken"] * 20


def test_sqlite_looks_for_blocked_keys_in_an_index(tmp_path: Path) -> None:
    with bench_at(f"sqlite:///{tmp_path / 'shop.db'}") as bench:
        statement = str(OutboxStore(bench.outbox, "sqlite").reading.selection.compile(bench.engine))
        with bench.engine.connect() as connection:
            plan = connection.exec_driver_sql(
                "EXPLAIN QUERY PLAN " + statement.replace("?", "1")
            ).all()
    assert not [row for row in plan if row[3].startswith("SCAN")]
