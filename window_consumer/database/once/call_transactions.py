"""The transaction of a call with ``once``: the ids, the handler's changes, and its results.

An error that does not lie in the record, such as a lost connection, gives the call back.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from attrs import field, frozen
from sqlalchemy.exc import DBAPIError

from window_consumer.database.dialects.dialect import (
    EffectKey,
    EffectOwner,
    is_lock_timeout,
    is_retryable,
)
from window_consumer.database.once.abandoned import OpenTransactions
from window_consumer.database.once.fence import FencedOut, Fences
from window_consumer.database.once.once_ids import IdHeldError
from window_consumer.database.once.once_locks import OnceWaits
from window_consumer.database.once.outage import (
    CallStage,
    DatabaseOutage,
    LostCalls,
    begin,
    outage_of,
)
from window_consumer.database.once.session import EffectSession
from window_consumer.database.once.tables import OnceTables
from window_consumer.database.once.transactions import EffectTransaction, EffectTransactions
from window_consumer.database.outbox.table import ADDED, Outbox
from window_consumer.model.errors import CallAgain, UsageError
from window_consumer.model.produce import Produce, results_of
from window_consumer.model.record import Effects, Record
from window_consumer.runtime.calls.steps import Called, Steps

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py

AGAIN_S: Final = 1.0
"""Delay before the retry of a call whose id another call holds."""
CONFLICT_S: Final = 0.05
"""Delay before a retry after a deadlock or serialization failure: by then the other transaction is
over."""

NO_OUTBOX: Final = (
    "the handler has once= and returns records, but its Once() has no outbox: the database would"
    " record it as done before Kafka acknowledges its results, and a crash in between would lose"
    " them; write Once(engine, outbox=Outbox(metadata)), or return nothing"
)

NOTHING_NEW: Final = object()
"""What ``CallTransactions.call`` returns where no id was new, so nothing was called."""
_RESULTS: Final = uuid.UUID("6f5b1c86-3f0f-5b0e-9a55-8b1d0a3c7e11")

Keyed = tuple[Record, EffectKey]


@frozen(kw_only=True)
class OnceRules:
    """The values of ``Once()`` and the configuration for one worker."""

    owner: EffectOwner
    lock_timeout_s: float
    stall_s: float
    """How long calls of a record may have no effect before they count as attempts."""
    outbox: Outbox | None


@frozen
class OnceShared:
    """The shared state of all calls of one ``Once`` in a process."""

    open_transactions: OpenTransactions = field(factory=OpenTransactions)
    outage: DatabaseOutage = field(factory=DatabaseOutage)


class CallTransactions:
    """Calls one handler in transactions. Any slot may use it."""

    def __init__(
        self,
        handler: Called,
        transactions: EffectTransactions,
        tables: OnceTables,
        rules: OnceRules,
        fences: Fences | None,
        shared: OnceShared,
    ):
        self._handler = handler
        self._transactions = transactions
        self._tables = tables
        self._rules = rules
        self._fences = fences
        self._open = shared.open_transactions
        self._outage = shared.outage
        # SQLite's lock belongs to the whole database, so it says nothing about a record.
        has_lock_per_id = transactions.writers is None
        self._waits = OnceWaits(rules.owner.worker, rules.stall_s, counts=has_lock_per_id)
        self._lost = LostCalls()

    def call(self, keyed: Sequence[Keyed], choose: Callable[[list[Record]], Any]) -> Steps:
        """Call the handler in a transaction, with the result of ``choose`` for the new records."""
        self._outage.enter()
        transaction = self._transactions.open()
        records, keys = [record for record, _ in keyed], [key for _, key in keyed]
        call = records[0]._call  # noqa: SLF001 - the layers belong to the slots' loop
        began, stage = time.monotonic(), CallStage.ENTRY
        known = ExitStack()  # the watching thread's view of the running call
        try:
            fence = None
            if self._fences is not None:
                fence = yield from self._enter(self._fences, transaction, records[0])
            new = yield from self._insert(transaction, keyed, known)
            self._outage.over()
            if fence is not None and self._fences is not None:
                backend = yield partial(transaction.run, self._fences.check, records[0], fence)
                if backend is not None:
                    known.callback(self._open.remove, self._open.add(records[0], backend))
            fresh = _first_with(records, keys, new)
            returned: object = NOTHING_NEW
            if fresh:
                call.effects = Effects(transaction.session, fence)
                added: list[Produce] = []
                if call.on_stored is not None:
                    transaction.info[ADDED] = added
                stage = CallStage.HANDLER
                returned = yield partial(self._handler, choose(fresh))
                stage = CallStage.COMMIT
                yield partial(transaction.run, self._commit, returned, keys, new)
                if call.on_stored is not None:
                    call.on_stored(fresh, [*added, *results_of(returned)])
        except GeneratorExit:
            raise  # the remaining steps were dropped; the pool resets the connection
        except BaseException as error:
            call.effects = None
            lost = yield from _end_failed(transaction, error, stage)
            again = self._again(error, records, began, stage, outage_of(error, stage, lost=lost))
            if again is not None:
                raise again from error
            raise
        finally:
            known.close()
        self._waits.over(records)
        self._lost.over(records)
        call.effects = None
        yield partial(_end, transaction)
        return returned

    def _insert(
        self, transaction: EffectTransaction, keyed: Sequence[Keyed], known: ExitStack
    ) -> Generator[Any, Any, set[EffectKey]]:
        """Begin the transaction and insert the ids; return those that are new."""
        keys = [key for _, key in keyed]
        writers = self._transactions.writers
        if writers is None:
            fresh: set[EffectKey] = yield partial(transaction.run, self._begin, keys)
            return fresh
        record, key = keyed[0]
        turn = writers.wait(self._rules.owner.worker, record, key.record_id)
        known.callback(writers.over, turn)
        new: set[EffectKey] = yield partial(transaction.run, self._begin, keys)
        turn.take()
        return new

    def _enter(
        self, fences: Fences, transaction: EffectTransaction, record: Record
    ) -> Generator[Any, Any, int]:
        """Raise the fence if it is due, in transactions before the call's own."""
        apart = self._transactions.apart()
        if apart is None:
            fence: int = yield partial(transaction.run, fences.enter, record)
            return fence
        try:
            fence = yield partial(apart.run, fences.enter, record)
        except GeneratorExit:
            raise  # likewise
        except BaseException:
            yield partial(_end, apart)
            raise
        yield partial(_end, apart)
        return fence

    def _again(
        self,
        error: BaseException,
        records: Sequence[Record],
        began: float,
        stage: CallStage,
        why: str | None,
    ) -> CallAgain | None:
        """Return the error to raise instead; None if the call counts as an attempt.

        ``why`` is the reason if the database is unavailable.
        """
        again = _again(error, is_ours=stage is not CallStage.HANDLER)
        if again is None and why is not None:
            if stage is CallStage.ENTRY or self._lost.is_first(records):
                return self._outage.met(why, began)
        else:
            self._lost.over(records)
            if isinstance(error, Exception):  # a cancelled call may have met the outage
                self._outage.over()
        if again is None:
            self._waits.over(records)
        elif not isinstance(error, FencedOut):
            return self._waits.refuse(records, began, again)
        return again

    def _begin(self, session: EffectSession, keys: Sequence[EffectKey]) -> set[EffectKey]:
        rules = self._rules
        try:
            begin(session)
            return self._tables.insert(session, rules.owner, keys, rules.lock_timeout_s)
        except DBAPIError as error:
            if not is_lock_timeout(error):
                raise
            writers = self._transactions.writers
            reason = "another call with the same id did not end"
            if writers is not None:
                reason = f"{writers.holder()}: no lock"
            raise IdHeldError(f"{reason} within {rules.lock_timeout_s:g} s") from error

    def _commit(
        self,
        session: EffectSession,
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
            # The table may still hold results of a call whose id was deleted.
            session.store(outbox, outbox.rows(results, ids))
        session.commit_effects()

    def _ids_of(self, results: Sequence[Produce], keys: Sequence[EffectKey]) -> list[uuid.UUID]:
        """Return deterministic ids: the same for each call with the same records."""
        about = "\n".join([*self._rules.owner, *("\n".join(key) for key in keys)])
        return [uuid.uuid5(_RESULTS, f"{about}\n{index}") for index in range(len(results))]


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


def _end(transaction: EffectTransaction) -> Any:
    return transaction.run(lambda effects: effects.end())


def _end_failed(
    transaction: EffectTransaction, error: BaseException, stage: CallStage
) -> Generator[Any, Any, bool]:
    """End the transaction of a failed call; return whether its connection was lost."""
    lost = transaction.lost
    try:
        if outage_of(error, stage, lost=lost) is not None:
            yield partial(transaction.run, lambda effects: effects.discard())
        yield partial(_end, transaction)
    except GeneratorExit:
        raise  # the remaining steps were dropped
    except Exception:
        # A server announces the end of a connection in a response; the loss shows only now.
        return True
    return lost


def _again(error: BaseException, *, is_ours: bool) -> CallAgain | None:
    """Return the error to raise if the record did not cause this one; otherwise None.

    ``is_ours`` if our own statement failed: a lock timeout in the handler is the handler's failure.
    """
    if isinstance(error, FencedOut | IdHeldError):
        return CallAgain(AGAIN_S, str(error))
    if is_retryable(error) and (is_ours or not is_lock_timeout(error)):
        return CallAgain(CONFLICT_S, "the database aborted the transaction in favor of another")
    return None
