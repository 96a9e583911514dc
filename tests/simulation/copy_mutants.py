"""Ways of making copies with one planted bug each."""

from __future__ import annotations

from window_consumer.engine.retry.copy_record import CopyOrigin, Target, copy_of
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.model import headers as names
from window_consumer.model.protocols import Copy


def appends_headers(
    failed: FailedRecord, origin: CopyOrigin, target: Target, wall_offset_ms: float
) -> Copy:
    """Headers of an earlier hop stay beside those of this one."""
    copy = copy_of(failed, origin, target, wall_offset_ms)
    if not failed.partition.retry_level.is_copy:
        return copy
    before = failed.message.headers() or ()
    ours = [pair for pair in before if pair[0].startswith(names.PREFIX)]
    return copy._replace(headers=[*copy.headers, *ours])


def grows_at_each_hop(
    failed: FailedRecord, origin: CopyOrigin, target: Target, wall_offset_ms: float
) -> Copy:
    """Each header stands once, and the text of the last failure follows those before."""
    copy = copy_of(failed, origin, target, wall_offset_ms)
    before = dict(failed.message.headers() or ()).get(names.HANDLER) or b""
    headers = dict(copy.headers)
    grown = before + (headers.get(names.ERROR_STACK) or b"")
    return copy._replace(headers=[(n, grown if n == names.HANDLER else v) for n, v in copy.headers])


def drops_what_stands_twice(
    failed: FailedRecord, origin: CopyOrigin, target: Target, wall_offset_ms: float
) -> Copy:
    """The user's headers are taken for a mapping."""
    copy = copy_of(failed, origin, target, wall_offset_ms)
    return copy._replace(headers=list(dict(copy.headers).items()))
