"""The layer around handlers with ``once``: each call is one transaction, each id one effect."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from window_consumer.database.dialects.dialect import EffectKey
from window_consumer.database.once.call_transactions import NOTHING_NEW, CallTransactions, Keyed
from window_consumer.database.once.once_ids import BusinessId, key_of
from window_consumer.model.errors import CallAgain, PartialFailure, Skip, meant_by
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Record
from window_consumer.runtime.calls.batch_calls import Failed, SortedResults, failed_of
from window_consumer.runtime.calls.steps import Steps

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py


class Deduplicated(Skip):
    """The database already holds the record's effect."""

    outcome = Outcome.DEDUPLICATED


class OnceCalls:
    """Calls a handler for records whose ids are new. Any slot may call it."""

    def __init__(self, transactions: CallTransactions, by: BusinessId | None):
        self._transactions = transactions
        self._by = by

    def one(self, record: Record) -> Steps:
        """Call the handler for one record."""
        key = key_of(record, self._by)
        returned = yield from self._transactions.call([(record, key)], lambda _fresh: record)
        if returned is NOTHING_NEW:
            raise _duplicate(key)
        return None

    def batch(self, records: list[Record]) -> Steps:
        """Call the handler for those records of a batch whose ids are new.

        If some fail, the call is rolled back, and the handler is called again without them.
        """
        failed: list[Failed] = []
        left = self._keyed(records, failed)
        while left:
            called: list[Record] = []
            try:
                yield from self._transactions.call(left, partial(_list_of, called))
            except CallAgain as error:
                failed += [(record, error) for record, _ in left]
                break
            except BaseException as error:
                reasons = failed_of(error, called or [record for record, _ in left])
                if called and not isinstance(meant_by(error), PartialFailure):
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

    def _keyed(self, records: Sequence[Record], failed: list[Failed]) -> list[Keyed]:
        keyed: list[Keyed] = []
        for record in records:
            try:
                keyed.append((record, key_of(record, self._by)))
            except Exception as error:
                failed.append((record, error))
        return keyed


def _list_of(called: list[Record], fresh: list[Record]) -> list[Record]:
    """Record which records a call is for; return a list for the handler."""
    called[:] = fresh
    return fresh.copy()


def _others(
    left: Sequence[Keyed], called: Sequence[Record], error: BaseException | None
) -> list[Failed]:
    """Return the outcomes of records that were not called because their ids were not new.

    A record with the same id as a called one shares its outcome: ``error``, or a duplicate.
    """
    ids = set(map(id, called))
    keys = {key for record, key in left if id(record) in ids}
    return [
        (record, error if error and key in keys else _duplicate(key))
        for record, key in left
        if id(record) not in ids
    ]


def _duplicate(key: EffectKey) -> Deduplicated:
    return Deduplicated(f"the effect of {key.record_id} is already in the database")
