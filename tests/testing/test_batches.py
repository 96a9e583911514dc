"""Batch handlers of applications: what they get, what becomes of their records."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.app.typed_messages import Attrs
from tests.golden_texts import Golden
from tests.testing.shops import config
from window_consumer import (
    App,
    Fatal,
    PartialFailure,
    Produce,
    Record,
    Skip,
    Undecodable,
    UsageError,
    current_record,
    header,
)
from window_consumer.plan.middleware import BatchHandler
from window_consumer.testing import (
    DEAD_LETTERED,
    DONE,
    EXPIRED,
    RETRYING,
    SKIPPED,
    TestApp,
    make_record,
)

RETRY = {"attempts": 2, "backoff": "1s..1s"}

Store = Callable[[list[Record]], object]


class Shop:
    """An application with one batch handler, which notes what it gets."""

    def __init__(self, store: Store = lambda _records: None, **keys: Any) -> None:
        self.app = App("shop")
        self.calls: list[list[Any]] = []
        self._store = store

        @self.app.batch_handler("clicks", name="store", group="shop", **keys)
        def handle(records: list[Record]) -> None:
            self.calls.append([record.json() for record in records])
            self._store(records)

    def run(self, **worker: Any) -> TestApp:
        return TestApp(self.app, config(store={"retry": RETRY, **worker}), topics={"clicks": 1})


def named(records: Sequence[Record], *values: Any) -> list[Record]:
    return [record for record in records if record.json() in values]


def test_a_batch_handler_gets_lists_no_longer_than_it_wants() -> None:
    shop = Shop(max_records=2)
    with shop.run() as wc_app:
        results = wc_app.send_many("clicks", range(5))
        assert [result.outcome for result in results] == [DONE] * 5
    assert shop.calls == [[0, 1], [2, 3], [4]]


def test_the_file_wins_over_the_decorator() -> None:
    shop = Shop(max_records=2)
    with shop.run(batch={"max_records": 3}) as wc_app:
        wc_app.send_many("clicks", range(5))
    assert shop.calls == [[0, 1, 2], [3, 4]]


def test_a_batch_waits_for_its_least_and_no_longer_than_it_may() -> None:
    shop = Shop(min_records=3, max_wait="500ms")
    with shop.run() as wc_app:
        wc_app.send_many("clicks", [0, 1])
        assert shop.calls == []
        wc_app.advance("490ms")
        assert shop.calls == []
        wc_app.advance("20ms")
        assert shop.calls == [[0, 1]]
        wc_app.send_many("clicks", [2, 3, 4])
    assert shop.calls == [[0, 1], [2, 3, 4]]


def test_whatever_it_raises_holds_for_all_of_its_records() -> None:
    def store(_records: list[Record]) -> None:
        raise ConnectionError("the store is away")

    shop = Shop(store)
    with shop.run() as wc_app:
        results = wc_app.send_many("clicks", range(3))
        assert [result.outcome for result in results] == [RETRYING] * 3
        wc_app.advance("1s")
        assert [result.outcome for result in results] == [DEAD_LETTERED] * 3
        assert {letter.error_class for letter in wc_app.dead_letters} == {"ConnectionError"}
    assert shop.calls == [[0, 1, 2], [0, 1, 2]]


def test_those_that_it_names_failed_and_the_others_are_done() -> None:
    def store(records: list[Record]) -> None:
        bad = named(records, 1, 3)
        if bad:
            raise PartialFailure(failed=bad)

    shop = Shop(store)
    with shop.run() as wc_app:
        results = wc_app.send_many("clicks", range(4))
        assert [result.outcome for result in results] == [DONE, RETRYING, DONE, RETRYING]
        wc_app.advance("1s")
        outcomes = [result.outcome for result in results]
        assert outcomes == [DONE, DEAD_LETTERED, DONE, DEAD_LETTERED]
        letters = wc_app.dead_letters
        assert {letter.error_class for letter in letters} == {
            "window_consumer.model.errors.PartialFailure"
        }
    assert shop.calls == [[0, 1, 2, 3], [1, 3]]


def test_a_group_that_holds_a_partial_failure_is_one() -> None:
    app = App("shop")

    @app.batch_handler("clicks", group="shop")
    async def store(records: list[Record]) -> None:
        async def insert() -> None:
            raise PartialFailure(failed=records[:1])

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(insert())

    with TestApp(app, config(store={"retry": RETRY}), topics={"clicks": 1}) as wc_app:
        results = wc_app.send_many("clicks", ["1", "2"])
        assert [result.outcome for result in results] == [RETRYING, DONE]


def test_each_may_have_failed_of_something_else() -> None:
    def store(records: list[Record]) -> None:
        zero, one, two, *_ = records
        raise PartialFailure(
            failed=[(two, ValueError("two")), (zero, Fatal("zero")), (one, Skip("one"))]
        )

    shop = Shop(store)
    with shop.run() as wc_app:
        results = wc_app.send_many("clicks", range(4))
        assert [result.outcome for result in results] == [DEAD_LETTERED, SKIPPED, RETRYING, DONE]
        assert str(results[2].error) == "two"
        (letter,) = wc_app.dead_letters
        assert (letter.reason, letter.error_message) == ("FATAL", "zero")


def test_without_one_of_their_own_they_failed_of_what_led_to_it() -> None:
    def store(records: list[Record]) -> None:
        raise PartialFailure(failed=records[:1]) from ConnectionError("row 0")

    shop = Shop(store)
    with shop.run(retry={"attempts": 5, "fatal": ["ConnectionError"]}) as wc_app:
        wc_app.send_many("clicks", range(2))
        (letter,) = wc_app.dead_letters
    assert (letter.error_class, letter.error_message) == ("ConnectionError", "row 0")


def test_naming_nothing_means_that_nothing_failed() -> None:
    def store(records: list[Record]) -> None:
        raise PartialFailure(failed=named(records, "none"))

    with Shop(store).run() as wc_app:
        assert {each.outcome for each in wc_app.send_many("clicks", range(3))} == {DONE}


def test_naming_what_is_not_in_the_batch_fails_all_of_it_and_says_so(golden: Golden) -> None:
    strangers: list[Record] = []

    def store(records: list[Record]) -> None:
        if len(strangers) < 2:
            strangers.extend(records)
            return
        raise PartialFailure(failed=[records[0], strangers[0]])

    with Shop(store, max_records=2).run(retry={"attempts": 1}) as wc_app:
        results = wc_app.send_many("clicks", range(4))
        outcomes = [result.outcome for result in results]
        assert outcomes == [DONE, DONE, DEAD_LETTERED, DEAD_LETTERED]
        letter = wc_app.dead_letters[0]
    assert (letter.error_class or "").endswith("NotInBatchError")
    assert "names <Record clicks[0]@0 attempt 1>" in (letter.error_message or "")
    golden(letter.error_message or "")


def test_skip_skips_all_of_a_batch() -> None:
    def store(_records: list[Record]) -> None:
        raise Skip

    with Shop(store).run() as wc_app:
        assert {each.outcome for each in wc_app.send_many("clicks", range(3))} == {SKIPPED}


def test_with_block_later_records_of_the_lane_run_again_with_the_failed_one() -> None:
    def store(records: list[Record]) -> None:
        if records[0].attempt == 1:
            raise PartialFailure(failed=named(records, 1))

    shop = Shop(store, ordering="key")
    with shop.run(retry={**RETRY, "on_failure": "block"}) as wc_app:
        results = wc_app.send_many("clicks", range(6), key=lambda value: "ab"[value % 2])
        assert [result.outcome for result in results] == [DONE, RETRYING] * 3
        wc_app.advance("1s")
        assert [result.outcome for result in results] == [DONE] * 6
    assert shop.calls == [[0, 1, 2, 3, 4, 5], [1, 3, 5]]


def test_expired_records_are_taken_out_before_the_handler_sees_the_list() -> None:
    shop = Shop()
    with shop.run(ttl="10s") as wc_app:
        old = wc_app.send("clicks", 0, timestamp=wc_app.clock.wall_ms() - 60_000, run=False)
        new = wc_app.send("clicks", 1)
        assert (old.outcome, old.attempts) == (EXPIRED, 0)
        assert (new.outcome, new.attempts) == (DONE, 1)
    assert shop.calls == [[1]]


def test_what_expires_while_it_waits_for_its_retry_is_not_called_again() -> None:
    def store(_records: list[Record]) -> None:
        raise ValueError

    shop = Shop(store)
    with shop.run(ttl="10s", retry={"attempts": 2, "backoff": "60s..60s"}) as wc_app:
        results = wc_app.send_many("clicks", range(2))
        wc_app.advance("61s")
        assert [result.outcome for result in results] == [EXPIRED] * 2
    assert len(shop.calls) == 1


class Routed:
    """Two batch handlers that share a worker."""

    def __init__(self) -> None:
        self.app = App("shop")
        self.calls: list[tuple[str, list[int]]] = []
        keys: Any = {"group": "shop", "ordering": "key", "retry": {"on_failure": "overtake"}}

        @self.app.batch_handler("clicks", when=header("kind") == "paid", **keys)
        def paid(records: list[Record]) -> None:
            self.note("paid", records)

        @self.app.batch_handler("clicks", when=header("kind") == "sent", **keys)
        def sent(records: list[Record]) -> None:
            self.note("sent", records)
            if bad := named(records, 3):
                raise PartialFailure(failed=bad)

    def note(self, name: str, records: list[Record]) -> None:
        self.calls.append((name, [record.json() for record in records]))

    def run(self, **worker: Any) -> TestApp:
        shared = {"handler": ["paid", "sent"], "retry": RETRY, **worker}
        return TestApp(self.app, config(store=shared), topics={"clicks": 1})


def send(wc_app: TestApp, kinds: str, keys: str) -> list[Any]:
    sent = [
        wc_app.send(
            "clicks",
            value,
            key,
            headers={"kind": {"p": "paid", "s": "sent"}.get(kind, "?")},
            run=False,
        )
        for value, (kind, key) in enumerate(zip(kinds, keys, strict=True))
    ]
    wc_app.run_until_idle()
    return sent


def test_each_list_holds_the_records_of_one_handler() -> None:
    shop = Routed()
    with shop.run() as wc_app:
        results = send(wc_app, "psp?s", "abcde")
        outcomes = [result.outcome for result in results]
        assert outcomes == [DONE, DONE, DONE, DEAD_LETTERED, DONE]
        (letter,) = wc_app.dead_letters
        assert letter.reason == "UNROUTABLE"
    assert shop.calls == [("paid", [0, 2]), ("sent", [1, 4])]


def test_a_lane_keeps_its_order_across_the_handlers() -> None:
    shop = Routed()
    with shop.run() as wc_app:
        send(wc_app, "pspps", "abaca")
    assert shop.calls == [("paid", [0, 2, 3]), ("sent", [1, 4])]
    shop.calls.clear()
    with shop.run() as wc_app:
        send(wc_app, "psps", "aaab")
    assert shop.calls == [("paid", [0]), ("sent", [1, 3]), ("paid", [2])]


def test_a_lane_waits_for_its_failed_record_across_the_handlers() -> None:
    shop = Routed()
    with shop.run() as wc_app:
        results = send(wc_app, "???sp", "xyzaa")
        assert [result.outcome for result in results[3:]] == [RETRYING, wait_(results[4])]
        wc_app.advance("1s")
        assert [result.outcome for result in results[3:]] == [DEAD_LETTERED, DONE]
        assert wc_app.dead_letters[-1].handler == "sent"
    assert shop.calls == [("sent", [3]), ("sent", [3]), ("paid", [4])]


def wait_(result: Any) -> Any:
    assert result.attempts == 0
    return result.outcome


class Typed:
    """Batch handlers that take values."""

    def __init__(self) -> None:
        self.app = App("shop")
        self.calls: list[Any] = []

        @self.app.batch_handler("clicks", group="shop")
        def store(clicks: list[Attrs]) -> None:
            self.calls.append([click.id for click in clicks])
            if bad := [click for click in clicks if click.customer == "nobody"]:
                raise PartialFailure(failed=bad)

    def run(self) -> TestApp:
        return TestApp(self.app, config(store={"retry": RETRY}), topics={"clicks": 1})


def click(number: int, customer: str = "ada") -> dict[str, Any]:
    return {"id": number, "customer": customer}


def test_what_cannot_be_decoded_leaves_alone_and_the_others_go_on() -> None:
    shop = Typed()
    with shop.run() as wc_app:
        results = wc_app.send_many("clicks", [click(1), {"id": "x"}, click(3)])
        assert [result.outcome for result in results] == [DONE, DEAD_LETTERED, DONE]
        (letter,) = wc_app.dead_letters
        assert letter.reason == "DECODE"
        assert isinstance(results[1].error, Undecodable)
    assert shop.calls == [[1, 3]]


def test_a_decoder_that_could_not_ask_fails_the_batch_and_a_value_only_itself() -> None:
    app = App("shop")
    calls: list[list[bytes]] = []
    up: list[bool] = []

    def decode(value: bytes) -> object:
        if not up:
            raise ConnectionError
        if value == b"2":
            raise Skip
        return value

    @app.batch_handler("clicks", group="shop", value=decode)
    def store(clicks: list[bytes]) -> None:
        calls.append(clicks)

    with TestApp(app, config(store={"retry": RETRY}), topics={"clicks": 1}) as wc_app:
        results = wc_app.send_many("clicks", ["1", "2", "3"])
        assert [result.outcome for result in results] == [RETRYING] * 3
        up.append(True)
        wc_app.advance("1s")
        assert [result.outcome for result in results] == [DONE, SKIPPED, DONE]
    assert calls == [[b"1", b"3"]]


def test_a_handler_of_values_names_those_that_failed() -> None:
    shop = Typed()
    with shop.run() as wc_app:
        results = wc_app.send_many("clicks", [click(1), click(2, "nobody"), click(3), {"id": 0}])
        outcomes = [result.outcome for result in results]
        assert outcomes == [DONE, RETRYING, DONE, DEAD_LETTERED]
        wc_app.advance("1s")
        assert results[1].outcome is DEAD_LETTERED
    assert shop.calls == [[1, 2, 3], [2]]


def test_a_handler_may_take_both_values_and_records() -> None:
    app = App("shop")
    seen: list[Any] = []

    @app.batch_handler("clicks", group="shop", value=int)
    def store(records: list[Record], counts: list[int]) -> None:
        seen.append([(record.offset, count) for record, count in zip(records, counts, strict=True)])
        raise PartialFailure(failed=[records[1]])

    with TestApp(app, config(store={"retry": {"attempts": 1}}), topics={"clicks": 1}) as wc_app:
        results = wc_app.send_many("clicks", [7, 7, 7])
        assert [result.outcome for result in results] == [DONE, DEAD_LETTERED, DONE]
    assert seen == [[(0, 7), (1, 7), (2, 7)]]


def test_naming_a_value_of_several_records_fails_the_batch_and_says_what_to_do() -> None:
    app = App("shop")

    @app.batch_handler("clicks", group="shop", value=int)
    def store(counts: list[int]) -> None:
        raise PartialFailure(failed=[counts[1]])

    with TestApp(app, config(store={"retry": {"attempts": 1}}), topics={"clicks": 1}) as wc_app:
        results = wc_app.send_many("clicks", [7, 7])
        assert [result.outcome for result in results] == [DEAD_LETTERED] * 2
        text = wc_app.dead_letters[0].error_message or ""
    assert re.search(r"\b7, .*\b2 records\b", text)
    assert "list[Record]" in text


def test_middleware_of_batches_sees_the_list() -> None:
    shop = Shop()
    seen: list[Any] = []

    @shop.app.middleware(around="batches")
    def outer(records: list[Record], call_next: BatchHandler) -> object:
        seen.append([record.json() for record in records])
        return call_next(records)

    with shop.run() as wc_app:
        wc_app.send_many("clicks", range(3))
    assert seen == [[0, 1, 2]]


def test_middleware_of_records_alone_is_refused_beside_a_batch_handler() -> None:
    shop = Shop()
    shop.app.middleware(lambda record, call_next: call_next(record))
    with pytest.raises(UsageError, match=r"\bworker store \(store\)"):
        shop.run()


def test_a_worker_runs_handlers_of_one_kind() -> None:
    shop = Shop()

    @shop.app.handler("clicks", name="other", when=header("x") == "y", group="shop")
    def other(record: Record) -> None: ...

    with pytest.raises(UsageError, match=r"\bstore .*\bother\b"):
        TestApp(shop.app, config(store={"handler": ["other", "store"]}), topics={"clicks": 1})


def test_batch_keys_are_refused_for_handlers_of_one_record() -> None:
    app = App("shop")

    @app.handler("clicks", group="shop")
    def store(record: Record) -> None: ...

    with pytest.raises(UsageError, match=r"\bstore\.batch: "):
        TestApp(app, config(store={"batch": {"max_records": 7}}), topics={"clicks": 1})


@pytest.mark.parametrize(
    ("batch", "window", "said"),
    [
        ({"min_records": 5, "max_records": 4}, {}, r"\b5, .*\bmax_records, 4"),
        ({"max_records": 50}, {"cells": 2, "cell_records": 20}, "40 records"),
    ],
)
def test_combinations_that_cannot_be_are_refused(
    batch: dict[str, int], window: dict[str, int], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        Shop().run(batch=batch, window=window)


def test_there_is_no_current_record_within_a_batch() -> None:
    seen: list[Any] = []
    shop = Shop(lambda _records: seen.append(current_record()))
    with shop.run() as wc_app:
        wc_app.send("clicks", 1)
    assert seen == [None]


def test_records_of_a_batch_that_ends_the_process_are_called_one_by_one_until_it_leaves() -> None:
    shop = Shop()
    apps: list[TestApp] = []

    def store(records: list[Record]) -> None:
        if named(records, 2):
            apps[0].crash()

    shop._store = store
    with shop.run() as wc_app:
        apps.append(wc_app)
        results = wc_app.send_many("clicks", range(5))
        outcomes = [result.outcome for result in results]
        assert outcomes == [DONE, DONE, DEAD_LETTERED, DONE, DONE]
        (letter,) = wc_app.dead_letters
        assert letter.reason == "CRASHED"
    assert [2] in shop.calls


def test_a_batch_in_a_retry_level_is_a_batch_again() -> None:
    def store(records: list[Record]) -> None:
        if not records[0].is_copy:
            raise ConnectionError

    shop = Shop(store)
    with shop.run(retry={"attempts": 1, "levels": ["10s"]}) as wc_app:
        results = wc_app.send_many("clicks", range(3))
        wc_app.advance("10s")
        wc_app.run_until_settled()
        assert [result.outcome for result in results] == [DONE] * 3
    assert shop.calls == [[0, 1, 2], [0, 1, 2]]


def test_the_handler_of_a_test_may_be_called_with_one_record() -> None:
    shop = Shop()
    shop.app.handlers["store"].call(make_record(value="7"))
    assert shop.calls == [[7]]


def test_what_a_batch_handler_returns_is_produced_before_its_records_are_finished() -> None:
    app = App("shop")

    @app.batch_handler("clicks", group="shop", value=int)
    def count(values: list[int]) -> list[Produce]:
        return [Produce("sums", value=str(sum(values)))]

    topics = {"clicks": 1, "sums": 1}
    with TestApp(app, config(count={}), topics=topics) as wc_app:
        results = wc_app.send_many("clicks", [1, 2, b"x", 3])
        assert [result.outcome for result in results] == [DONE, DONE, DEAD_LETTERED, DONE]
        assert [result.value for result in wc_app.produced] == [b"6"]


def test_what_several_batch_handlers_return_is_that_of_their_own_records() -> None:
    app = App("shop")

    @app.batch_handler("clicks", when=header("kind") == "paid", group="shop")
    def paid(records: list[Record]) -> Produce:
        return Produce("sums", value=f"paid {len(records)}")

    @app.batch_handler("clicks", when=header("kind") == "sent", group="shop")
    def sent(records: list[Record]) -> Produce:
        return Produce("sums", value=f"sent {len(records)}")

    shared = config(store={"handler": ["paid", "sent"]})
    with TestApp(app, shared, topics={"clicks": 1, "sums": 1}) as wc_app:
        results = send(wc_app, "psp?s", "abcde")
        outcomes = [result.outcome for result in results]
        assert outcomes == [DONE, DONE, DONE, DEAD_LETTERED, DONE]
        assert [result.value for result in wc_app.produced] == [b"paid 2", b"sent 2"]
        assert [[r.value for r in each.produced] for each in results[:3]] == [
            [b"paid 2"],
            [b"sent 2"],
            [b"paid 2"],
        ]


def test_batch_handlers_may_be_coroutines_with_all_that_surrounds_them() -> None:
    app = App("shop")
    seen: list[Any] = []
    keys: Any = {"group": "shop", "ordering": "key", "ttl": "10s"}
    keys["retry"] = {**RETRY, "on_failure": "overtake"}

    @app.batch_handler("clicks", when=header("kind") == "paid", value=int, **keys)
    async def paid(values: list[int]) -> Produce:
        await asyncio.sleep(0)
        seen.append(("paid", values))
        return Produce("sums", value=str(sum(values)))

    @app.batch_handler("clicks", when=header("kind") == "sent", **keys)
    async def sent(records: list[Record]) -> None:
        seen.append(("sent", [record.json() for record in records]))
        raise PartialFailure(failed=named(records, 1))

    @app.middleware(around="batches")
    async def around(records: list[Record], call_next: Any) -> object:
        seen.append(len(records))
        return await call_next(records)

    shared = config(store={"handler": ["paid", "sent"]})
    with TestApp(app, shared, topics={"clicks": 1, "sums": 1}) as wc_app:
        results = send(wc_app, "psp?s", "abcde")
        outcomes = [result.outcome for result in results]
        assert outcomes == [DONE, RETRYING, DONE, DEAD_LETTERED, DONE]
        assert [result.value for result in wc_app.produced] == [b"2"]
    assert seen == [2, ("paid", [0, 2]), 2, ("sent", [1, 4])]
