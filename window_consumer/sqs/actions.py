"""The calls of SQS: each reads its parameters, asks a queue, and returns the response's members."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from window_consumer.model.errors import WindowConsumerError
from window_consumer.sqs.errors import SqsError, SqsErrorKind, shown
from window_consumer.sqs.messages import ACCOUNT, MOST_BYTES, MessageSelection, OutgoingMessage
from window_consumer.sqs.parameters import MOST_ENTRIES, CallParameters
from window_consumer.sqs.queue import (
    InvalidReceiptError,
    MessageRefusedError,
    NotInFlightError,
    Queue,
)
from window_consumer.sqs.queue_attributes import QueueAttributes

MOST_WAIT_S: Final = 20
MOST_VISIBILITY_S: Final = 43_200

_FIFO: Final = ".fifo"

_ELSEWHERE: Final = "queues are workers of the configuration: "
REFUSED: Final[Mapping[str, str]] = {
    "PurgeQueue": "a purge would lose records; `window-consumer replay` and Kafka's own tools move"
    " the group's offsets",
    "DeleteQueue": _ELSEWHERE + "remove `pull` there",
    "AddPermission": "`sqs.credentials` says who may call",
    "RemovePermission": "`sqs.credentials` says who may call",
    "TagQueue": _ELSEWHERE + "they have no tags",
    "UntagQueue": _ELSEWHERE + "they have no tags",
    "ListQueueTags": _ELSEWHERE + "they have no tags",
    "ListDeadLetterSourceQueues": "dead letters lie in a topic: see `window-consumer dlq`",
    "StartMessageMoveTask": "`window-consumer dlq redrive` moves dead letters back",
    "CancelMessageMoveTask": "`window-consumer dlq redrive` moves dead letters back",
    "ListMessageMoveTasks": "`window-consumer dlq redrive` moves dead letters back",
}
"""The SQS calls that are refused, with the reason."""

Answer = Mapping[str, object]


class QueueActions:
    """Answers calls. Owner: the event loop of the endpoint."""

    def __init__(self, queues: Iterable[Queue]):
        self._queues = {each.name: each for each in queues}
        self._attributes = QueueAttributes()
        self._calls: Mapping[str, Callable[[CallParameters, str], Awaitable[Answer]]] = {
            "CreateQueue": self._create_queue,
            "GetQueueUrl": self._queue_url,
            "ListQueues": self._list_queues,
            "GetQueueAttributes": self._queue_attributes,
            "SetQueueAttributes": self._set_queue_attributes,
            "SendMessage": self._send,
            "SendMessageBatch": self._send_batch,
            "ReceiveMessage": self._receive,
            "DeleteMessage": self._delete,
            "DeleteMessageBatch": self._delete_batch,
            "ChangeMessageVisibility": self._change_visibility,
            "ChangeMessageVisibilityBatch": self._change_visibility_batch,
        }

    async def answer(self, name: str, call: CallParameters, base_url: str) -> Answer:
        """Answer a call; ``base_url`` is the address of this endpoint. Raises SqsError."""
        action = self._calls.get(name)
        if action is None:
            if name in REFUSED:
                raise SqsError(SqsErrorKind.UNSUPPORTED, f"{name}: {REFUSED[name]}")
            raise SqsError(SqsErrorKind.UNKNOWN_CALL, f"{shown(name)} is not a call of SQS")
        return await action(call, base_url)

    # ---- queues

    def _named(self, name: str) -> Queue:
        queue = self._queues.get(name)
        if queue is not None:
            return queue
        other = name.removesuffix(_FIFO) if name.endswith(_FIFO) else name + _FIFO
        known = ", ".join(sorted(self._queues))
        hint = f"did you mean {other}?" if other in self._queues else f"there is {known}"
        raise SqsError(
            SqsErrorKind.NO_SUCH_QUEUE,
            f"The specified queue does not exist: {shown(name)}; {hint}. Queues are workers with"
            " `pull`.",
        )

    def _queue(self, call: CallParameters) -> Queue:
        """Return the queue of a call: the last part of its URL; the rest does not matter."""
        url = call.required("QueueUrl")
        try:
            name = urlsplit(url).path.rpartition("/")[2]
        except ValueError:
            name = url
        return self._named(name)

    async def _create_queue(self, call: CallParameters, base_url: str) -> Answer:
        queue = self._named(call.required("QueueName"))
        self._attributes.report_ignored(queue, call.mapping("Attributes"))
        return {"QueueUrl": _url_of(queue, base_url)}

    async def _queue_url(self, call: CallParameters, base_url: str) -> Answer:
        return {"QueueUrl": _url_of(self._named(call.required("QueueName")), base_url)}

    async def _list_queues(self, call: CallParameters, base_url: str) -> Answer:
        prefix, after = call.text("QueueNamePrefix") or "", call.text("NextToken") or ""
        names = [each for each in sorted(self._queues) if each.startswith(prefix) and each > after]
        most = call.whole_number("MaxResults", 1000, 1) or 1000
        urls = [_url_of(self._queues[each], base_url) for each in names[:most]]
        rest = {"NextToken": names[most - 1]} if len(names) > most else {}
        return {"QueueUrls": urls, **rest}

    async def _queue_attributes(self, call: CallParameters, base_url: str) -> Answer:
        del base_url
        found = await self._attributes.of(self._queue(call), call.texts("AttributeNames"))
        return {"Attributes": found} if found else {}

    async def _set_queue_attributes(self, call: CallParameters, base_url: str) -> Answer:
        del base_url
        self._attributes.check_equal(self._queue(call), call.mapping("Attributes"))
        return {}

    # ---- messages

    async def _send(self, call: CallParameters, base_url: str) -> Answer:
        del base_url
        queue = self._queue(call)
        return await _sent(OutgoingMessage.read(call, queue), queue)

    async def _send_batch(self, call: CallParameters, base_url: str) -> Answer:
        del base_url
        queue, entries = self._queue(call), call.entries()
        messages: dict[str, OutgoingMessage] = {}
        failed: list[Answer] = []
        for entry_id, entry in entries.items():
            try:
                messages[entry_id] = OutgoingMessage.read(entry, queue)
            except SqsError as error:
                failed.append(error.as_entry(entry_id))
        size = sum(each.size for each in messages.values())
        if size > MOST_BYTES:
            message = f"the messages of the batch have {size} bytes: at most {MOST_BYTES} are"
            " allowed"
            raise SqsError(SqsErrorKind.LARGE_BATCH, message)
        answer = await _batch({each: _sent(sent, queue) for each, sent in messages.items()})
        return {**answer, "Failed": [*failed, *answer["Failed"]]}

    async def _receive(self, call: CallParameters, base_url: str) -> Answer:
        del base_url
        queue, selection = self._queue(call), MessageSelection.read(call)
        messages = await queue.receive(
            call.whole_number("MaxNumberOfMessages", MOST_ENTRIES, 1) or 1,
            call.whole_number("WaitTimeSeconds", MOST_WAIT_S) or 0,
            call.whole_number("VisibilityTimeout", MOST_VISIBILITY_S),
        )
        answers = [selection.as_json(each, fifo=queue.fifo) for each in messages]
        return {"Messages": answers} if answers else {}

    async def give_back(self, call: CallParameters, answer: Answer) -> None:
        """Give back the messages of a client that disconnected before it got the response."""
        queue = self._queue(call)
        messages: Sequence[Mapping[str, Any]] = answer.get("Messages", ())  # type: ignore[assignment] # as _receive makes it
        for each in messages:
            await queue.give_back(each["ReceiptHandle"])

    async def _delete(self, call: CallParameters, base_url: str) -> Answer:
        del base_url
        return await _deleted(call, self._queue(call))

    async def _delete_batch(self, call: CallParameters, base_url: str) -> Answer:
        del base_url
        queue, entries = self._queue(call), call.entries()
        return await _batch({each: _deleted(entry, queue) for each, entry in entries.items()})

    async def _change_visibility(self, call: CallParameters, base_url: str) -> Answer:
        del base_url
        return await _changed(call, self._queue(call))

    async def _change_visibility_batch(self, call: CallParameters, base_url: str) -> Answer:
        del base_url
        queue, entries = self._queue(call), call.entries()
        return await _batch({each: _changed(entry, queue) for each, entry in entries.items()})


def _url_of(queue: Queue, base_url: str) -> str:
    return f"{base_url}/{ACCOUNT}/{queue.name}"


async def _sent(message: OutgoingMessage, queue: Queue) -> Answer:
    try:
        sent = await message.send(queue)
    except SqsError:
        raise
    except MessageRefusedError as error:
        raise SqsError(SqsErrorKind.INVALID_VALUE, str(error)) from error
    except WindowConsumerError as error:
        raise SqsError(SqsErrorKind.UNAVAILABLE, str(error)) from error
    return dict(message.answer(sent, fifo=queue.fifo))


async def _deleted(call: CallParameters, queue: Queue) -> Answer:
    handle = call.required("ReceiptHandle")
    try:
        await queue.delete(handle)
    except InvalidReceiptError as error:
        raise SqsError(SqsErrorKind.INVALID_RECEIPT, str(error)) from error
    return {}


async def _changed(call: CallParameters, queue: Queue) -> Answer:
    handle = call.required("ReceiptHandle")
    seconds = call.whole_number("VisibilityTimeout", MOST_VISIBILITY_S)
    if seconds is None:
        message = "The request must contain the parameter VisibilityTimeout."
        raise SqsError(SqsErrorKind.MISSING, message)
    try:
        await queue.change_visibility(handle, seconds)
    except InvalidReceiptError as error:
        raise SqsError(SqsErrorKind.INVALID_RECEIPT, str(error)) from error
    except NotInFlightError as error:
        raise SqsError(SqsErrorKind.NOT_IN_FLIGHT, str(error)) from error
    return {}


async def _batch(calls: Mapping[str, Awaitable[Answer]]) -> dict[str, list[Answer]]:
    """Make all calls at once, in order; return the successes and the failures, by id."""
    answers = await asyncio.gather(*calls.values(), return_exceptions=True)
    done: list[Answer] = []
    failed: list[Answer] = []
    for entry_id, answer in zip(calls, answers, strict=True):
        if isinstance(answer, SqsError):
            failed.append(answer.as_entry(entry_id))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            done.append({"Id": entry_id, **answer})
    return {"Successful": done, "Failed": failed}
