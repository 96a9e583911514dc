"""The locks of fences: calls share them while they write; raising a fence is exclusive.

In PostgreSQL it is an advisory lock, because these are granted in request order: with row locks,
overlapping shared holders would keep the raiser waiting for ever. It ends with the transaction, so
PgBouncer may reassign the connection afterwards. Its number is a hash. Two fences with the same
number only wait for each other needlessly, as the row itself is read and locked, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

import sqlalchemy as sa
from attrs import frozen


class FencePlace(NamedTuple):
    """The key of a fence."""

    group_name: str
    topic: str
    partition: int


class Backend(NamedTuple):
    """A PostgreSQL transaction as other connections see it."""

    pid: int
    began_at: datetime


class FenceSeen(NamedTuple):
    """A fence that cannot be raised until the transaction ends."""

    fence: int
    backend: Backend | None
    """None if no other connection can end the transaction."""


class LockHolder(NamedTuple):
    """A transaction that others wait for."""

    pid: int
    application: str
    client: str
    state: str
    seconds: float

    def __str__(self) -> str:
        whose = f"{self.application or 'no application_name'}, {self.client or 'local'}"
        return f"backend {self.pid} ({whose}), {self.state} for {self.seconds:.0f} s"


@frozen
class FenceLimits:
    """Limits of a call's transaction, in seconds."""

    lock_timeout_s: float
    idle_s: float
    """How long it may be idle between statements."""


class FenceLocks(Protocol):
    """The locks of a supported database."""

    def share(
        self, connection: sa.Connection, table: sa.Table, place: FencePlace, limits: FenceLimits
    ) -> FenceSeen | None:
        """Read a fence and keep it from changing until the transaction ends; None without a row."""

    def take(self, connection: sa.Connection, table: sa.Table, place: FencePlace) -> None:
        """Wait for the transactions that share a fence; later transactions queue behind."""

    def holders(
        self, connection: sa.Connection, table: sa.Table, place: FencePlace
    ) -> Sequence[LockHolder]:
        """Return the transactions with a fence's lock, the oldest first."""

    def end(self, connection: sa.Connection, backend: Backend) -> bool:
        """End another connection's transaction; return False if it is already over."""


@frozen
class PostgresFenceLocks:
    """PostgreSQL 13 and later."""

    def share(
        self, connection: sa.Connection, table: sa.Table, place: FencePlace, limits: FenceLimits
    ) -> FenceSeen | None:
        """See FenceLocks."""
        name = connection.dialect.identifier_preparer.format_table(table)
        bound = {
            **place._asdict(),
            "key": _key(table, place),
            "lock_ms": str(max(1, round(limits.lock_timeout_s * 1000))),
            "idle_ms": str(round(limits.idle_s * 1000)),
        }
        found = connection.execute(
            sa.text(_SHARE.format(table=name.replace(":", "\\:"))), bound
        ).one_or_none()
        if found is None:
            return None
        return FenceSeen(found.fence, Backend(found.pid, found.began_at))

    def take(self, connection: sa.Connection, table: sa.Table, place: FencePlace) -> None:
        """See FenceLocks."""
        connection.execute(_TAKE, {"key": _key(table, place)})

    def holders(
        self, connection: sa.Connection, table: sa.Table, place: FencePlace
    ) -> Sequence[LockHolder]:
        """See FenceLocks."""
        key = _key(table, place)
        halves = {"high": key >> 32 & 0xFFFFFFFF, "low": key & 0xFFFFFFFF}
        return [LockHolder(*each) for each in connection.execute(_HOLDERS, halves)]

    def end(self, connection: sa.Connection, backend: Backend) -> bool:
        """See FenceLocks.

        The connection may have begun another transaction since, even for another client, so the
        start time is compared.
        """
        return bool(connection.scalar(_END, backend._asdict()))


# Respects a timeout for idle transactions that the database's owner has set.
_SHARE: Final = """\
WITH bound AS MATERIALIZED (
  SELECT current_setting('lock_timeout') AS before,
    set_config('lock_timeout', :lock_ms, true) AS now,
    CASE current_setting('idle_in_transaction_session_timeout')
      WHEN '0' THEN set_config('idle_in_transaction_session_timeout', :idle_ms, true) END AS idle
), locked AS MATERIALIZED (
  SELECT pg_advisory_xact_lock_shared(CAST(:key AS bigint)) IS NULL AS done, before
  FROM bound WHERE now IS NOT NULL
)
SELECT f.fence, pg_backend_pid() AS pid, now() AS began_at,
  set_config('lock_timeout', locked.before, true)
FROM {table} AS f, locked
WHERE f.group_name = :group_name AND f.topic = :topic AND f.partition = :partition
FOR SHARE OF f"""

_TAKE: Final = sa.text("SELECT pg_advisory_xact_lock(CAST(:key AS bigint))")

_HOLDERS: Final = sa.text("""\
SELECT a.pid, coalesce(a.application_name, ''), coalesce(host(a.client_addr), ''),
  coalesce(a.state, 'unknown'), coalesce(EXTRACT(epoch FROM now() - a.xact_start), 0)
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = CAST(CAST(:high AS bigint) AS oid) AND l.objid = CAST(CAST(:low AS bigint) AS oid)
ORDER BY a.xact_start""")

_END: Final = sa.text("""\
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = :pid AND xact_start = CAST(:began_at AS timestamptz)""")


@frozen
class SqliteFenceLocks:
    """SQLite, which serializes writing transactions, so they need no lock."""

    def share(
        self,
        connection: sa.Connection,
        table: sa.Table,
        place: FencePlace,
        limits: FenceLimits,  # noqa: ARG002 - it has the write lock already
    ) -> FenceSeen | None:
        """See FenceLocks."""
        statement = sa.select(table.c.fence).where(*is_at(table, place))
        fence: int | None = connection.scalar(statement)
        return None if fence is None else FenceSeen(fence, None)

    def take(self, connection: sa.Connection, table: sa.Table, place: FencePlace) -> None:
        """See FenceLocks: the statement that raises it waits."""

    def holders(
        self,
        connection: sa.Connection,  # noqa: ARG002 - SQLite does not report holders
        table: sa.Table,  # noqa: ARG002 - likewise
        place: FencePlace,  # noqa: ARG002 - likewise
    ) -> Sequence[LockHolder]:
        """See FenceLocks."""
        return ()

    def end(self, connection: sa.Connection, backend: Backend) -> bool:  # noqa: ARG002 - it cannot
        """See FenceLocks."""
        return False


_LOCKS: Final[Mapping[str, FenceLocks]] = {
    "postgresql": PostgresFenceLocks(),
    "sqlite": SqliteFenceLocks(),
}


def locks_of(connection: sa.Connection) -> FenceLocks:
    """Return the locks of a connection's database."""
    return _LOCKS[connection.dialect.name]


def is_at(table: sa.Table, place: FencePlace) -> list[sa.ColumnElement[bool]]:
    """Return the condition that a row is this fence."""
    return [table.c[name] == value for name, value in place._asdict().items()]


def _key(table: sa.Table, place: FencePlace) -> int:
    about: tuple[Any, ...] = ("window-consumer fence", table.fullname, *place)
    digest = hashlib.blake2b(repr(about).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
