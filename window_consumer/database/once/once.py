"""``Once``: a handler's database changes happen once per record."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final, get_type_hints

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.ext.asyncio import AsyncEngine

from window_consumer.config import WorkerConfig
from window_consumer.config.units import parse_duration
from window_consumer.database.dialects import dialect_of
from window_consumer.database.dialects.dialect import EffectOwner
from window_consumer.database.once.abandoned import OpenTransactions
from window_consumer.database.once.call_transactions import (
    NO_OUTBOX,
    CallTransactions,
    OnceRules,
    OnceShared,
)
from window_consumer.database.once.calls import OnceCalls
from window_consumer.database.once.config import OnceConfig
from window_consumer.database.once.fence import BEYOND_STALL_S, FenceOwner, Fences, RaisedFences
from window_consumer.database.once.fence_locks import FenceLimits
from window_consumer.database.once.loop_engine import LoopEngines
from window_consumer.database.once.once_ids import BusinessId
from window_consumer.database.once.tables import OnceTables
from window_consumer.database.once.transactions import (
    EffectTransactions,
    Engine,
    SessionFactory,
    SessionTransactions,
)
from window_consumer.database.once.writer import WriterTurns
from window_consumer.database.outbox.table import Outbox
from window_consumer.model.errors import UsageError
from window_consumer.runtime.calls.layer import CallForm, CallSite, LayerPlace
from window_consumer.runtime.calls.steps import Called

Duration = str | float
DEFAULT_KEEP: Final = "15d"
"""The 14 days of dead letters (topics.dlq_retention), and a day for the ladder before them."""
_KEEPALIVES: Final = {
    "tcp_keepalives_idle": 30,
    "tcp_keepalives_interval": 10,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""PostgreSQL ends the transaction of a vanished host after 60 s. The first three, in seconds, are
for idle connections; the last, in ms, is for unacknowledged responses, which TCP would otherwise
retransmit for a quarter of an hour."""
_LIBPQ: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_GIVES_UP: Final[Mapping[str, Mapping[str, int]]] = {
    "psycopg": _LIBPQ,
    "psycopg2": _LIBPQ,
    "asyncpg": {"timeout": 10},
}
"""The same for the client, by driver: if connections to a silently vanished host end within
``stall.after`` (30 s), that is an outage and not a stalled call. Units as above."""


@frozen
class OnceValues:
    """The effective values for one worker."""

    keep_s: float
    lock_timeout_s: float
    fenced: bool


class Once:
    """Runs each call of a handler in one transaction that first inserts the record's id.

    Per worker and id, the changes of exactly one call are committed, whatever crashes, as long as a
    redelivery comes within ``keep``. ``engine`` is an SQLAlchemy Engine, for coroutines an
    AsyncEngine; or a function that returns one, which workers with child processes need. A second
    call with an id waits for the first, at most ``lock_timeout``. ``by`` returns the id of a record
    in place of ``record.id``. ``fenced`` keeps members that were removed from the group from
    writing. The tables are in ``metadata``, with its schema and naming convention, or by default in
    their own MetaData: ``once.tables.metadata.create_all(engine)``. ``session`` creates the
    sessions of handlers: it returns a new one, a scoped one, or a context manager around one.
    """

    def __init__(  # noqa: PLR0913 - the table and its rules
        self,
        engine: Engine | Callable[[], Engine],
        outbox: Outbox | None = None,
        keep: Duration = DEFAULT_KEEP,
        lock_timeout: Duration = "2s",
        by: BusinessId | None = None,
        *,
        fenced: bool = False,
        table: str = "wc_once",
        metadata: sa.MetaData | None = None,
        session: SessionFactory | None = None,
    ):
        self._given = engine
        self._made: tuple[int, Engine] | None = None
        self.loop_engines = LoopEngines()
        self.outbox = outbox
        self.tables = OnceTables(table, metadata)
        self.by = by
        self._session = session
        self._shared = OnceShared()
        self._writers = WriterTurns()
        self._values = OnceValues(_seconds(keep), _seconds(lock_timeout), fenced)
        if not self.is_factory:
            _prepare(engine)  # type: ignore[arg-type] # it is no factory

    @property
    def table(self) -> sa.Table:
        """The table of ids."""
        return self.tables.ids

    @property
    def open_transactions(self) -> OpenTransactions:
        """The transactions that a second connection can end."""
        return self._shared.open_transactions

    @property
    def writers(self) -> WriterTurns | None:
        """The writing calls if only one can write at a time; otherwise None."""
        dialect = dialect_of(self.engine().dialect.name)
        return self._writers if dialect.has_one_writer else None

    @property
    def is_factory(self) -> bool:
        """Whether each process creates its own engine."""
        return not isinstance(self._given, sa.Engine | AsyncEngine)

    def engine(self) -> Engine:
        """Return the engine of this process."""
        if isinstance(self._given, sa.Engine | AsyncEngine):
            return self._given
        if self._made is None or self._made[0] != os.getpid():
            self._made = os.getpid(), _prepare(self._given())
        return self._made[1]

    def engine_of_call(self) -> Engine:
        """Return the engine of this process; for coroutines, that of the running event loop."""
        engine = self.engine()
        return self.loop_engines.of(engine) if isinstance(engine, AsyncEngine) else engine

    def close_loops(self) -> None:
        """Close the connections of all event loops; these have ended."""
        self.loop_engines.close_copies()

    def values_for(self, worker: WorkerConfig) -> OnceValues:
        """Return a worker's values: the configuration overrides those given here."""
        mine, configured = self._values, worker.section(OnceConfig)
        return OnceValues(
            mine.keep_s if configured.keep is None else configured.keep,
            mine.lock_timeout_s if configured.lock_timeout is None else configured.lock_timeout,
            mine.fenced if configured.fenced is None else configured.fenced,
        )

    def keep_s(self, worker: WorkerConfig) -> float:
        """Return how long the database keeps an id, in seconds."""
        return self.values_for(worker).keep_s

    def layer_of(
        self,
        worker: WorkerConfig,
        handlers: Mapping[str, Callable[..., object]],
        shared: dict[Any, Any],
        *,
        has_children: bool,
    ) -> OnceLayer:
        """Return the layer around the handlers of a worker that have this ``once``.

        ``shared`` is the same for all layers of a worker: they share a fence in each database.
        """
        return OnceLayer(self, worker, handlers, shared, has_children)

    def calls_of(self, call: Called, worker: WorkerConfig, raised: RaisedFences) -> OnceCalls:
        """Return the transactions around calls of one handler."""
        values = self.values_for(worker)
        rules = OnceRules(
            owner=EffectOwner(worker.group, worker.name),
            lock_timeout_s=values.lock_timeout_s,
            stall_s=worker.stall.after,
            outbox=self.outbox,
        )
        fences = None
        if values.fenced:
            limits = FenceLimits(values.lock_timeout_s, worker.stall.after + BEYOND_STALL_S)
            whose = FenceOwner(worker.name, worker.group)
            fences = Fences(self.tables, whose, limits, raised)
        transactions = CallTransactions(
            call, self.transactions(), self.tables, rules, fences, self._shared
        )
        return OnceCalls(transactions, self.by)

    def transactions(self) -> EffectTransactions:
        """Return the object that opens the transactions of calls."""
        return SessionTransactions(
            self.engine_of_call, self.engine, self.table, self._session, self.writers
        )

    def refuse(self, worker: WorkerConfig, form: CallForm) -> None:
        """Raise UsageError for handlers that this engine cannot serve."""
        whose, is_async = f"worker {worker.name}: once=", isinstance(self.engine(), AsyncEngine)
        if is_async and not form.coroutines:
            raise UsageError(
                f"{whose}: the handler is a plain function but the engine an AsyncEngine: use"
                " create_engine, or make the handler async def"
            )
        if form.coroutines and not is_async:
            raise UsageError(
                f"{whose}: the handler is a coroutine, and a synchronous engine would block its"
                " event loop: use create_async_engine"
            )


@frozen
class OnceLayer:
    """Makes each call of a handler one transaction."""

    once: Once
    worker: WorkerConfig
    handlers: Mapping[str, Callable[..., object]]
    """The functions by the names of their handlers."""
    shared: dict[Any, Any]
    has_children: bool
    place: LayerPlace = LayerPlace.ONCE
    in_children: None = None

    def refuse(self, form: CallForm) -> None:
        """Raise UsageError for handlers that cannot be called in these transactions."""
        once, whose = self.once, f"worker {self.worker.name}: once="
        if self.has_children and not once.is_factory:
            raise UsageError(
                f"{whose}: the handler runs in child processes, and connections do not survive a"
                " fork: give Once() a function that creates the engine, as in Once(lambda:"
                ' create_engine("..."))'
            )
        if self.has_children and once.values_for(self.worker).fenced:
            raise UsageError(
                f"{whose}: fenced needs one process per partition, and child processes share"
                " partitions: use pool: threads, or leave fenced out"
            )
        if once.outbox is None and any(map(_returns_records, self.handlers.values())):
            raise UsageError(f"{whose}: {NO_OUTBOX}")
        once.refuse(self.worker, form)

    def wrap(self, call: Called, site: CallSite) -> Called:
        """See CallLayer."""
        if site.handler not in self.handlers:
            return call
        raised = self.shared.setdefault(RaisedFences, RaisedFences())
        calls = self.once.calls_of(call, self.worker, raised)
        return site.form.stepped(calls.batch if site.form.batches else calls.one)


def _prepare(engine: Engine) -> Engine:
    """Return the engine; its new connections end soon after this host vanishes."""
    sync = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    dialect = dialect_of(sync.dialect.name)
    if dialect.name == "postgresql" and not sa.event.contains(sync, "connect", keep_alive):
        sa.event.listen(sync, "connect", keep_alive)
        sa.event.listen(sync, "do_connect", _give_up_soon)
    return engine


def _give_up_soon(dialect: sa.Dialect, _record: object, _given: object, named: Any) -> None:
    """Let a driver give up on a vanished host; the application's own values stay."""
    limits = _GIVES_UP.get(dialect.driver, {})
    if "PGCONNECT_TIMEOUT" in os.environ:
        limits = {name: value for name, value in limits.items() if name != "connect_timeout"}
    for name, value in limits.items():
        named.setdefault(name, value)


def keep_alive(connection: Any, _record: object = None) -> None:
    """Name a driver's connection, and let PostgreSQL drop it soon if this host vanishes."""
    cursor = connection.cursor()
    for name, value in _KEEPALIVES.items():
        cursor.execute(f"SET {name} = {value}")
    # Sessions that wait for a lock see this name of its holder.
    whose = f"window-consumer {socket.gethostname()}:{os.getpid()}".replace("'", "")
    cursor.execute(
        f"SELECT set_config('application_name', '{whose}', false)"
        " WHERE current_setting('application_name') = ''"
    )
    cursor.close()
    connection.commit()


def _seconds(duration: Duration) -> float:
    return parse_duration(duration) if isinstance(duration, str) else float(duration)


def _returns_records(function: object) -> bool:
    """Return whether the function is annotated to return records to produce."""
    try:
        returned = get_type_hints(function).get("return")
    except Exception:
        return False
    return "Produce" in str(returned)
