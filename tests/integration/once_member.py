"""A member whose handler writes effects with ``once``, into a SQLite file beside its journal.

Which calls fail follows from the value: one in ten at first, one in fifty for good.
"""

from __future__ import annotations

import os
from pathlib import Path

import sqlalchemy as sa

from tests.integration import member
from window_consumer import App, Fatal, Produce, Record
from window_consumer.database import Once, Outbox

metadata = sa.MetaData()
effects = sa.Table("effects", metadata, sa.Column("value", sa.Text()))
"""Without a unique key, so that duplicates show."""
outbox = Outbox(metadata)


def engine_in(directory: Path) -> sa.Engine:
    """Return the database of all members with journals there; SQLite's writers wait."""
    return sa.create_engine(f"sqlite:///{directory / 'shop.db'}", connect_args={"timeout": 30})


app = App("shop")
once = Once(lambda: engine_in(Path(os.environ["JOURNAL"]).parent), outbox, metadata=metadata)


def fails_at_first(number: int) -> bool:
    """Return whether a record's first call fails."""
    return number % 10 == 3


def fails_for_good(number: int) -> bool:
    """Return whether a record becomes a dead letter."""
    return number % 50 == 7


@app.handler(name="work", once=once)
def work(record: Record) -> Produce:
    """Write the value, and return it."""
    with member.noted(record):
        record.session.execute(sa.insert(effects).values(value=record.text()))
        number = int(record.text())
        if fails_for_good(number):
            raise Fatal("no such customer")
        if fails_at_first(number) and record.topic == record.origin.topic:
            raise ValueError("at first it fails")
    return Produce("results", record.key, record.value)
