"""``worker_of``: the application that runs a broker's subscribers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from importlib.metadata import version as installed
from typing import Any

from window_consumer import App, Produce, Record, UsageError
from window_consumer.faststream.calls import CallMiddleware, SubscriberCalls
from window_consumer.faststream.kinds import BrokerKind, kind_of
from window_consumer.faststream.publishing import CallProducer
from window_consumer.faststream.refused import refuse_broker, refuse_subscriber, refuse_version
from window_consumer.faststream.service import only_broker_of, refuse_hooks, service_of


def worker_of(broker: Any, *, name: str = "faststream", version: str = "") -> App:
    """Return an application with a handler for each subscriber of a FastStream ``KafkaBroker``.

    A handler has the name of its function; a function with several subscribers gives
    ``<function>-<topic>``. Topics, group, ``max_workers``, ``auto_offset_reset`` and batches of a
    subscriber are defaults that the configuration overrides, as are ``ordering: key`` and
    ``on_failure``: ``block`` for ``AckPolicy.NACK_ON_ERROR``, otherwise ``overtake``. Messages that
    a call publishes are written after it returns, and acknowledged before its record is finished.

    Given the ``FastStream`` application instead of its broker, its lifespan and hooks run in each
    process, on the event loop that its functions then share; without hooks nothing changes.

    Call it after the last subscriber and hook were registered. The broker needs no connection, and
    FastStream can still run it: outside our calls it is unchanged. ``name`` and ``version`` are
    those of ``App``. Raises UsageError for options without a counterpart here, and for a broker of
    another system, without subscribers, or whose application has hooks.
    """
    service = service_of(broker)
    if service is not None:
        broker = only_broker_of(broker)
    kind = kind_of(broker)
    refuse_version(installed("faststream"))
    refuse_broker(broker)
    subscribers = sorted(_with_functions(broker), key=_place_of)
    if not subscribers:
        raise UsageError(
            "worker_of: the broker has no subscriber with a function: call worker_of(broker) below"
            " the last @broker.subscriber, after the routers are included"
        )
    for subscriber in subscribers:
        refuse_subscriber(subscriber)
    if service is None:
        refuse_hooks(broker)
    _observe(broker)
    app = App(name, version=version)
    if service is not None and service.hooks:
        app.lifespan(service.lifespan)
    for handler_name, subscriber in _named(subscribers):
        _register(app, handler_name, SubscriberCalls(broker, subscriber, kind, service), kind)
    return app


def _with_functions(broker: Any) -> Iterable[Any]:
    return (each for each in broker.subscribers if each.calls)


def _place_of(subscriber: Any) -> tuple[str, list[str]]:
    """Return the sort key of a subscriber: FastStream keeps them in a set, without order."""
    return subscriber.calls[0].name, list(subscriber.topic_names)


def _named(subscribers: list[Any]) -> Iterable[tuple[str, Any]]:
    """Yield each subscriber with a unique name."""
    counts = Counter(each.calls[0].name for each in subscribers)
    for each in subscribers:
        function = each.calls[0].name
        topics = "-".join(each.topic_names)
        yield (function if counts[function] == 1 else f"{function}-{topics}"), each


def _observe(broker: Any) -> None:
    """Let calls see their functions' messages and exceptions; repeating it changes nothing."""
    config = broker.config.broker_config
    if not isinstance(config.producer, CallProducer):
        config.producer = CallProducer(config)
        broker.insert_middleware(CallMiddleware)


def _register(app: App, name: str, calls: SubscriberCalls, kind: BrokerKind) -> None:
    subscriber = calls.subscriber
    topics = [getattr(each, "name", each) for each in subscriber.topics]
    options = {"ordering": "key", "group": subscriber.group_id, **kind.options_of(subscriber)}
    if kind.is_batch(subscriber):
        app.batch_handler(*topics, name=name, **options)(_batch_function(calls))
    else:
        app.handler(*topics, name=name, **options)(_function(calls))


def _function(calls: SubscriberCalls) -> Callable[[Record], Awaitable[list[Produce]]]:
    async def call_subscriber(record: Record) -> list[Produce]:
        return await calls.of_record(record)

    return call_subscriber


def _batch_function(calls: SubscriberCalls) -> Callable[[list[Record]], Awaitable[list[Produce]]]:
    async def call_subscriber(records: list[Record]) -> list[Produce]:
        return await calls.of_batch(records)

    return call_subscriber
