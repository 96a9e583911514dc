"""The layer around handlers with ``once``: each call is one transaction, each id one effect."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from attrs import frozen
from sqlalchemy.exc import DBAPIError

from window_consumer.database.dialects import is_retryable
from window_consumer.database.once.fence import FencedOut, Fences
from window_consumer.database.once.session import (
    EffectTransaction,
    Engine,
    OnceSession,
    transaction_on,
)
from window_consumer.database.once.statements import EffectKey, EffectOwner, is_lock_timeout
from window_consumer.database.once.tables import OnceTables
from window_consumer.database.outbox.table import Outbox
from window_consumer.model.errors import (
    CallAgain,
    Deduplicated,
    Fatal,
    PartialFailure,
    UsageError,
    meant_by,
)
from window_consumer.model.produce import Produce, results_of
from window_consumer.model.record import Effects, Record
from window_consumer.model.record_identity import id_text
from window_consumer.runtime.calls.batch_calls import Failed, SortedResults, failed_of
from window_consumer.runtime.calls.batch_steps import Steps

__handler_layer__ = True  # its frames are no part of a failure, see error_report.py

AGAIN_S: Final = 1.0
"""Until a call comes again whose id another call holds."""
CONFLICT_S: Final = 0.05
"""Until a call comes again that the database gave up for another: by then that one is over."""

Keyed = tuple[Record, EffectKey]
BusinessId = Callable[[Record], object]


@frozen(kw_only=True)
class OnceRules:
    """What ``Once()`` and the configuration say for one worker."""

    owner: EffectOwner
    keep_s: float
    lock_timeout_s: float
    by: BusinessId | None
    outbox: Outbox | None


class OnceCalls:
    """Calls one handler in transactions. Any slot may call it."""

    def __init__(
        self,
        handler: Callable[[Any], Any],
        engine_of: Callable[[], Engine],
        tables: OnceTables,
        rules: OnceRules,
        fences: Fences | None,
    ):
        self._handler = handler
        self._engine_of = engine_of
        self._tables = tables
        self._rules = rules
        self._fences = fences

    def one(self, record: Record) -> Steps:
        """Call the handler for one record."""
        key = self._key(record)
        returned = yield from self._transaction([(record, key)], lambda _fresh: record)
        if returned is _NOTHING_NEW:
            raise Deduplicated(f"the effect of {key.record_id} is in the database")
        return None

    def batch(self, records: list[Record]) -> Steps:
        """Call the handler for those records of a batch whose ids are new.

        If some fail, nothing of the call stays, and the others are called again without them.
        """
        failed: list[Failed] = []
        left = self._keyed(records, failed)
        while left:
            called: list[Record] = []
            try:
                yield from self._transaction(left, partial(_list_of, called))
            except CallAgain as error:
                failed += [(record, error) for record, _ in left]
                break
            except BaseException as error:
                reasons = failed_of(error, called or [record for record, _ in left])
                if not isinstance(meant_by(error), PartialFailure):
                    reasons += _others(left, called, error)
                failed += reasons
                gone = {id(record) for record, _ in reasons}
                left = [each for each in left if id(each[0]) not in gone]
            else:
                failed += _others(left, called, None)
                break
        if failed:
            raise SortedResults(failed)
        return None

    def _transaction(
        self,
        keyed: Sequence[Keyed],
        choose: Callable[[list[Record]], Any],
    ) -> Steps:
        """Call the handler in a transaction, with what ``choose`` makes of the new records."""
        transaction = transaction_on(self._engine_of())
        records, keys = [record for record, _ in keyed], [key for _, key in keyed]
        call = records[0]._call  # noqa: SLF001 - the layers belong to the slots' loop
        try:
            fence = None
            if self._fences is not None:
                fence = yield partial(transaction.run, self._fences.enter, records[0])
            new = yield partial(transaction.run, self._begin, keys)
            if fence is not None and self._fences is not None:
                yield partial(transaction.run, self._fences.check, records[0], fence)
            fresh = _first_with(records, keys, new)
            returned: object = _NOTHING_NEW
            if fresh:
                call.effects = Effects(transaction.session, fence)
                returned = yield partial(self._handler, choose(fresh))
                yield partial(transaction.run, self._commit, returned, keys, new)
        except GeneratorExit:
            raise  # nobody runs the steps any more; the pool resets the connection
        except BaseException as error:
            call.effects = None
            yield partial(_end, transaction)
            again = _again(error)
            if again is not None:
                raise again from error
            raise
        call.effects = None
        yield partial(_end, transaction)
        return returned

    def _begin(self, session: OnceSession, keys: Sequence[EffectKey]) -> set[EffectKey]:
        session.begin_effects()
        rules = self._rules
        return self._tables.insert(session, rules.owner, keys, rules.lock_timeout_s)

    def _commit(
        self,
        session: OnceSession,
        returned: object,
        keys: Sequence[EffectKey],
        new: set[EffectKey],
    ) -> None:
        results = () if returned is None else results_of(returned)
        if results:
            outbox = self._rules.outbox
            if outbox is None:
                raise UsageError(NO_OUTBOX)
            ids = self._ids_of(results, [key for key in keys if key in new])
            outbox.insert(session, outbox.rows(results, ids))
        session.commit_effects()

    def _ids_of(self, results: Sequence[Produce], keys: Sequence[EffectKey]) -> list[uuid.UUID]:
        """Return ids that are the same whenever the same records are called for."""
        about = "\n".join([*self._rules.owner, *("\n".join(key) for key in keys)])
        return [uuid.uuid5(_RESULTS, f"{about}\n{index}") for index in range(len(results))]

    def _keyed(self, records: Sequence[Record], failed: list[Failed]) -> list[Keyed]:
        keyed: list[Keyed] = []
        for record in records:
            try:
                keyed.append((record, self._key(record)))
            except Exception as error:
                failed.append((record, error))
        return keyed

    def _key(self, record: Record) -> EffectKey:
        by = self._rules.by
        record_id = record.id if by is None else _business_id(by(record), record)
        topic = record.origin.topic if record.is_copy else record.topic
        topic_hash = record._call.assignment.topic_hash  # noqa: SLF001 - as above
        return EffectKey(_origin_of(topic, topic_hash), record_id)


NO_OUTBOX: Final = (
    "the handler has once= and returns records, and its Once() has no outbox: the database would"
    " remember the record as done before its results are acknowledged, and a crash in between"
    " would lose them; write Once(engine, outbox=Outbox(metadata)), or return nothing"
)

_NOTHING_NEW: Final = object()
_RESULTS: Final = uuid.UUID("6f5b1c86-3f0f-5b0e-9a55-8b1d0a3c7e11")


@lru_cache(256)
def _origin_of(topic: str, topic_hash: int) -> str:
    return f"{topic}:{topic_hash:016x}"


def _business_id(given: object, record: Record) -> str:
    if given is None or given in {"", b""}:
        raise Fatal(f"once: by= found no id in {record!r}")
    return id_text(given if isinstance(given, bytes) else str(given).encode())


def _first_with(
    records: Sequence[Record], keys: Sequence[EffectKey], new: set[EffectKey]
) -> list[Record]:
    """Return the first record of each new id."""
    left = set(new)
    fresh = []
    for record, key in zip(records, keys, strict=True):
        if key in left:
            left.remove(key)
            fresh.append(record)
    return fresh


def _list_of(called: list[Record], fresh: list[Record]) -> list[Record]:
    """Note the records of a call; return a list for the handler."""
    called[:] = fresh
    return fresh.copy()


def _others(
    left: Sequence[Keyed], called: Sequence[Record], error: BaseException | None
) -> list[Failed]:
    """Return what becomes of records that were not called, as their ids were not new.

    One with the id of another record of the call shares its fate, which is ``error``.
    """
    ids = set(map(id, called))
    keys = {key for record, key in left if id(record) in ids}
    return [
        (record, error if error and key in keys else Deduplicated(f"{key.record_id} is done"))
        for record, key in left
        if id(record) not in ids
    ]


def _end(transaction: EffectTransaction) -> Any:
    return transaction.run(OnceSession.end)


def _again(error: BaseException) -> CallAgain | None:
    """Return what to raise instead of an error that says nothing of the record."""
    if isinstance(error, FencedOut):
        return CallAgain(AGAIN_S, str(error))
    if not isinstance(error, DBAPIError):
        return None
    if is_lock_timeout(error):
        return CallAgain(AGAIN_S, "another call with the same id has not ended yet")
    if is_retryable(error):
        return CallAgain(CONFLICT_S, "the database gave the transaction up for another one")
    return None
