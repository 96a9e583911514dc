"""A call of a subscriber: FastStream's own, up to its commit."""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from traceback import walk_tb
from typing import Any, Final

from faststream import BaseMiddleware
from faststream.exceptions import (
    AckMessage,
    HandlerException,
    NackMessage,
    RejectMessage,
    SkipMessage,
    StopConsume,
    SubscriberNotFound,
)
from faststream.message import AckStatus

from window_consumer import Fatal, Produce, Record, Skip, Undecodable
from window_consumer.faststream.kinds import BrokerKind
from window_consumer.faststream.publishing import PublishingCall, call_begun, current_call
from window_consumer.faststream.service import Service


class CallMiddleware(BaseMiddleware):
    """The outermost middleware of a broker: sees the exceptions of our calls.

    FastStream turns these exceptions into acknowledgements, and reports success.
    """

    async def consume_scope(self, call_next: Any, msg: Any) -> Any:
        """Call the next one; record the signal, and whether the message was nacked."""
        call = current_call()
        if call is None:
            return await call_next(msg)
        try:
            return await call_next(msg)
        except HandlerException as signal:
            call.signal = signal
            raise
        finally:
            call.nacked = msg.committed is AckStatus.NACKED


class SubscriberCalls:
    """Calls one subscriber. Owner: the event loop of its worker, or of the hooks."""

    def __init__(
        self, broker: Any, subscriber: Any, kind: BrokerKind, service: Service | None = None
    ):
        self.subscriber = subscriber
        self._service = service
        self._broker = broker
        self._kind = kind
        self._prepared = False
        subscriber._build_fastdepends_model()  # noqa: SLF001 - raises its errors early

    async def of_record(self, record: Record) -> list[Produce]:
        """Call it with one record; return its published messages. Raises its exceptions."""
        return await self._call(self._kind.message_of(record))

    async def of_batch(self, records: list[Record]) -> list[Produce]:
        """Call it with the records of a batch, the same."""
        return await self._call(tuple(map(self._kind.message_of, records)))

    async def _call(self, message: Any) -> list[Produce]:
        if self._service is None:
            return await self._call_here(message)
        return await self._service.at_home(partial(self._call_here, message))

    async def _call_here(self, message: Any) -> list[Produce]:
        if not self._prepared:
            # Repeated: FastStream(broker), after worker_of, gives the broker another context.
            self.subscriber._build_fastdepends_model()  # noqa: SLF001 - only start() calls it,
            self._broker._setup_logger()  # noqa: SLF001 - and this, and it consumes
            self._prepared = True
        with call_begun() as call:
            try:
                await self.subscriber.process_message(message)
            except HandlerException as signal:  # AckPolicy.ACK_FIRST lets them through
                call.signal = signal
            except SubscriberNotFound as error:
                raise Fatal("no filter of the subscriber accepts this message") from error
            except (StopConsume, SystemExit) as stop:
                raise Fatal(
                    f"the handler raised {type(stop).__name__}, but one message does not stop a"
                    " worker: set retry.when_spent to stop, and raise another exception"
                ) from stop
            except Exception as error:
                if _is_about_arguments(error):
                    raise Undecodable(str(error)) from error
                raise
        return _results_of(call)


_LIBRARIES: Final = {"contextlib", "msgspec", "pydantic", "pydantic_core"}


def _is_about_arguments(error: Exception) -> bool:
    """Return whether a message does not fit the arguments of a function or its dependency.

    The class of the error does not show this: functions raise the same for their own validation.
    FastDepends calls its serializer for arguments, and its ``response`` for return values.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)][::-1]
    for frame, caller in zip_longest(frames, frames[1:]):
        library = str(frame.f_globals.get("__name__")).partition(".")[0]
        if library == "fast_depends" and frame.f_code.co_name in {"__call__", "response"}:
            model = None if caller is None else caller.f_locals.get("self")
            return frame.f_code.co_name == "__call__" and not _is_about_others(error, model)
        if library not in {*_LIBRARIES, "fast_depends"}:
            return False
    return False


def _is_about_others(error: Exception, model: Any) -> bool:
    """Return whether only the application's arguments are wrong, not the message.

    An example is a value that is missing in the context: the same message may succeed later.
    """
    wrong = {each["loc"][0] for each in getattr(error, "errors", list)() if each["loc"]}
    fields = getattr(model, "custom_fields", {}).values()
    others = {each.param_name for each in fields if not _reads_message(each)}
    return bool(wrong) and wrong <= others | set(getattr(model, "dependencies", ()))


def _reads_message(field: Any) -> bool:
    name = f"{getattr(field, 'prefix', '')}{getattr(field, 'name', '') or field.param_name}"
    return name.partition(".")[0] == "message"


def _results_of(call: PublishingCall) -> list[Produce]:
    """Return a call's results, or raise the equivalent of its signal."""
    signal = call.signal
    if call.nacked and signal is None:
        signal = NackMessage()
    match signal:
        case None | AckMessage():
            return call.results
        case SkipMessage() if call.results:
            return call.results
        case SkipMessage():
            raise Skip("the handler raised SkipMessage") from signal
        case RejectMessage():
            raise Fatal("the handler rejected the message") from signal
        case _:
            raise signal
