"""The audit of one process: its local log, its counting clients, and the thread that ships it."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self

from attrs import evolve, field, frozen

from window_consumer.audit import sends
from window_consumer.audit.consumer import AuditRules, ConsumerAudit
from window_consumer.audit.count import AuditCount, CountTier, decode
from window_consumer.audit.journal import (
    SAY_AGAIN_S,
    CountJournal,
    Identity,
    JournalDirectory,
    abandon,
    is_begun,
    is_journal_directory,
    lock,
    new_incarnation,
    segments,
)
from window_consumer.audit.metrics import AuditFigures
from window_consumer.audit.producer import ProducerAudit, counted, listed
from window_consumer.audit.sends import AGAIN_S, Sends
from window_consumer.audit.shipper import DEADLINE_S, Shipper
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Clock
from window_consumer.runtime.clock import SystemClock
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.segment_log.shipper import SegmentOutlet

FLUSH_S: Final = 1.0
"""How often producers' counts are written, and all counts shipped."""

LAST_DEADLINE_S: Final = 3.0
"""How long ``close`` waits for the acks of the last counts."""

_LOG = own_logger()


@frozen(kw_only=True)
class AuditSettings:
    """The place of an audit, and how it counts."""

    directory: Path = field(converter=Path)
    app: str
    rules: AuditRules = field(factory=AuditRules)
    fsync: bool = False
    """Sync each line to disk before its commit is sent, for machines that may lose power."""
    full_disk_s: float = AGAIN_S
    """How long a producer waits after the disk had no room before it tries again."""


class Audit:
    """Counts for all workers and producers of a process, until it is closed.

    ``make_outlet`` creates the writer to Kafka; without it the counts stay in the directory. Raises
    UsageError if the directory is not writable.
    """

    def __init__(
        self,
        settings: AuditSettings,
        make_outlet: Callable[[], SegmentOutlet] | None = None,
        clock: Clock | None = None,
    ):
        self._settings = settings
        self._clock_ms = (clock or SystemClock()).wall_ms
        instance = f"{platform.node() or 'localhost'}:{os.getpid()}"
        self._identity = Identity(settings.app, instance, new_incarnation(self._clock_ms()))
        self._journal_directory = JournalDirectory(settings.directory, self._identity.incarnation)
        self._journals: dict[str, CountJournal] = {}
        self._over: set[str] = set()
        self._producers: dict[str, ProducerAudit] = {}
        self._make_outlet = make_outlet
        self._outlet: SegmentOutlet | None = None
        self._shipper: Shipper | None = None
        self._deadline_s = DEADLINE_S
        self._said: dict[str, float] = {}
        """Recent warnings, and when each was logged."""
        self._broken_at: float | None = None
        """Since when shipping has failed."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wc-audit", daemon=True)
        self._thread.start()

    def consumer(self, client: str, group: str) -> ConsumerAudit:
        """Return a counter for the outcomes of a worker's records."""
        journal = self._journal(client)
        return ConsumerAudit(group, self._settings.rules, journal.write, self._clock_ms)

    def producer(
        self,
        client: str,
        group: str = "",
        origins: Callable[[str], str] = lambda _topic: "",
        tier: CountTier = CountTier.PRODUCED,
    ) -> ProducerAudit:
        """Return a counter for the records of a producer."""
        journal = self._journal(client)
        rules = self._settings.rules
        producer = ProducerAudit(
            Sends(self._journal_directory.path, client, group, self._settings.full_disk_s),
            journal,
            bucket_ms=rules.bucket_ms,
            ids=rules.ids,
            group=group,
            origins=origins,
            tier=tier,
        )
        self._producers[client] = producer
        return producer

    def figures(self) -> AuditFigures:
        """Return the figures of this process's counts. Any thread may ask."""
        journals, shipper = list(self._journals.values()), self._shipper
        lost = {
            "disk": sum(journal.lost_in_all for journal in journals),
            "sends": sum(producer.untracked for producer in list(self._producers.values())),
        }
        held = sum(journal.written_bytes - journal.trimmed_bytes for journal in journals)
        broken_at = self._broken_at
        blocked_s = 0.0 if broken_at is None else max(0.0, monotonic() - broken_at)
        if shipper is None:
            return AuditFigures(0, lost, 0, held, blocked_s)
        blocked_s = max(blocked_s, shipper.blocked_s)
        return AuditFigures(shipper.shipped, lost, shipper.torn, held, blocked_s)

    def close(self) -> None:
        """Write and ship the rest; counts that do not arrive in time stay in the log."""
        self._stop.set()
        self._thread.join()
        for client, producer in self._producers.items():
            self._carefully(producer.close)
            self._over.add(client)
        for client, journal in self._journals.items():
            journal.write([self._last()], final=True)
            journal.close()
            self._over.add(client)
        self._deadline_s = LAST_DEADLINE_S
        self._carefully(self._ship)
        self._journal_directory.close()
        if self._outlet is not None:
            self._outlet.close(0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _journal(self, client: str) -> CountJournal:
        if client in self._journals:
            raise ValueError(f"{client} already counts: each client needs its own name")
        journal = CountJournal(
            self._journal_directory.path, client, self._identity, fsync=self._settings.fsync
        )
        self._journals[client] = journal
        return journal

    def _last(self) -> dict[str, Any]:
        length_ms = self._settings.rules.bucket_ms
        start_ms = self._clock_ms() // length_ms * length_ms
        about = {"topic": "", "bucket_ms": start_ms, "length_ms": length_ms}
        return {"tier": CountTier.FINISHED, "count": 0, **about}

    def _run(self) -> None:
        while not self._stop.wait(FLUSH_S):
            for producer in list(self._producers.values()):
                self._carefully(producer.flush)
            self._try_to_ship()

    def _try_to_ship(self) -> None:
        if self._carefully(self._ship):
            self._broken_at = None
        elif self._broken_at is None:
            self._broken_at = monotonic()

    def _ship(self) -> None:
        if self._shipper is None and self._make_outlet is not None:
            self._outlet = self._make_outlet()
            self._shipper = Shipper(self._outlet)
        self._adopt()
        if self._shipper is None:
            return
        self._shipper.deadline_s = self._deadline_s
        trimmed = self._shipper.ship(self._journal_directory.path, is_over=self._over.__contains__)
        for client, size in trimmed.items():
            self._journals[client].trimmed_bytes += size

    def _adopt(self) -> None:
        """Take over the directories of dead processes."""
        for path in sorted(self._settings.directory.iterdir()):
            if path == self._journal_directory.path or not (
                is_journal_directory(path) or is_begun(path)
            ):
                continue
            try:
                descriptor = lock(path)
            except FileNotFoundError:
                continue  # its process has just renamed it, or another process removed it
            if descriptor is None:
                continue
            try:
                if is_journal_directory(path):
                    inherit(path, self._identity, self._settings.rules)
                    if self._shipper is not None:
                        self._shipper.ship(path, is_over=lambda _client: True)
            finally:
                abandon(path, descriptor)

    def _carefully(self, do: Callable[[], object]) -> bool:
        """Call ``do``; return whether it succeeded. Log each error at most once a minute."""
        try:
            do()
        except Exception as error:
            # A failing audit must neither stop the work nor fill the log: this runs every second.
            text = f"{type(error).__name__}: {error}"
            now = monotonic()
            if now - self._said.get(text, float("-inf")) >= SAY_AGAIN_S:
                recent = {each: at for each, at in self._said.items() if now - at < SAY_AGAIN_S}
                self._said = {**recent, text: now}
                _LOG.warning("audit: %s", text, extra={"event": LogEvent.AUDIT_FAILED})
            return False
        return True


def inherit(journal_directory: Path, heir: Identity, rules: AuditRules) -> None:
    """Count the sends of a dead process's producers; raises OSError.

    The counts carry the producer's name, and its incarnation with a plus, because the extent of its
    own counts is unknown.
    """
    for client in sends.clients(journal_directory):
        own = [
            (number, path) for name, number, path in segments(journal_directory) if name == client
        ]
        counts = [count for _, path in own for count in _read(path)]
        heirs_name = f"{journal_directory.name}+"
        if not any(count.incarnation == heirs_name for count in counts):
            sequence = max((count.sequence for count in counts), default=0)
            journal = CountJournal(journal_directory, client, evolve(heir, incarnation=heirs_name))
            journal.begin_after(max((number for number, _ in own), default=0))
            rows = _left_behind(journal_directory, client, sequence, rules)
            if rows and not journal.write(rows):
                return
            journal.close()
        for path in sends.files(journal_directory, client):
            path.unlink()


def _read(path: Path) -> Iterator[AuditCount]:
    for line in path.read_bytes().splitlines():
        try:
            yield from decode(line)
        except ValueError:
            continue  # the shipper reports unreadable lines


def _left_behind(
    journal_directory: Path, client: str, sequence: int, rules: AuditRules
) -> list[dict[str, Any]]:
    """Return counts of a producer's uncounted sends, given the sequence of its log."""
    group = sends.group_of(journal_directory, client)
    found = sends.left_behind(journal_directory, client)
    # A record that was being counted has been counted if the log has advanced since.
    missing = [each for each in found if each.sequence is None or each.sequence >= sequence]
    unknown = [each for each in missing if not each.is_acked]
    acked = [each for each in missing if each.is_acked]
    if unknown:
        _LOG.warning(
            "audit: %s of %s ended with %d sends without a known result;"
            " they are counted as unknown",
            client,
            journal_directory.name,
            len(unknown),
            extra={"event": LogEvent.AUDIT_SENDS_UNKNOWN},
        )
    rows = [
        *counted(acked, rules.bucket_ms, rules.ids),
        *listed(unknown, rules.bucket_ms, rules.ids),
    ]
    return [{**row, "group": group} for row in rows]
