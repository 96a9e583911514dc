"""The layers between a slot and the handlers: who is called, and who is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.support import Note
from tests.golden_texts import Golden
from tests.runtime.test_thread_pool import a_slice
from window_consumer.engine.turn import Leave
from window_consumer.model.errors import Expired, Skip, Unroutable
from window_consumer.model.log_events import LogEvent, Warn
from window_consumer.model.record import Call, Record
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.expiry import ExpiryLayer, ExpiryRules, ExpiryTurns, TtlHeader
from window_consumer.runtime.calls.layer import CallForm, CallSite, CallTools
from window_consumer.runtime.calls.record_calls import call_each
from window_consumer.runtime.calls.routing import Otherwise, Route, routed
from window_consumer.runtime.calls.steps import Called
from window_consumer.runtime.context import Slot
from window_consumer.runtime.error_report import ErrorReports

WRITTEN_MS = 1_700_000_000_000
"""The timestamp of a Note."""


def a_record(offset: int = 0, **fields: Any) -> Record:
    return Record.of(Note(offset, **fields), Call())


def unexpected(event: LogEvent, text: str) -> None:
    pytest.fail(f"{event}: {text}")


def in_time(
    handler: Called, rules: ExpiryRules, now_ms: Callable[[], int], warn: Warn = unexpected
) -> Called:
    tools = CallTools(lambda topic: topic.startswith("g."), now_ms, warn)
    return ExpiryLayer(rules).wrap(handler, CallSite(CallForm(), tools))


def routes(seen: list[tuple[str, int]], otherwise: Otherwise = "dead_letter") -> Called:
    def handler(name: str) -> Called:
        return lambda record: seen.append((name, record.offset))

    return routed(
        [
            Route("even", handler("even"), lambda record: record.offset % 2 == 0),
            Route("small", handler("small"), lambda record: record.offset < 4),
        ],
        otherwise,
        CallForm(),
    )


def test_the_first_handler_whose_condition_holds_is_called() -> None:
    seen: list[tuple[str, int]] = []
    handler = routes(seen)
    for offset in range(5):
        handler(a_record(offset))
    assert seen == [("even", 0), ("small", 1), ("even", 2), ("small", 3), ("even", 4)]


def test_a_handler_without_a_condition_takes_every_record_that_is_left() -> None:
    seen: list[str] = []
    handler = routed(
        [
            Route("even", lambda _: seen.append("even"), lambda record: record.offset % 2 == 0),
            Route("rest", lambda _: seen.append("rest"), None),
        ],
        "stop",
        CallForm(),
    )
    for offset in range(3):
        handler(a_record(offset))
    assert seen == ["even", "rest", "even"]


def test_one_handler_for_everything_has_no_layers() -> None:
    def handler(_record: Record) -> None: ...

    assert routed([Route("all", handler, None)], "stop", CallForm()) is handler
    assert in_time(handler, ExpiryRules(), lambda: 0) is handler


@pytest.mark.parametrize("otherwise", ["dead_letter", "stop"])
def test_a_record_that_is_for_nobody_leaves_as_the_worker_says(
    otherwise: Otherwise, golden: Golden
) -> None:
    with golden.raises(Unroutable) as raised:
        routes([], otherwise)(a_record(5))
    assert raised.value.end == otherwise


def test_a_record_that_is_for_nobody_may_be_skipped() -> None:
    with pytest.raises(Skip):
        routes([], "skip")(a_record(5))


def test_a_failure_names_its_handler_and_one_without_a_call_names_none() -> None:
    def broken(_record: Record) -> None:
        raise ValueError("broken")

    def undecided(record: Record) -> bool:
        if record.offset == 1:
            raise KeyError
        return record.offset == 2

    handler = routed(
        [
            Route("first", broken, lambda record: record.offset == 0),
            Route("second", broken, undecided),
        ],
        "dead_letter",
        CallForm(),
    )
    slice_ = a_slice(4)
    call_each(slice_, Caller(handler, ErrorReports().failure), Slot())
    found = [
        (message.offset(), failure.handler, failure.fault.error_class)
        for message, failure in slice_.deviate().failed
    ]
    assert found == [
        (0, "first", "ValueError"),
        (1, "second", "KeyError"),
        (2, "second", "ValueError"),
        (3, "", "window_consumer.model.errors.Unroutable"),
    ]


def test_an_expired_record_does_not_bear_the_name_of_the_handler_before_it() -> None:
    def broken(_record: Record) -> None:
        raise ValueError("broken")

    handler = routed([Route("even", broken, lambda _: True)], "dead_letter", CallForm())
    header = TtlHeader("ttl", 1.0, "text")
    limited = in_time(handler, ExpiryRules(header=header), lambda: 2 * WRITTEN_MS)
    slice_ = a_slice(1)
    slice_.messages += [Note(1, headers=[("ttl", b"1")])]
    call_each(slice_, Caller(limited, ErrorReports().failure), Slot())
    assert [failure.handler for _, failure in slice_.deviate().failed] == ["even", ""]


def test_the_layers_are_no_part_of_a_failures_stack_or_fingerprint() -> None:
    def broken(_record: Record) -> None:
        raise ValueError("broken")

    def failure_of(handler: Called) -> Any:
        slice_ = a_slice(1)
        call_each(slice_, Caller(handler, ErrorReports().failure), Slot())
        ((_, failure),) = slice_.deviate().failed
        return failure.fault

    plain = failure_of(broken)
    layered = failure_of(
        in_time(
            routed([Route("broken", broken, lambda _: True)], "stop", CallForm()),
            ExpiryRules(ttl_s=1.0),
            lambda: WRITTEN_MS,
        )
    )
    assert (layered.stack, layered.fingerprint) == (plain.stack, plain.fingerprint)


class Limited:
    """A handler with a time to live around it, and a clock that is set by hand."""

    def __init__(self, rules: ExpiryRules):
        self.called: list[Record] = []
        self.warnings: list[tuple[LogEvent, str]] = []
        self.now_ms = WRITTEN_MS
        self.handler = in_time(
            self.called.append,
            rules,
            lambda: self.now_ms,
            lambda *warning: self.warnings.append(warning),
        )

    def call(self, after_s: float, **fields: Any) -> bool:
        """Return whether the handler was called."""
        self.now_ms = WRITTEN_MS + round(after_s * 1000)
        try:
            self.handler(a_record(**fields))
        except Expired:
            return False
        return True


def test_a_record_expires_right_before_a_call_and_not_before() -> None:
    limited = Limited(ExpiryRules(ttl_s=30.0))
    assert limited.call(35.0)
    assert not limited.call(35.1)
    assert len(limited.called) == 1


def test_records_that_have_expired_leave_at_their_turn_with_the_same_failure() -> None:
    header = TtlHeader("ttl", 1.0, "text")
    rules, now_ms = ExpiryRules(header=header, on_expired="drop"), WRITTEN_MS + 60_000
    tools = CallTools(lambda topic: topic.startswith("g."), lambda: now_ms, unexpected)
    old, malformed, young = (
        Note(at, headers=[("ttl", ttl)]) for at, ttl in enumerate((b"3", b"", b"99"))
    )
    slice_ = a_slice(0)
    given = slice_.partition, [old, malformed, young, old]
    found = ExpiryTurns(rules, tools).turns(*given, 0.0, 0.0)
    assert list(found) == [0, 3]
    assert ExpiryTurns(rules, tools).turns(slice_.partition, [young, old], 0.0, 0.0) == {}
    limited = ExpiryLayer(rules).wrap(pytest.fail, CallSite(CallForm(), tools))
    slice_.messages += [old]
    call_each(slice_, Caller(limited, ErrorReports().failure), Slot())
    ((_, failure),) = slice_.deviate().failed
    turn = found[0]
    assert isinstance(turn, Leave)
    assert turn.failure.fault == failure.fault
    assert turn.failure.handler == failure.handler == ""
    assert isinstance(turn.failure.error, Expired)
    assert turn.failure.error.end == "drop"


def test_what_an_expired_record_says_and_where_it_goes(golden: Golden) -> None:
    limited = Limited(ExpiryRules(ttl_s=30.0, on_expired="drop"))
    limited.now_ms += 60_000
    with golden.raises(Expired) as raised:
        limited.handler(a_record())
    assert raised.value.end == "drop"


def test_a_header_gives_each_record_its_own_time_to_live() -> None:
    limited = Limited(ExpiryRules(header=TtlHeader("ttl", 1.0, "text")))
    assert limited.call(20.0, headers=[("ttl", b"20")])
    assert not limited.call(20.0, headers=[("ttl", b"10")])
    assert not limited.call(20.0, headers=[("ttl", b"90"), ("ttl", b"10")]), "the last one counts"
    assert limited.call(1e9, headers=[])
    assert limited.call(1e9, headers=[("ttl", None)])
    assert limited.warnings == []


def test_a_malformed_header_expires_nothing_and_is_reported_once(golden: Golden) -> None:
    limited = Limited(ExpiryRules(header=TtlHeader("ttl", 1.0, "int64be")))
    assert limited.call(1e9, offset=7, headers=[("ttl", b"soon")])
    assert limited.call(1e9, headers=[("ttl", b"later")])
    ((event, warning),) = limited.warnings
    assert event == LogEvent.TTL_IGNORED
    golden(warning)
    assert "int64be: b'soon'" in warning


def test_a_copy_is_as_old_as_its_first_delivery() -> None:
    limited = Limited(ExpiryRules(ttl_s=30.0))
    old = [("wc-orig-timestamp", b"%d" % (WRITTEN_MS - 3_600_000))]
    assert not limited.call(0.0, topic="g.orders.retry.1h", headers=old)
    assert limited.call(0.0, topic="orders", headers=old), "counts only on our own ladder"
    assert limited.call(1e9, topic="g.orders.retry.1h", headers=[]), "there was no time at first"
