"""``TracedProducer``: a producer whose records can be followed, for applications that produce."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, get_args

from attrs import field, frozen
from opentelemetry import trace as opentelemetry

from window_consumer.config.checks.login import properties_with_login
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.event_writer import EventWriter
from window_consumer.kafka.settings import CONSUMER_ONLY, EventNeeds
from window_consumer.kafka.traced_producer import WatchedProducer
from window_consumer.model.errors import UsageError
from window_consumer.model.key_forms import KeyMode, key_form
from window_consumer.model.sending import SendTrace, SendWatcher
from window_consumer.runtime.context import current_record
from window_consumer.runtime.log import own_logger
from window_consumer.trace.event import Role
from window_consumer.trace.recording.exporters import CLIENT_ID, way_out
from window_consumer.trace.recording.inbox import EventOrigin
from window_consumer.trace.recording.producer_trace import ProducerTrace
from window_consumer.trace.recording.writer import TraceWriter, host_address
from window_consumer.trace.sampling import By, Sampling

LOGGER: Final = own_logger()

_CALLABLES: Final = ("_cb", "logger", "on_delivery", "partitioner")
"""Parts of the names of properties that are the application's own functions."""


@frozen(kw_only=True)
class TraceSettings:
    """Which records of a producer are traced, and how: like the file's ``trace``."""

    sample: float = 1.0
    """The share of the records, or of the keys, from 0 to 1."""
    by: By = "record"
    failures: Literal["all", "sampled"] = "all"
    topic: str = "wc.trace"
    keys: KeyMode = "off"
    key_secret: str = field(default="", repr=False)
    """For ``keys="hmac"``, 16 characters or more; the same for all events to compare."""
    directory: str | Path | None = None
    """The directory of the spool; None sends events straight to Kafka."""
    max_bytes: int = 1024**3
    flush_s: float = 1.0
    acks: Literal["0", "1", "all"] = "1"
    app: str | None = None
    """The application's name, for the events."""

    def open(self, properties: Mapping[str, Any]) -> ProducerTracing:
        """Start a trace for a producer with these properties.

        Raises UsageError for settings that contradict each other.
        """
        return ProducerTracing(self, properties)


class ProducerTracing:
    """The trace of one producer; also ends with the interpreter, or when garbage-collected."""

    def __init__(self, trace: TraceSettings, properties: Mapping[str, Any]):
        self._writer = _writer(trace, properties)
        about = EventOrigin(
            role=Role.PRODUCER,
            cluster=_text(properties.get("bootstrap.servers")),
            client_id=_text(properties.get("client.id", "rdkafka")),
            host=host_address(),
            app=trace.app,
        )
        self.sends: SendTrace = ProducerTrace(
            self._writer,
            about,
            Sampling(trace.sample, trace.by),
            current_record,
            all_failures=trace.failures == "all",
        )
        self.parent = current_parent
        self._writer.start()
        self._end = weakref.finalize(self, self._writer.close)

    @property
    def dropped(self) -> int:
        """How many events were lost so far."""
        return self._writer.dropped

    def close(self) -> None:
        """Write the last events."""
        self._end()


class TracedProducer(WatchedProducer):
    """confluent_kafka.Producer with a trace: what was sent, when, how long it took, what failed.

    Every record gets ``wc-id`` (a UUID of version 7) and ``wc-sent-at``, and ``traceparent`` where
    a span of OpenTelemetry is current; ``wc-tags`` where ``tags`` are given, words with commas
    between them. Headers that a record already has are kept. ``watchers`` are notified of every
    record. ``trace=None`` traces nothing.

    The topic for events must exist on the same brokers; otherwise events are lost and counted.
    Tracing never slows down sending and never makes it fail. ``produce_batch`` has no
    headers: its records are not traced. ``close`` writes the last events, and so does the end of
    the interpreter.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        *,
        trace: TraceSettings | None = TraceSettings(),
        watchers: Sequence[SendWatcher] = (),
        tags: str = "",
        **more: Any,
    ):
        """Create a producer; ``more`` is for confluent_kafka, ``conf`` may have a ``login``.

        Raises UsageError for settings that contradict each other.
        """
        own = properties_with_login(conf, "TracedProducer")
        tracing = None if trace is None else trace.open(own)
        super().__init__(
            own,
            trace=None if tracing is None else tracing.sends,
            watchers=watchers,
            parent=current_parent,
            tags=tags,
            **more,
        )
        self._tracing = tracing

    @property
    def events_dropped(self) -> int:
        """How many events of its records were lost so far, for a metric of the application."""
        return 0 if self._tracing is None else self._tracing.dropped

    def close(self, *args: Any, **more: Any) -> Any:
        """Close the producer as confluent_kafka does, then write the last events."""
        try:
            return super().close(*args, **more)
        finally:
            self._close_tracing()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        """Do the same at the end of a block, where confluent_kafka does not call ``close``."""
        try:
            return super().__exit__(kind, error, traceback)
        finally:
            self._close_tracing()

    def _close_tracing(self) -> None:
        if self._tracing is not None:
            self._tracing.close()


_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "by": get_args(By),
    "failures": ("all", "sampled"),
    "keys": get_args(KeyMode),
    "acks": ("0", "1", "all"),
}
_SHORTEST_SECRET: Final = 16


def _check(trace: TraceSettings) -> None:
    """Raise UsageError for values that a configuration file may not have either."""
    for name, words in _WORDS.items():
        given = getattr(trace, name)
        if given not in words:
            raise UsageError(f"TraceSettings: {name} is {given!r}; write {' or '.join(words)}")
    sample: object = trace.sample  # in the file it is a text, "1%"
    if not isinstance(sample, int | float) or not 0.0 <= sample <= 1.0:
        raise UsageError(f"TraceSettings: sample is {sample!r}; write a share, from 0 to 1")
    if not trace.flush_s > 0:
        raise UsageError(f"TraceSettings: flush_s is {trace.flush_s!r}; write seconds, above 0")
    if trace.keys == "hmac" and len(trace.key_secret) < _SHORTEST_SECRET:
        raise UsageError(
            "TraceSettings: keys is hmac, which needs a key_secret of"
            f" {_SHORTEST_SECRET} characters or more"
        )


def _writer(trace: TraceSettings, conf: Mapping[str, Any]) -> TraceWriter:
    _check(trace)
    form = None if trace.keys == "off" else key_form(trace.keys, trace.key_secret.encode())
    log = ClientLog(LOGGER.getChild("client"))
    user = {
        key: value
        for key, value in conf.items()
        if key not in CONSUMER_ONLY and not any(part in key for part in _CALLABLES)
    }
    tokens = conf.get("oauth_cb")

    def events(acks: Literal["0", "1", "all"]) -> EventWriter:
        own = user if tokens is None else {**user, "oauth_cb": tokens}
        return EventWriter(own, EventNeeds(CLIENT_ID, acks), trace.topic, log)

    directory = None if trace.directory is None else Path(trace.directory)
    way = way_out(
        events,
        trace.topic,
        LOGGER,
        acks=trace.acks,
        directory=directory,
        max_bytes=trace.max_bytes,
        ship_after_s=trace.flush_s,
    )
    return TraceWriter(way, form, trace.flush_s, LOGGER)


def current_parent() -> str | None:
    """Return the traceparent of OpenTelemetry's current span, or None."""
    context = opentelemetry.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _text(value: object) -> str | None:
    return None if value is None else str(value)
