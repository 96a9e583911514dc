"""Subscribers of both of FastStream's Kafka brokers run as handlers do."""

# ruff: noqa: ARG001 - FastStream calls functions by the names of their arguments

from __future__ import annotations

import asyncio
import json
from types import ModuleType
from typing import Annotated, Any

import pytest
from faststream import (
    AckPolicy,
    BaseMiddleware,
    Context,
    Depends,
    FastStream,
    Header,
    confluent,
    kafka,
)
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage, StopConsume
from pydantic import BaseModel

from window_consumer import App, Produce, current_record
from window_consumer.faststream import worker_of
from window_consumer.testing import DEAD_LETTERED, DONE, MOVED, RETRYING, SKIPPED, TestApp

BROKERS = [pytest.param(confluent, id="confluent"), pytest.param(kafka, id="aiokafka")]
POLICIES = [AckPolicy.ACK_FIRST, AckPolicy.ACK]
WORKERS = {"workers": {"bill": {"retry": {"attempts": 2, "backoff": "1s..1s"}}}}


class Order(BaseModel):
    customer: str
    amount: int


def silent(module: ModuleType, **options: Any) -> Any:
    return module.KafkaBroker("nowhere:9092", logger=None, **options)


@pytest.fixture(params=BROKERS)
def module(request: pytest.FixtureRequest) -> ModuleType:
    assert isinstance(request.param, ModuleType)
    return request.param


@pytest.fixture
def broker(module: ModuleType) -> Any:
    return silent(module)


def running(app: App, config: Any = WORKERS) -> TestApp:
    return TestApp(app, config, topics={"orders": 1})


def test_a_function_gets_its_model_its_dependencies_and_the_message(broker: Any) -> None:
    seen: list[Any] = []

    def rate() -> float:
        return 0.5

    @broker.subscriber("orders", group_id="shop")
    async def bill(
        order: Order,
        rate: Annotated[float, Depends(rate)],
        message: Annotated[Any, Context("message")],
        region: Annotated[str, Context()],
    ) -> None:
        seen.append((order, rate, message.headers["unit"], message.correlation_id, region))
        record = current_record()
        assert record is not None
        assert record.attempt == 1

    app = worker_of(broker)
    broker.context.set_global("region", "eu")
    with running(app) as wc_app:
        headers = {"unit": "EUR", "correlation_id": "17"}
        value = {"customer": "ann", "amount": 3}
        assert wc_app.send("orders", value, key="ann", headers=headers).outcome is DONE
    assert seen == [(Order(customer="ann", amount=3), 0.5, "EUR", "17", "eu")]


def test_a_value_that_the_context_lacks_says_nothing_about_the_message(broker: Any) -> None:
    async def rate() -> Any:
        return "none"

    @broker.subscriber("orders", group_id="shop")
    async def bill(
        order: Order,
        pool: Annotated[str, Context()],
        rate: Annotated[float, Depends(rate)],
        unit: Annotated[str, Header()],
    ) -> None: ...

    with running(worker_of(broker)) as wc_app:
        order = {"customer": "ann", "amount": 3}
        failing = wc_app.send("orders", order, headers={"unit": "EUR"})
        assert failing.outcome is RETRYING
        assert wc_app.send("orders", order, key="no unit").outcome is DEAD_LETTERED
        assert wc_app.dead_letters[0].reason == "DECODE"


def test_a_plain_function_runs_too(broker: Any) -> None:
    seen: list[int] = []

    @broker.subscriber("orders", group_id="shop")
    def bill(order: Order) -> None:
        seen.append(order.amount)

    with running(worker_of(broker)) as wc_app:
        assert wc_app.send("orders", {"customer": "ann", "amount": 3}).outcome is DONE
    assert seen == [3]


def test_options_of_a_subscriber_are_defaults_of_its_worker(module: ModuleType) -> None:
    broker = silent(module)
    router = module.KafkaRouter(prefix="eu-")

    @router.subscriber("orders", "refunds", group_id="shop", auto_offset_reset="earliest")
    async def bill(body: Any) -> None: ...

    @broker.subscriber("clicks", group_id="clicks", max_workers=7)
    async def count(body: Any) -> None: ...

    @broker.subscriber("mails", group_id="mails", ack_policy=AckPolicy.NACK_ON_ERROR)
    @broker.subscriber("letters", group_id="letters")
    async def send(body: Any) -> None: ...

    broker.include_router(router)
    app = worker_of(broker)
    assert list(app.handlers) == ["bill", "count", "send-letters", "send-mails"]
    workers = TestApp(app, {"workers": {name: {} for name in app.handlers}}).plan.config.workers
    bill_, count_ = workers["bill"], workers["count"]
    assert (sorted(bill_.topics), bill_.group) == (["eu-orders", "eu-refunds"], "shop")
    assert (bill_.ordering, bill_.concurrency, bill_.on_no_offset) == ("key", 16, "earliest")
    assert (count_.concurrency, count_.on_no_offset) == (7, "latest")
    assert workers["send-letters"].retry.on_failure == "overtake"
    assert workers["send-mails"].retry.on_failure == "block"


def test_the_ladder_calls_a_failed_one_again_with_the_place_of_its_first_delivery(
    broker: Any,
) -> None:
    places: list[Any] = []

    @broker.subscriber("orders", group_id="shop")
    async def bill(order: Order, message: Annotated[Any, Context("message")]) -> None:
        raw = message.raw_message
        place = (raw.topic, raw.partition, raw.offset)
        places.append(tuple(each() if callable(each) else each for each in place))
        raise OSError("no bank")

    retry = {"attempts": 1, "levels": ["10s"]}
    with running(worker_of(broker), {"workers": {"bill": {"retry": retry}}}) as wc_app:
        result = wc_app.send("orders", {"customer": "ann", "amount": 3}, key="ann")
        assert result.outcome is MOVED
        wc_app.advance("1m")
        assert result.outcome is DEAD_LETTERED
        (letter,) = wc_app.dead_letters
    assert dict(letter.headers)["wc-error-class"] == b"OSError"
    assert places == [("orders", 0, 0)] * 2


def test_a_message_that_does_not_fit_is_a_dead_letter_at_once(broker: Any) -> None:
    @broker.subscriber("orders", group_id="shop")
    async def bill(order: Order) -> None: ...

    with running(worker_of(broker)) as wc_app:
        result = wc_app.send("orders", {"customer": "ann"})
        assert (result.outcome, result.attempts) == (DEAD_LETTERED, 1)
        assert wc_app.dead_letters[0].reason == "DECODE"


def test_a_validation_within_the_function_is_an_ordinary_failure(broker: Any) -> None:
    @broker.subscriber("orders", group_id="shop")
    async def bill(order: dict[str, Any]) -> None:
        Order.model_validate(order)

    with running(worker_of(broker)) as wc_app:
        assert wc_app.send("orders", {"customer": "ann"}).outcome is RETRYING


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("signal", "outcome", "attempts"),
    [
        (AckMessage, DONE, 1),
        (NackMessage, DEAD_LETTERED, 2),
        (RejectMessage, DEAD_LETTERED, 1),
        (SkipMessage, SKIPPED, 1),
        (StopConsume, DEAD_LETTERED, 1),
        (SystemExit, DEAD_LETTERED, 1),
    ],
)
def test_what_a_function_raises_to_faststream_decides_about_its_record(
    broker: Any, policy: AckPolicy, signal: type[BaseException], outcome: Any, attempts: int
) -> None:
    @broker.subscriber("orders", group_id="shop", ack_policy=policy)
    async def bill(body: Any) -> None:
        raise signal

    with running(worker_of(broker)) as wc_app:
        result = wc_app.send("orders", "ten")
        wc_app.advance("1m")
        assert (result.outcome, result.attempts) == (outcome, attempts)


def test_a_message_that_is_returned_has_failed(broker: Any) -> None:
    @broker.subscriber("orders", group_id="shop", ack_policy=AckPolicy.ACK)
    async def bill(body: Any, message: Annotated[Any, Context("message")]) -> None:
        await message.nack()

    with running(worker_of(broker)) as wc_app:
        assert wc_app.send("orders", "ten").outcome is RETRYING


def test_filters_choose_a_function_and_what_none_takes_is_a_dead_letter(broker: Any) -> None:
    seen: list[str] = []
    subscriber = broker.subscriber("orders", group_id="shop")

    @subscriber(filter=lambda message: message.headers.get("kind") == "order")
    async def bill(body: str) -> None:
        seen.append(f"bill {body}")

    @subscriber(filter=lambda message: message.headers.get("kind") == "refund")
    async def refund(body: str) -> None:
        seen.append(f"refund {body}")

    with running(worker_of(broker)) as wc_app:
        assert wc_app.send("orders", "ten", headers={"kind": "order"}).outcome is DONE
        assert wc_app.send("orders", "eleven", headers={"kind": "refund"}).outcome is DONE
        assert wc_app.send("orders", "twelve", headers={"kind": "mail"}).outcome is DEAD_LETTERED
    assert seen == ["bill ten", "refund eleven"]


def test_a_batch_is_called_as_a_list(broker: Any) -> None:
    seen: list[Any] = []

    @broker.subscriber("orders", group_id="shop", batch=True, max_records=3)
    @broker.publisher("totals")
    async def bill(orders: list[Order]) -> int:
        seen.append([order.amount for order in orders])
        return sum(order.amount for order in orders)

    with running(worker_of(broker)) as wc_app:
        wc_app.send_many("orders", [{"customer": "ann", "amount": n} for n in range(4)], key="ann")
        wc_app.advance("1s")
        assert [each.value for each in wc_app.produced] == [b"3", b"3"]
    assert seen == [[0, 1, 2], [3]]


def test_middlewares_surround_the_call_and_what_it_publishes(module: ModuleType) -> None:
    seen: list[str] = []

    class Noting(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen.append("consume")
            return await call_next(msg)

        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            cmd.headers["by"] = "middleware"
            return await call_next(cmd)

    broker = silent(module, middlewares=[Noting])

    @broker.subscriber("orders", group_id="shop")
    @broker.publisher("invoices")
    async def bill(body: str) -> str:
        return body

    with running(worker_of(broker)) as wc_app:
        wc_app.send("orders", "ten")
        (invoice,) = wc_app.produced
    assert (seen, dict(invoice.headers)["by"]) == (["consume"], b"middleware")


def test_an_application_of_faststream_in_the_same_module_changes_nothing(broker: Any) -> None:
    seen: list[str] = []

    @broker.subscriber("orders", group_id="shop")
    async def bill(body: str, region: Annotated[str, Context()]) -> None:
        seen.append(region)

    app = worker_of(broker)
    FastStream(broker, logger=None).context.set_global("region", "eu")
    with running(app) as wc_app:
        assert wc_app.send("orders", "ten").outcome is DONE
    assert seen == ["eu"]


def test_what_a_call_publishes_is_its_result_in_order(broker: Any) -> None:
    answers: list[Any] = []
    other = broker.publisher("mails", key=b"k", headers={"kind": "mail"})

    @broker.subscriber("orders", group_id="shop")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Order:
        answers.append(await broker.publish({"n": 1}, "audit", key=b"a", partition=2))
        await broker.publish_batch("x", "y", topic="audit")
        await other.publish("hello")
        return order

    with running(worker_of(broker)) as wc_app:
        wc_app.send("orders", {"customer": "ann", "amount": 3}, headers={"correlation_id": "17"})
        produced = wc_app.produced
    assert [(each.topic, each.key, each.value, each.partition) for each in produced] == [
        ("audit", b"a", b'{"n":1}', 2),
        ("audit", None, b"x", None),
        ("audit", None, b"y", None),
        ("mails", b"k", b"hello", None),
        ("invoices", None, b'{"customer":"ann","amount":3}', None),
    ]
    invoice = dict(produced[-1].headers)
    assert invoice == {"content-type": b"application/json", "correlation_id": b"17"}
    assert dict(produced[3].headers)["kind"] == b"mail"
    assert answers == [None]


def test_a_reply_goes_to_the_topic_that_the_message_names(broker: Any) -> None:
    @broker.subscriber("orders", group_id="shop")
    async def bill(body: str) -> str:
        return f"{body}!"

    with running(worker_of(broker)) as wc_app:
        wc_app.send("orders", "ten", headers={"reply_to": "answers", "correlation_id": "17"})
        (answer,) = wc_app.produced
    assert (answer.topic, answer.value) == ("answers", b"ten!")
    assert dict(answer.headers)["correlation_id"] == b"17"


def test_nothing_is_published_by_a_call_that_fails(broker: Any) -> None:
    @broker.subscriber("orders", group_id="shop")
    async def bill(body: str) -> None:
        await broker.publish("hello", "mails")
        raise OSError("no bank")

    with running(worker_of(broker)) as wc_app:
        assert wc_app.send("orders", "ten").outcome is RETRYING
        assert wc_app.produced == []


def test_a_task_that_outlives_its_call_cannot_publish(broker: Any) -> None:
    errors: list[str] = []
    tasks: list[asyncio.Task[None]] = []
    returned = asyncio.Event()

    @broker.subscriber("orders", group_id="shop")
    async def bill(body: str) -> None:
        if body == "second":
            returned.set()
            await tasks[0]
            return

        async def later() -> None:
            await returned.wait()
            try:
                await broker.publish("hello", "mails")
            except Exception as error:
                errors.append(type(error).__name__)

        tasks.append(asyncio.create_task(later()))

    with running(worker_of(broker)) as wc_app:
        wc_app.send_many("orders", ["first", "second"])
        assert wc_app.produced == []
    assert errors == ["UsageError"]


def test_the_test_client_of_faststream_runs_the_same_broker_as_before(
    broker: Any, module: ModuleType
) -> None:
    seen: list[Any] = []

    @broker.subscriber("orders", group_id="shop")
    @broker.publisher("invoices")
    async def bill(order: Order) -> int:
        return order.amount

    @broker.subscriber("invoices", group_id="mail")
    async def mail(total: int) -> None:
        seen.append(total)

    async def published() -> None:
        async with module.TestKafkaBroker(broker) as client:
            await client.publish({"customer": "ann", "amount": 3}, "orders")

    app = worker_of(broker)
    asyncio.run(published())
    with running(app, {"workers": {"bill": {}, "mail": {}}}) as wc_app:
        result = wc_app.send("orders", json.dumps({"customer": "ann", "amount": 4}))
        (invoice,) = result.produced
        assert isinstance(invoice, Produce)
    assert seen == [3, 4]
