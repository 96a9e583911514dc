"""The application of ``once-kills``: a module of its own, which child processes import.

The environment says which variant it is and whether the bug that fails records is corrected.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.ext.asyncio import create_async_engine

from window_consumer import App, PartialFailure, Produce, Record
from window_consumer.database import Once, Outbox

SLOTS: Final = 16
WORKER: Final = "work"
ENVIRONMENT: Final = "ONCE_KILLS"
FAILS_ONE_IN: Final = 100
"""Records that become dead letters, until the redrive."""
_STUMBLES_ONE_IN: Final = 10
_STALLS_ONE_IN: Final = 100

metadata = sa.MetaData()
effects = sa.Table("effects", metadata, sa.Column("id", sa.Text()), sa.Column("at", sa.Text()))
"""Without a unique key, so that duplicates show."""
outbox = Outbox(metadata)


@frozen
class Variant:
    """How the handler is called, and how its process is disturbed."""

    name: str
    is_batch: bool = False
    is_async: bool = False
    in_children: bool = False
    has_levels: bool = False
    """One record in ten fails at its first call, one in a hundred stalls; copies go anywhere."""
    fenced: bool = False
    freezes: bool = False
    """Two members run, and one after the other is frozen beyond its session."""
    wait_s: float = 0.0
    """How long a call takes at least."""


VARIANTS: Final = {
    each.name: each
    for each in (
        Variant("records"),
        Variant("batches", is_batch=True),
        Variant("coroutines", is_async=True),
        Variant("children", in_children=True),
        Variant("levels", has_levels=True),
        Variant("fence", fenced=True),
        Variant("frozen", freezes=True, wait_s=0.15),
        Variant("frozen-fence", fenced=True, freezes=True, wait_s=0.15),
    )
}


def is_bad(offset: int) -> bool:
    """Return whether a record fails until somebody corrects the bug."""
    return offset % FAILS_ONE_IN == 0


@frozen
class _Handler:
    """The handler in its forms."""

    variant: Variant
    results: str
    is_fixed: bool

    def place(self, record: Record) -> Produce:
        self._insert(record)
        self._wait(record)
        self._fail([record])
        return self._result(record)

    async def place_later(self, record: Record) -> Produce:
        await self._insert(record)
        await asyncio.sleep(self.variant.wait_s)
        self._fail([record])
        return self._result(record)

    def place_all(self, records: list[Record]) -> Sequence[Produce]:
        for record in records:
            self._insert(record)
        self._fail(records)
        return [self._result(record) for record in records]

    def _insert(self, record: Record) -> Any:
        at = f"{record.topic}/{record.partition}/{record.offset}"
        return record.session.execute(sa.insert(effects).values(id=record.id, at=at))

    def _wait(self, record: Record) -> None:
        stalls = record.attempt == 1 and record.offset % _STALLS_ONE_IN == 3
        time.sleep(3.0 if self.variant.has_levels and stalls else self.variant.wait_s)

    def _fail(self, records: Sequence[Record]) -> None:
        bad = [record for record in records if self._fails(record)]
        if bad and self.variant.is_batch:
            raise PartialFailure(bad)
        if bad:
            raise ValueError("a bug that somebody corrects later")

    def _fails(self, record: Record) -> bool:
        if not self.is_fixed and is_bad(record.origin.offset):
            return True
        stumbles = record.attempt == 1 and record.offset % _STUMBLES_ONE_IN == 1
        return self.variant.has_levels and stumbles

    def _result(self, record: Record) -> Produce:
        return Produce(self.results, record.key, record.id)


def _made() -> App:
    app = App("benchmarks")
    given = json.loads(os.environ.get(ENVIRONMENT, "null"))
    if given is None:
        return app
    variant = VARIANTS[given["variant"]]
    make = create_async_engine if variant.is_async else sa.create_engine
    once = Once(
        lambda: make(given["url"], pool_size=SLOTS + 2), outbox=outbox, fenced=variant.fenced
    )
    handler = _Handler(variant, given["results"], given["fixed"])
    if variant.is_batch:
        app.batch_handler(name=WORKER, max_records=20, once=once)(handler.place_all)
    elif variant.is_async:
        app.handler(name=WORKER, once=once)(handler.place_later)
    else:
        app.handler(name=WORKER, once=once)(handler.place)
    return app


app = _made()
