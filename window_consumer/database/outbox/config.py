"""The section ``outbox``: the table whose rows become records, and the relay's settings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final, Literal

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import about
from window_consumer.config.problems import Problem

_DAY_S: Final = 86_400.0
_URL: Final = r"[a-z0-9]+([+][a-z0-9]+)?://.+"
_TABLE: Final = r"[A-Za-z_][A-Za-z0-9_]{0,62}([.][A-Za-z_][A-Za-z0-9_]{0,62})?"
_LONGEST_KEEP_S: Final = 3650 * _DAY_S


def _wrong_url(text: str) -> str | None:
    return None if re.fullmatch(_URL, text) else "is not a database URL"


def _wrong_table(text: str) -> str | None:
    return None if re.fullmatch(_TABLE, text) else "is not a table name"


@frozen(kw_only=True)
class OutboxConfig:
    """The outbox: rows that transactions write, and that a relay sends to Kafka."""

    database: str | None = field(
        default=None,
        metadata=about(
            "The database with the table: an SQLAlchemy URL with a synchronous driver, such as"
            " postgresql+psycopg://shop@db/shop, or django://ALIAS for one of Django's DATABASES."
            " It is a secret and printed as `***`.",
            kind=kinds.text("a database URL such as sqlite:////var/lib/shop.db", _wrong_url),
            default="none: without it no relay runs",
            secret=True,
        ),
    )
    table: str = field(
        default="wc_outbox",
        metadata=about(
            "The table, with its schema if it has one: events.wc_outbox. It must be the table of"
            " Outbox() in the application.",
            kind=kinds.text("a table's name", _wrong_table),
            reason="the default name in Outbox()",
        ),
    )
    poll: float = field(
        default=0.2,
        metadata=about(
            "How often the relay looks for rows. Commits of its own process wake it at once.",
            kind=kinds.duration(0.01, 60.0),
            reason="one cheap query five times a second, and no record waits longer",
        ),
    )
    batch: int = field(
        default=2_000,
        metadata=about(
            "The most rows that are sent and marked in one transaction; fewer if they are large.",
            kind=kinds.whole_number(1, 10_000),
            reason="a commit costs little for that many rows, and a crash repeats few",
        ),
    )
    shards: int = field(
        default=64,
        metadata=about(
            "The number of shards in Outbox(). If existing rows have another number, the start"
            " fails with exit code 2. Up to four relays share them; others stand by.",
            kind=kinds.whole_number(1, 1024),
            reason="enough for four relays, and few enough to check each",
        ),
    )
    keep: float = field(
        default=0.0,
        metadata=about(
            "How long rows stay after Kafka has acknowledged them; 0 deletes them at once.",
            kind=kinds.duration(0.0, _LONGEST_KEEP_S),
            reason="the records are in Kafka, and a small table stays fast",
        ),
    )
    notify: bool = field(
        default=False,
        metadata=about(
            "Whether commits of other processes wake the relay, by PostgreSQL's NOTIFY, if their "
            "Outbox() has notify=True. Without it the relay polls. Not with SQLite; behind "
            "PgBouncer only with session pooling.",
            kind=kinds.boolean(),
            reason="it needs another connection, and commits that notify wait for each other",
        ),
    )
    on_refused: Literal["block", "skip"] = field(
        default="block",
        metadata=about(
            "What happens to a row that Kafka refuses for good (too large, no such topic, no"
            " permission). block: it is retried every minute, and later rows of its key wait."
            " skip: it is marked as failed, and later rows of its key are sent.",
            kind=kinds.choice("block", "skip"),
            reason="keeps each key's order; `outbox list --failed` names what waits",
        ),
    )
    relay: bool = field(
        default=True,
        metadata=about(
            "Whether `window-consumer run` also relays, in a separate thread. If not, run"
            " `window-consumer outbox run`.",
            kind=kinds.boolean(),
            reason="works without another process",
        ),
    )


def conflicts(outbox: OutboxConfig, given: Collection[str]) -> Iterator[Problem]:
    """Yield a missing key."""
    if given and outbox.database is None:
        yield Problem(("database",), "is missing: the URL of the database with the table")
