"""Reads segments, sends their records to a topic, and deletes acked segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, Protocol

from attrs import define, field

from window_consumer.model.errors import PublishFailedError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import Trouble

_SERVE_S: Final = 0.1


class SegmentOutlet(Protocol):
    """Writes messages to the topic. One thread uses it."""

    def send(
        self,
        value: bytes,
        on_done: Callable[[PublishFailedError | None], None],
        key: bytes | None = None,
    ) -> None:
        """Send a message; ``on_done`` is called once, here or in ``serve``. None means an ack."""

    def serve(self, timeout_s: float) -> None:
        """Wait for an answer for up to ``timeout_s``, and deliver the answers that arrived."""

    def close(self, timeout_s: float) -> int:
        """Wait for the missing answers; return how many are still missing after ``timeout_s``."""


class Outgoing(NamedTuple):
    """A message, and the number of events or counts in it."""

    value: bytes
    weight: int
    key: bytes | None = None


@define(eq=False)
class _SegmentProgress:
    """The shipping progress of a segment."""

    taken_bytes: int = 0
    unacked: dict[int, Outgoing] = field(factory=dict)
    """The unacked part of the last chunk. Everything before the chunk is acked."""


class SegmentShipper(ABC):
    """Sends segments, a chunk at a time. Owner: one thread; others may read its figures.

    The next call resends unacked messages; the caller decides when. A feature converts lines to
    messages, and decides which refusals are final.
    """

    def __init__(
        self,
        trouble: Trouble,
        held: LogEvent,
        *,
        chunk_bytes: int,
        deadline_s: float = float("inf"),
    ):
        self._trouble = trouble
        self._held = held
        self._chunk_bytes = chunk_bytes
        self._progress: dict[Path, _SegmentProgress] = {}
        self.deadline_s = deadline_s
        """The time limit for the answers to one chunk."""
        self.shipped = 0
        """The number of acked events or counts."""
        self.torn = 0
        """The number of unreadable lines."""

    @property
    def blocked_s(self) -> float:
        """How long the topic has refused messages, 0 while it accepts them. Any thread may ask."""
        return self._trouble.seconds

    @abstractmethod
    def messages(self, path: Path, lines: Sequence[bytes]) -> Iterable[Outgoing]:
        """Return the messages for lines of a segment; count, log and omit torn lines."""

    @abstractmethod
    def describe(self, error: PublishFailedError) -> str:
        """Return the line to log when the topic does not accept messages."""

    def gives_up(self, message: Outgoing, error: PublishFailedError) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether the message is lost; the feature counts it then. Never by default."""
        return False

    def ship_segment(
        self,
        outlet: SegmentOutlet,
        path: Path,
        *,
        is_closed: bool,
        must_end: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Send the segment's unacked records; return whether all are acked now.

        A closed segment is then deleted. Determine ``is_closed`` before the call: records appended
        during it go with the next call. Raises OSError.
        """
        progress = self._progress.setdefault(path, _SegmentProgress())
        while progress.unacked or self._take(path, progress, is_closed=is_closed):
            if progress.unacked and not self._send(outlet, progress.unacked, must_end):
                return False
        if is_closed:
            path.unlink(missing_ok=True)
            del self._progress[path]
        return True

    def _take(self, path: Path, progress: _SegmentProgress, *, is_closed: bool) -> bool:
        """Read the next chunk of a segment; return False at its end."""
        try:
            with path.open("rb") as file:
                file.seek(progress.taken_bytes)
                data = file.read(self._chunk_bytes)
                if b"\n" not in data:
                    data += file.readline()
        except FileNotFoundError:
            return False  # the segment was deleted
        # In an open segment, the writer may not have finished the last record.
        data = data[: data.rfind(b"\n") + 1] or (data if is_closed else b"")
        if not data:
            return False
        lines = [line for line in data.split(b"\n") if line]
        progress.unacked = dict(enumerate(self.messages(path, lines)))
        progress.taken_bytes += len(data)
        return True

    def _send(
        self, outlet: SegmentOutlet, unacked: dict[int, Outgoing], must_end: Callable[[], bool]
    ) -> bool:
        waiting = set(unacked)
        for index, message in list(unacked.items()):
            on_done = partial(self._answered, unacked, waiting, index)
            outlet.send(message.value, on_done, message.key)
            outlet.serve(0)
        deadline = monotonic() + self.deadline_s
        while waiting and not must_end():
            if monotonic() >= deadline:
                late = PublishFailedError("the broker has not answered")
                self._trouble.begins(self._held, self.describe(late))
                break
            outlet.serve(_SERVE_S)
        if unacked:
            return False
        self._trouble.ends()
        return True

    def _answered(
        self,
        unacked: dict[int, Outgoing],
        waiting: set[int],
        index: int,
        error: PublishFailedError | None,
    ) -> None:
        waiting.discard(index)
        message = unacked.get(index)
        if message is None:
            return  # already acked: it was sent again before its first answer came
        if error is None:
            self.shipped += message.weight
        elif not self.gives_up(message, error):
            self._trouble.begins(self._held, self.describe(error))
            return
        del unacked[index]
