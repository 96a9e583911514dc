"""Ships counts from the local log to the topic, and deletes acked ones.

After a crash between ack and deletion a count is sent twice; both have the same audit id.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from window_consumer.audit.count import FORMAT
from window_consumer.audit.journal import SAY_AGAIN_S, segments
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.event_writer import EventWriter
from window_consumer.kafka.settings import EventNeeds
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import Trouble, own_logger
from window_consumer.runtime.segment_log.shipper import Outgoing, SegmentOutlet, SegmentShipper

_LOG = own_logger()

CHUNK_BYTES: Final = 512 * 1024
"""Bytes of a log that are shipped together, unless one line is longer. Counts of one topic and
bucket among them become one message.
"""

DEADLINE_S: Final = 10.0
"""For the acks of one batch: the waiting thread also writes producers' counts."""


NEEDS: Final = EventNeeds("wc-audit", "all")


def to_topic(properties: Mapping[str, Any], topic: str = "wc.audit") -> Callable[[], SegmentOutlet]:
    """Return an ``Audit``'s factory of producers for this topic, which must exist.

    ``properties`` are those of a Kafka client.
    """
    return partial(EventWriter, properties, NEEDS, topic, ClientLog(_LOG))


class Shipper(SegmentShipper):
    """Ships the directories of processes, one after another. Owner: one thread.

    It never drops a count, whatever the broker answers, because the balance would miss it.
    """

    def __init__(self, outlet: SegmentOutlet):
        trouble = Trouble(
            _LOG, LogEvent.AUDIT_RECOVERED, "audit: counts reach the topic again", SAY_AGAIN_S
        )
        super().__init__(
            trouble, LogEvent.AUDIT_COUNTS_HELD, chunk_bytes=CHUNK_BYTES, deadline_s=DEADLINE_S
        )
        self._outlet = outlet

    def ship(self, journal_directory: Path, *, is_over: Callable[[str], bool]) -> dict[str, int]:
        """Ship a directory; return how many bytes of each writer were deleted.

        ``is_over`` returns whether a writer is closed. Raises OSError.
        """
        trimmed: defaultdict[str, int] = defaultdict(int)
        found = segments(journal_directory)
        for index, (client, _, path) in enumerate(found):
            has_next = index + 1 < len(found) and found[index + 1][0] == client
            is_closed = has_next or is_over(client)
            size = path.stat().st_size
            if not self.ship_segment(self._outlet, path, is_closed=is_closed):
                break
            if is_closed:
                trimmed[client] += size
        return trimmed

    def messages(self, path: Path, lines: Sequence[bytes]) -> Iterable[Outgoing]:
        """Return a message for each topic and bucket; skip unreadable lines."""
        groups: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        torn: list[Exception] = []
        for line in lines:
            try:
                plain = json.loads(line)
                if plain["format"] != FORMAT:
                    raise ValueError(f"format {plain['format']!r}")  # noqa: TRY301 - handled like other unreadable lines
                counts = [dict(each) for each in plain["counts"]]
            except (ValueError, TypeError, KeyError) as error:
                torn.append(error)
                continue
            for count in counts:
                groups[f"{count.get('topic')}|{count.get('bucket_ms')}"].append(count)
        if torn:
            self.torn += len(torn)
            text = "audit: %s: %d lines cannot be read (%s) and are skipped"
            _LOG.warning(
                text, path, len(torn), torn[-1], extra={"event": LogEvent.AUDIT_LINE_SKIPPED}
            )
        for key, counts in groups.items():
            value = json.dumps(
                {"format": FORMAT, "counts": counts}, separators=(",", ":"), ensure_ascii=False
            )
            yield Outgoing(value.encode(), len(counts), key.encode())

    def describe(self, error: PublishFailedError) -> str:
        """Return the line to log when the topic does not accept counts."""
        return f"audit: counts stay in the local log: {error}"
