"""Published rows are kept for ``outbox.keep``, and deleted as fast as rows are sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from tests.database.conftest import OutboxBench
from tests.logged import lines_of
from window_consumer.database.outbox.deletion import MAX_DELETED, OutboxDeletion
from window_consumer.model.log_events import LogEvent
from window_consumer.model.produce import Produce

KEEP_S = 3600.0


def publish(bench: OutboxBench, count: int, hours_ago: float) -> None:
    """Add rows that were published at a time."""
    produces = [Produce("order-events", b"k", b"") for _ in range(count)]
    published_at = datetime.now(UTC) - timedelta(hours=hours_ago)
    with bench.engine.begin() as connection:
        bench.outbox.insert(connection, bench.outbox.rows(produces))
        waiting = bench.table.c.published_at.is_(None)
        connection.execute(sa.update(bench.table).where(waiting).values(published_at=published_at))


def test_old_rows_are_deleted_as_fast_as_rows_are_sent(bench: OutboxBench) -> None:
    publish(bench, 2, hours_ago=0.5)
    publish(bench, 3 * MAX_DELETED + 1, hours_ago=2)
    deletion = OutboxDeletion(bench.database().store, KEEP_S)
    with bench.engine.connect() as connection:
        deleted = [deletion.run(connection, sent) for sent in (0, 2 * MAX_DELETED, 2 * MAX_DELETED)]
    assert deleted == [MAX_DELETED, 2 * MAX_DELETED + 1, 0]
    assert bench.count() == 2


def test_a_locked_row_holds_up_no_deletion(in_postgres: OutboxBench) -> None:
    publish(in_postgres, 3, hours_ago=2)
    deletion = OutboxDeletion(in_postgres.database().store, KEEP_S)
    one = in_postgres.table.select().limit(1).with_for_update()
    with in_postgres.engine.begin() as other, in_postgres.engine.connect() as connection:
        other.execute(one)
        assert deletion.run(connection, 0) == 2


def test_a_deletion_that_takes_too_long_is_logged_and_stops_no_relay(
    in_postgres: OutboxBench, caplog: pytest.LogCaptureFixture
) -> None:
    deletion = OutboxDeletion(in_postgres.database().store, KEEP_S)
    with in_postgres.engine.begin() as other, in_postgres.engine.connect() as connection:
        other.execute(sa.text("LOCK TABLE wc_outbox"))
        assert deletion.run(connection, 0) == 0  # its statement is bounded
    assert len(lines_of(caplog, LogEvent.OUTBOX_NOT_CLEANED)) == 1


def test_old_rows_are_found_by_an_index(in_postgres: OutboxBench) -> None:
    publish(in_postgres, 1_000, hours_ago=0.5)
    with in_postgres.engine.begin() as connection:
        connection.execute(sa.text("ANALYZE wc_outbox"))
        before = datetime.now(UTC) - timedelta(seconds=KEEP_S)
        explained = "EXPLAIN SELECT id FROM wc_outbox WHERE published_at IS NOT NULL"
        plan = connection.scalars(
            sa.text(f"{explained} AND published_at < :before ORDER BY published_at LIMIT 500"),
            {"before": before},
        )
        assert "ix_wc_outbox_published" in "".join(plan)


def test_a_missing_index_is_reported_with_its_sql(
    bench: OutboxBench, caplog: pytest.LogCaptureFixture
) -> None:
    database = bench.database()
    database.report_missing_indexes()
    assert lines_of(caplog, LogEvent.OUTBOX_INDEX_MISSING) == []
    with bench.engine.begin() as connection:
        connection.execute(sa.text("DROP INDEX ix_wc_outbox_published"))
    database.check()
    database.report_missing_indexes()
    (line,) = lines_of(caplog, LogEvent.OUTBOX_INDEX_MISSING)
    assert vars(line)["index"] == "ix_wc_outbox_published"
    assert "CREATE INDEX ix_wc_outbox_published" in line.getMessage()
    database.engine.dispose()
