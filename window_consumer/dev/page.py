"""The API of the form that sends a record; the form is part of the live window."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from attrs import asdict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from window_consumer.admin.answers import (
    Json,
    answered,
    error,
    fields_of,
    principal_fields,
    who_asks,
)
from window_consumer.dev.sending import FormRecord, send
from window_consumer.model.errors import UsageError, WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.feature import PageContext
from window_consumer.runtime.log import own_logger

_FIELDS: Final = {"topic", "key", "value", "headers", "partition"}

KAFKA_KEYS: Final = frozenset({"bootstrap.servers", "security.protocol"})
"""The overrides of ``dev``, so that ``doctor`` asks the same brokers."""

_log = own_logger()


class DevPages:
    """Answers at /api/dev. Owner: the server's event loop."""

    is_there = True
    link = None

    def __init__(self, context: PageContext):
        self._context = context

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            Route("/api/dev", self._topics, methods=["GET"]),
            Route("/api/dev/send", self._send, methods=["POST"]),
        ]

    async def _topics(self, _: Request) -> Response:
        workers = self._context.config.workers.values()
        topics = sorted({topic for worker in workers for topic in worker.topics})
        patterns = sorted({pattern for worker in workers for pattern in worker.patterns})
        kafka = {
            key: value
            for key, value in self._context.config.kafka.common.items()
            if key in KAFKA_KEYS
        }
        return Json({"topics": topics, "patterns": patterns, "kafka": kafka})

    async def _send(self, request: Request) -> Response:
        try:
            record = form_record(await fields_of(request))
            worker = self._reader_of(record.topic)
            sent = await answered(lambda: send(self._context, worker, record))
        except UsageError as problem:
            return error(HTTPStatus.BAD_REQUEST, self._context.mask(str(problem)))
        except WindowConsumerError as problem:
            return error(HTTPStatus.SERVICE_UNAVAILABLE, self._context.mask(str(problem)))
        _log.info(
            "dev: %s sent a record to %s[%d]@%d",
            who_asks(request),
            sent.topic,
            sent.partition,
            sent.offset,
            extra={"event": LogEvent.DEV_RECORD_SENT, **asdict(sent), **principal_fields(request)},
        )
        return Json(asdict(sent))

    def _reader_of(self, topic: str) -> str:
        """Return the name of a worker that reads the topic; raises UsageError."""
        for name, worker in self._context.config.workers.items():
            if topic in worker.topics or any(re.search(each, topic) for each in worker.patterns):
                return name
        raise UsageError(f"topic: no worker reads {topic!r}")


def form_record(given: dict[str, Any]) -> FormRecord:
    """Return the record in a request's fields; raises UsageError, which names the wrong one."""
    unknown = sorted(given.keys() - _FIELDS)
    if unknown:
        raise UsageError(f"{unknown[0]}: unknown; known are {', '.join(sorted(_FIELDS))}")
    topic, partition = given.get("topic"), given.get("partition")
    if not isinstance(topic, str) or not topic:
        raise UsageError("topic: must be a text")
    if partition is not None and (type(partition) is not int or partition < 0):
        raise UsageError("partition: must be a number from 0, or null to let the key decide")
    headers = given.get("headers", {})
    if not isinstance(headers, dict):
        raise UsageError('headers: must be an object of texts, such as {"type": "paid"}')
    return FormRecord(
        topic,
        _bytes("key", given.get("key")),
        _bytes("value", given.get("value")),
        [(name, _bytes(f"headers.{name}", text) or b"") for name, text in headers.items()],
        partition,
    )


def _bytes(name: str, text: object) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise UsageError(f"{name}: must be a text, or null")
    try:
        return text.encode()
    except UnicodeEncodeError as problem:
        raise UsageError(f"{name}: cannot be encoded as UTF-8") from problem
