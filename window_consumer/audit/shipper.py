"""Ships counts from the local log to the topic, and deletes what was acked.

Directories of processes that are gone are adopted: their counts are shipped, what their producers
had sent is counted or listed as unknown, and they are removed. A count may be sent twice, after a
crash between ack and deletion; its audit id tells.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

from window_consumer.audit.count import FORMAT
from window_consumer.audit.journal import (
    SAY_AGAIN_S,
    segments,
)
from window_consumer.model.errors import PublishFailedError
from window_consumer.runtime.log import own_logger

_LOG = own_logger()

MOST_BYTES: Final = 512 * 1024
"""Of a log that are shipped in one go, as long as no single line is longer."""

PATIENCE_S: Final = 10.0
"""For the acks of one go; the same lines are sent again then."""


class Outlet(Protocol):
    """Writes counts to the topic; used by one thread."""

    def send(
        self,
        value: bytes,
        on_done: Callable[[PublishFailedError | None], None],
        key: bytes | None = None,
    ) -> None:
        """Send counts; ``on_done`` is called once, here or in ``serve``, with None for an ack."""

    def serve(self, timeout_s: float) -> None:
        """Wait for an answer for so long, and hand out those that are there."""

    def close(self, timeout_s: float) -> int:
        """Wait for the answers that are missing; return how many are still missing then."""


class Shipper:
    """Ships one process's directory after another. Owner: one thread."""

    def __init__(self, outlet: Outlet):
        self._outlet = outlet
        self._shipped: dict[Path, int] = {}
        """How far each file has been shipped."""
        self._said_at = float("-inf")
        self.patience_s = PATIENCE_S
        self.shipped = 0
        """Counts that were acked."""
        self.torn = 0
        """Lines that could not be read."""
        self._blocked_at: float | None = None

    @property
    def blocked_s(self) -> float:
        """For how long the topic has taken nothing, 0 while it does. Any thread may ask."""
        at = self._blocked_at
        return 0.0 if at is None else max(0.0, monotonic() - at)

    def ship(self, lair: Path, *, is_over: Callable[[str], bool]) -> dict[str, int]:
        """Ship what is there; return how many bytes of each writer were deleted.

        ``is_over`` tells whether a writer will write no more. Raises OSError.
        """
        trimmed: defaultdict[str, int] = defaultdict(int)
        found = segments(lair)
        for index, (client, _, path) in enumerate(found):
            has_next = index + 1 < len(found) and found[index + 1][0] == client
            # Asked before the file is read: what is written later will be shipped later.
            is_whole = has_next or is_over(client)
            if not self._ship_file(path):
                break
            if is_whole:
                size = path.stat().st_size
                if self._shipped.get(path, 0) >= size or self._only_torn_left(path):
                    path.unlink()
                    self._shipped.pop(path, None)
                    trimmed[client] += size
        return trimmed

    def _ship_file(self, path: Path) -> bool:
        """Ship all lines that are whole; False where the broker did not take them."""
        while True:
            at = self._shipped.get(path, 0)
            with path.open("rb") as file:
                file.seek(at)
                data = file.read(MOST_BYTES)
                if data and b"\n" not in data:
                    data += file.readline()
            data = data[: data.rfind(b"\n") + 1]
            if not data:
                return True
            if not self._send(data):
                return False
            self._shipped[path] = at + len(data)

    def _only_torn_left(self, path: Path) -> bool:
        """Tell whether all that is left is a line that its writer did not end."""
        with path.open("rb") as file:
            file.seek(self._shipped.get(path, 0))
            rest = file.read()
        self.torn += bool(rest)
        return b"\n" not in rest

    def _send(self, data: bytes) -> bool:
        groups: defaultdict[str, list[Any]] = defaultdict(list)
        for count in self._counts(data):
            groups[f"{count.get('topic')}|{count.get('bucket_ms')}"].append(count)
        errors: list[PublishFailedError] = []
        waiting = set(groups)

        def answer(key: str, error: PublishFailedError | None) -> None:
            waiting.discard(key)
            if error is not None:
                errors.append(error)

        for key, counts in groups.items():
            value = json.dumps(
                {"format": FORMAT, "counts": counts}, separators=(",", ":"), ensure_ascii=False
            )
            self._outlet.send(value.encode(), partial(answer, key), key.encode())
        deadline = monotonic() + self.patience_s
        while waiting and monotonic() < deadline:
            self._outlet.serve(0.1)
        if errors or waiting:
            why = str(errors[0]) if errors else "the broker has not answered"
            self._complain(why)
            if self._blocked_at is None:
                self._blocked_at = monotonic()
            return False
        self._blocked_at = None
        self.shipped += sum(map(len, groups.values()))
        return True

    def _counts(self, data: bytes) -> Iterator[dict[str, Any]]:
        for line in data.splitlines():
            try:
                plain = json.loads(line)
                if plain["format"] != FORMAT:
                    raise ValueError(f"format {plain['format']!r}")  # noqa: TRY301 - as all that cannot be read
                counts = [dict(each) for each in plain["counts"]]
            except (ValueError, TypeError, KeyError) as error:
                self.torn += 1
                self._complain(f"a line of the log cannot be read ({error}): it is left out")
                continue
            yield from counts

    def _complain(self, why: str) -> None:
        now = monotonic()
        if now - self._said_at >= SAY_AGAIN_S:
            self._said_at = now
            _LOG.warning("audit: counts stay in the local log: %s", why)
