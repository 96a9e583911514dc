"""Writes alerts about lost records to a topic, one for each bucket."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.event_writer import EventWriter
from window_consumer.kafka.settings import EventNeeds
from window_consumer.model.errors import PublishFailedError, RunError

_DEADLINE_S: Final = 30.0
_NAMES: Final = ("topic", "group", "bucket_ms", "finding")
"""Two alerts with equal values of these fields are the same alert."""


@define
class Alerts:
    """The alerts for one directory of tables, which also keeps a log of the alerts written."""

    topic: str
    client: Mapping[str, Any]
    """The user's Kafka properties."""
    log: ClientLog
    directory: str
    deadline_s: float = _DEADLINE_S
    _failed: list[PublishFailedError] = field(factory=list, init=False)

    def write_new(self, found: Iterable[Mapping[str, Any]]) -> int:
        """Write an alert for each bucket that has none yet; return how many were written.

        ``found`` are rows of ``findings.findings``. An alert is a JSON object with the key
        ``topic/group/bucket_ms``. Raises RunError if Kafka does not accept them; the next call
        writes them again.
        """
        written = self._written_before()
        new = [row for row in found if _name(row) not in written]
        if not new:
            return 0
        self._failed.clear()
        needs = EventNeeds("wc-audit-alerts", acks="all", timeout_s=self.deadline_s)
        writer = EventWriter(self.client, needs, self.topic, self.log)
        for row in new:
            bucket = datetime.fromtimestamp(row["bucket_ms"] / 1000, UTC).isoformat()
            value = json.dumps({"what": "bucket", "bucket": bucket, **row}).encode()
            key = f"{row['topic']}/{row['group']}/{row['bucket_ms']}".encode()
            writer.send(value, self._on_delivered, key)
        missing = writer.close(self.deadline_s + 1)
        if missing or self._failed:
            why = self._failed[0] if self._failed else f"{missing} were not acked"
            raise RunError(f"alerts to {self.topic}: {why}")
        self._record(new)
        return len(new)

    def _on_delivered(self, failure: PublishFailedError | None) -> None:
        if failure is not None:
            self._failed.append(failure)

    @property
    def _record_path(self) -> Path | None:
        """The log of written alerts; None if the directory is not on this machine."""
        return None if "://" in self.directory else Path(self.directory, "audit-alerts.jsonl")

    def _written_before(self) -> set[tuple[Any, ...]]:
        if self._record_path is None or not self._record_path.exists():
            return set()
        return set(_names_in(self._record_path.read_text("utf-8")))

    def _record(self, rows: Iterable[Mapping[str, Any]]) -> None:
        if self._record_path is not None:
            at = int(time.time())
            torn = self._record_path.exists() and not self._record_path.read_bytes().endswith(b"\n")
            with self._record_path.open("a", encoding="utf-8") as notes:
                notes.write("\n" if torn else "")
                for row in rows:
                    written = {name: row[name] for name in _NAMES}
                    notes.write(json.dumps({**written, "told_at": at}) + "\n")


def _names_in(notes: str) -> Iterator[tuple[Any, ...]]:
    """Yield the alerts that were written; skip an incomplete line from a killed process."""
    for line in notes.splitlines():
        with suppress(ValueError):
            yield _name(json.loads(line))


def _name(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _NAMES)
