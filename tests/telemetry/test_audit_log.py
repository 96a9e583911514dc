"""The local log: what is in it outlives its process and is shipped; trouble costs no worker."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.golden_texts import Golden
from tests.logged import events_in, lines_of
from window_consumer.audit.balance import effective
from window_consumer.audit.consumer import AuditRules
from window_consumer.audit.count import AuditCount, CountTier, decode
from window_consumer.audit.feature import begun
from window_consumer.audit.journal import (
    CountJournal,
    Identity,
    JournalDirectory,
    abandon,
    lock,
    new_incarnation,
)
from window_consumer.audit.metrics import AuditFigures
from window_consumer.audit.process_audit import Audit, AuditSettings
from window_consumer.audit.sends import Sends, clients, left_behind
from window_consumer.audit.shipper import Shipper
from window_consumer.audit.sink import CountingSink
from window_consumer.model.errors import PublishFailedError, UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Copy
from window_consumer.testing.clock import ManualClock
from window_consumer.testing.fakes.sink import FakeSink, Fate
from window_consumer.testing.fakes.topics import FakeTopics

ROW: dict[str, Any] = {
    "tier": CountTier.FINISHED,
    "topic": "orders",
    "bucket_ms": 60_000,
    "length_ms": 60_000,
    "count": 5,
}
SHOP = Identity("shop", "host:1", "0001")


class Topic:
    """An outlet whose broker may refuse, or not answer."""

    def __init__(self) -> None:
        self.counts: list[AuditCount] = []
        self.keys: list[str] = []
        self.error: PublishFailedError | None = None
        self.answers = True

    def send(
        self,
        value: bytes,
        on_done: Callable[[PublishFailedError | None], None],
        key: bytes | None = None,
    ) -> None:
        if self.error is None:
            self.counts += decode(value)
            self.keys.append((key or b"").decode())
        if self.answers:
            on_done(self.error)

    def serve(self, timeout_s: float) -> None:
        pass

    def close(self, timeout_s: float) -> int:
        return int(timeout_s * 0)


def ship(shipper: Shipper, journal_directory: Path, *, is_over: bool = True) -> dict[str, int]:
    return shipper.ship(journal_directory, is_over=lambda _client: is_over)


def audit_in(directory: Path, topic: Topic | None = None, **more: Any) -> Audit:
    settings = AuditSettings(directory=directory, app="shop", rules=AuditRules(ids=True), **more)
    return Audit(settings, None if topic is None else lambda: topic, ManualClock())


def test_what_is_written_is_shipped_by_topic_and_bucket_and_then_deleted(tmp_path: Path) -> None:
    journal, topic = CountJournal(tmp_path, "charge", SHOP), Topic()
    journal.write([ROW, {**ROW, "bucket_ms": 0}])
    journal.write([ROW])
    shipper = Shipper(topic)
    assert not ship(shipper, tmp_path, is_over=False)
    assert sorted(topic.keys) == ["orders|0", "orders|60000"]
    assert sorted(count.sequence for count in topic.counts) == [1, 2, 3]
    assert len(list(tmp_path.iterdir())) == 1
    assert ship(shipper, tmp_path) == {"charge": journal.written_bytes}
    assert not list(tmp_path.iterdir())
    assert len(topic.counts) == 3
    journal.close()


def test_nobody_else_on_the_machine_can_read_what_is_written(tmp_path: Path) -> None:
    journal_directory = JournalDirectory(tmp_path, new_incarnation(0))
    journal = CountJournal(journal_directory.path, "charge", SHOP)
    journal.write([ROW])
    sends = Sends(journal_directory.path, "web")
    sends.sent("orders", 1, 0, b"1")
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert len(files) >= 4
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    journal.close()
    sends.close()
    journal_directory.close()


def test_what_the_broker_does_not_take_stays_and_is_sent_again(tmp_path: Path) -> None:
    journal, topic = CountJournal(tmp_path, "charge", SHOP), Topic()
    journal.write([ROW])
    shipper = Shipper(topic)
    topic.error = PublishFailedError("there is no such topic")
    ship(shipper, tmp_path)
    assert shipper.blocked_s > 0
    topic.error, topic.answers, shipper.deadline_s = None, False, 0.0
    ship(shipper, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    topic.answers = True
    assert shipper.blocked_s > 0
    ship(shipper, tmp_path)
    assert shipper.blocked_s == 0
    assert not list(tmp_path.iterdir())
    # Sent twice, because the first answer did not come; counted once.
    assert len(topic.counts) == 2
    assert len(effective(topic.counts).counts) == 1
    journal.close()


def test_a_torn_line_and_one_of_another_version_are_left_out(tmp_path: Path) -> None:
    journal, topic = CountJournal(tmp_path, "charge", SHOP), Topic()
    journal.write([ROW])
    journal.close()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"format":2,"counts":[]}\n' + whole[:40] + b"\n" + whole + whole[:9])
    shipper = Shipper(topic)
    ship(shipper, tmp_path)
    assert len(topic.counts) == 2
    assert shipper.torn == 3
    assert not list(tmp_path.iterdir())


EARLIER = (
    '{"format":1,"counts":[{"client":"charge","incarnation":"1700000000000-0000abcd","sequence":1,'
    '"tier":"finished","app":"shop","instance":"host:1","group":"é","topic":"orders",'
    '"partition":3,"bucket_ms":60000,"length_ms":60000,"epoch_ms":1,"offsets":[[0,5]],"count":5,'
    '"bytes":50,"latency":{"3":1,"9":4}},{"client":"charge",'
    '"incarnation":"1700000000000-0000abcd","sequence":2,"tier":"finished","app":"shop",'
    '"instance":"host:1","group":"é","topic":"orders","partition":3,"bucket_ms":0,'
    '"length_ms":60000,"epoch_ms":1,"offsets":[[0,5]],"count":5,"bytes":50,'
    '"latency":{"3":1,"9":4}}]}\n{"format":1,"counts":[{"client":"charge",'
    '"incarnation":"1700000000000-0000abcd","sequence":3,"tier":"retried","app":"shop",'
    '"instance":"host:1","group":"é","topic":"orders","partition":3,"bucket_ms":60000,'
    '"length_ms":60000,"epoch_ms":1,"offsets":[[0,5]],"count":5,"bytes":50,'
    '"latency":{"3":1,"9":4},"final":true}]}\n'
).encode()
"""What an earlier version wrote for the counts below."""


def test_files_have_the_bytes_that_earlier_versions_wrote(tmp_path: Path) -> None:
    incarnation = "1700000000000-0000abcd"
    journal_directory = JournalDirectory(tmp_path, incarnation)
    journal = CountJournal(
        journal_directory.path, "charge", Identity("shop", "host:1", incarnation)
    )
    row = {
        **ROW,
        "group": "é",
        "partition": 3,
        "bytes": 50,
        "offsets": ((0, 5),),
        "epoch_ms": 1,
        "latency": {3: 1, 9: 4},
    }
    journal.write([row, {**row, "bucket_ms": 0}])
    journal.write([{**row, "tier": CountTier.RETRIED}], final=True)
    written = {path.name: path.read_bytes() for path in journal_directory.path.iterdir()}
    assert written == {"lock": b"", "charge.00000001.log": EARLIER}
    journal.close()
    journal_directory.close()


def test_what_an_earlier_version_left_is_shipped_and_removed(tmp_path: Path) -> None:
    left = tmp_path / "1700000000000-0000abcd"
    left.mkdir()
    (left / "lock").touch()
    (left / "charge.00000001.log").write_bytes(EARLIER)
    topic = Topic()
    with audit_in(tmp_path, topic):
        pass
    assert [count.sequence for count in topic.counts] == [1, 3, 2]  # by topic and bucket
    assert topic.keys == ["orders|60000", "orders|0"]
    assert not list(tmp_path.iterdir())


def test_a_line_that_misses_nothing_but_its_end_is_shipped(tmp_path: Path) -> None:
    """... for whoever inherits the directory takes its counts for written."""
    (tmp_path / "charge.00000001.log").write_bytes(EARLIER[:-1])
    topic = Topic()
    shipper = Shipper(topic)
    ship(shipper, tmp_path)
    assert (len(topic.counts), shipper.torn) == (3, 0)
    assert not list(tmp_path.iterdir())


def test_counts_that_go_to_a_deleted_file_are_lost_and_reported(tmp_path: Path) -> None:
    journal_directory, topic = JournalDirectory(tmp_path, new_incarnation(0)), Topic()
    journal = CountJournal(journal_directory.path, "charge", SHOP)
    assert journal.write([ROW])
    shutil.rmtree(journal_directory.path)
    assert not journal.write([ROW])
    journal_directory.path.mkdir()
    assert journal.write([ROW])
    ship(Shipper(topic), journal_directory.path)
    assert [count.lost for count in topic.counts] == [5]
    journal.close()
    journal_directory.close()


def test_a_directory_that_is_gone_costs_counts_which_the_next_one_tells(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal, topic = CountJournal(tmp_path, "charge", SHOP), Topic()
    journal.write([ROW])
    journal_directory, journal._journal_directory = journal._journal_directory, tmp_path / "gone"
    journal.close()
    assert not journal.write([ROW])
    assert not journal.write([ROW])
    journal._journal_directory = journal_directory
    assert journal.write([ROW])
    assert events_in(caplog).count(LogEvent.AUDIT_COUNTS_LOST) == 1
    ship(Shipper(topic), tmp_path)
    assert [count.lost for count in topic.counts] == [0, 10]
    journal.close()


def test_a_directory_may_be_given_as_a_text(tmp_path: Path) -> None:
    with Audit(AuditSettings(directory=str(tmp_path), app="web")):
        assert list(tmp_path.glob("*/lock"))


def test_what_is_missing_and_what_waits_is_reported_by_why(tmp_path: Path) -> None:
    with audit_in(tmp_path) as audit:
        producer = audit.producer("web")
        producer.untracked = 3
        journal = audit._journals["web"]
        assert journal.write([ROW])
        held = journal.written_bytes
        journal._most_bytes = held
        assert not journal.write([ROW])
        assert audit.figures() == AuditFigures(0, {"disk": 5, "sends": 3}, 0, held, 0.0)


def test_what_goes_wrong_every_second_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with audit_in(tmp_path) as audit:
        for _ in range(3):
            assert not audit._carefully(lambda: 1 // 0)
            assert not audit._carefully(lambda: {1: 2}[0])
    classes = [each.getMessage().split()[1] for each in lines_of(caplog, LogEvent.AUDIT_FAILED)]
    assert classes == ["ZeroDivisionError:", "KeyError:"]


def test_shipping_that_fails_again_and_again_is_reported_as_blocked(tmp_path: Path) -> None:
    topic: list[Topic] = []

    def make() -> Topic:
        if not topic:
            raise ConnectionError("not yet")
        return topic[0]

    with Audit(AuditSettings(directory=tmp_path, app="shop"), make, ManualClock()) as audit:
        # Without its thread: this one does what that one does every second.
        audit._stop.set()
        audit._thread.join()
        audit._try_to_ship()
        assert audit.figures().blocked_s > 0
        topic.append(Topic())
        audit._try_to_ship()
        assert audit.figures().blocked_s == 0


def test_a_file_that_is_cut_short_by_a_full_disk_has_no_torn_line(tmp_path: Path) -> None:
    script = f"""
import resource, signal, sys
from pathlib import Path
from window_consumer.audit.journal import CountJournal, Identity
from window_consumer.audit.count import CountTier
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
journal = CountJournal(Path({str(tmp_path)!r}), "charge", Identity("shop", "host:1", "0001"))
row = {{"tier": CountTier.FINISHED, "topic": "orders", "bucket_ms": 0, "length_ms": 1, "count": 1}}
print([journal.write([row]) for _ in range(4)])
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    written = [word == "True" for word in ended.stdout.strip("[]\n").split(", ")]
    assert False in written
    topic = Topic()
    shipper = Shipper(topic)
    ship(shipper, tmp_path)
    assert len(topic.counts) == sum(written)
    assert shipper.torn == 0
    assert sum(count.lost for count in topic.counts) + sum(written) <= 4


def test_a_directory_that_cannot_be_written_to_is_refused_at_the_start(
    tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "file").write_text("")
    with golden.raises(UsageError):
        JournalDirectory(tmp_path / "file", "0001")


@contextmanager
def no_more_than(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: whoever writes hears what a full disk would say."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_who_sends_notices_nothing_of_a_full_disk_and_is_counted_once_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic()
    with audit_in(tmp_path, topic, full_disk_s=0.0) as audit:
        audit._stop.set()
        audit._thread.join()
        with no_more_than(4096):
            producer = audit.producer("web", "shop")
            tokens = [producer.sent("orders", None, 10, 61_000, b"%d" % each) for each in range(3)]
            for token in tokens:
                producer.acked(token, 0, 0)
            assert not list(tmp_path.glob("*/*.sends"))
        assert tokens == [None, None, None]
        producer.acked(producer.sent("orders", None, 10, 61_000, b"3"), 0, 3)
        with no_more_than(14):  # the names of topics are cut short
            assert producer.sent("bills", None, 10, 61_000, b"4") is None
        producer.acked(producer.sent("bills", None, 10, 61_000, b"4"), 0, 3)
        (journal_directory,) = [each for each in tmp_path.iterdir() if each.is_dir()]
        assert (journal_directory / "web.topics").read_text() == "shop\norders\nbills\n"
    counts = [each for each in topic.counts if each.count]
    assert {(each.topic, each.count) for each in counts} == {("orders", 1), ("bills", 1)}
    assert max(each.lost for each in topic.counts) == 4
    assert LogEvent.AUDIT_SENDS_MISSED in events_in(caplog)


def test_workers_start_on_a_full_disk_but_not_with_a_directory_that_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=os.strerror(errno.ENOTDIR)):
        begun(AuditSettings(directory=tmp_path / "file" / "x", app="shop"), Topic)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    assert begun(AuditSettings(directory=tmp_path / "audit", app="shop"), Topic) is None
    assert os.strerror(errno.ENOSPC) in caplog.text
    assert events_in(caplog) == [LogEvent.AUDIT_DISABLED]


def test_a_worker_writes_whatever_becomes_of_the_counts(tmp_path: Path) -> None:
    copy = Copy("shop.orders.dlq", 0, None, b"an order", [])
    answers: list[PublishFailedError | None] = []
    topics = FakeTopics()
    topics.create("shop.orders.dlq", 1)
    fake = FakeSink(topics, lambda _copy: Fate.ACKED)
    with audit_in(tmp_path) as audit:
        producer = audit.producer("copies", "shop")
        sink = CountingSink(fake, producer, ManualClock())
        sink.write(copy._replace(timestamp=2**70), answers.append)  # no number that fits
        sink.write(copy, answers.append)
        taken = producer._sends.taken()
        assert (len(taken), producer.untracked) == (1, 1)
    fake.serve()  # when nobody counts any more
    assert answers == [None, None]


def test_a_log_that_nobody_ships_is_bounded(tmp_path: Path) -> None:
    journal = CountJournal(tmp_path, "charge", SHOP, most_bytes=500)
    kept = [journal.write([ROW]) for _ in range(9)]
    assert kept[0]
    assert not kept[-1]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 500
    journal.trimmed_bytes = journal.written_bytes
    assert journal.write([ROW])
    journal.close()


def test_what_a_producer_sends_is_counted_when_it_is_acked(tmp_path: Path) -> None:
    topic = Topic()
    with audit_in(tmp_path, topic) as audit:
        producer = audit.producer("web")
        for number in range(3):
            token = producer.sent("orders", None, 10, 61_000, b"%d" % number)
            producer.acked(token, 2, number)
        refused = PublishFailedError("too large", refused=True)
        producer.failed(producer.sent("orders", None, 10, 61_000, b"3"), refused)
        producer.failed(producer.sent("orders", None, 10, 61_000, b"4"), BufferError())
        producer.failed(producer.sent("orders", None, 10, 1_000, b"5"), PublishFailedError("late"))
        producer.sent("orders", None, 10, 1_000, b"6")
    sums = {
        (count.tier, count.partition, count.bucket_ms): (count.count, count.bytes, count.ids)
        for count in topic.counts
        if count.topic == "orders"
    }
    assert sums == {
        (CountTier.PRODUCED, 2, 60_000): (3, 30, ()),
        (CountTier.UNKNOWN, -1, 0): sums[CountTier.UNKNOWN, -1, 0],
    }
    unknown = [each for each in topic.counts if each.tier is CountTier.UNKNOWN]
    assert sorted(name for each in unknown for name in each.ids) == ["5", "6"]
    assert not list(tmp_path.iterdir())


KILLED = """
import os, signal, sys
from pathlib import Path
from window_consumer.audit.process_audit import Audit, AuditSettings
from window_consumer.audit.consumer import AuditRules

settings = AuditSettings(directory=Path(sys.argv[1]), app="web", rules=AuditRules(ids=True))
audit = Audit(settings)
producer = audit.producer("web", "shop")
audit._stop.set()
audit._thread.join()
for number in range(20_000):
    token = producer.sent("orders" if number % 2 else "bills", None, 10, 61_000, b"%d" % number)
    if number < 19_990:
        producer.acked(token, 0, number)
    if number == 15_000:
        producer.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_producer_had_sent_is_counted_or_listed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    topic = Topic()
    for _ in range(2):
        with audit_in(tmp_path, topic):
            pass
    tiers: dict[CountTier, int] = dict.fromkeys(CountTier, 0)
    found = effective(topic.counts).counts
    for count in found:
        tiers[count.tier] += count.count
    assert tiers[CountTier.PRODUCED] == 19_990
    assert tiers[CountTier.UNKNOWN] == 10
    unknown = {name for count in found for name in count.ids}
    assert unknown == {str(number) for number in range(19_990, 20_000)}
    assert {count.topic for count in found if count.tier is CountTier.PRODUCED} == {
        "orders",
        "bills",
    }
    assert {count.group for count in found if count.count} == {"shop"}
    assert not list(tmp_path.iterdir())


def test_a_directory_of_a_process_that_lives_is_left_alone(tmp_path: Path) -> None:
    topic = Topic()
    with audit_in(tmp_path) as first:
        producer = first.producer("web")
        producer.sent("orders", None, 10, 61_000, b"1")
        with audit_in(tmp_path, topic):
            pass
        assert not topic.counts or {count.count for count in topic.counts} == {0}
        assert len(list(tmp_path.iterdir())) == 1
    assert len(list(tmp_path.iterdir())) == 1  # without an outlet its counts stay


def test_directories_of_others_and_those_in_the_making_are_left_alone(tmp_path: Path) -> None:
    for name in ("backup", ".1700000000000-00000000", "1700000000000"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").write_text("")
        (tmp_path / name / "charge.00000001.log").write_text("")
    with audit_in(tmp_path, Topic()):
        pass
    assert len(list(tmp_path.rglob("*.log"))) == 3


def test_what_a_process_leaves_that_dies_in_its_first_or_last_moment_is_removed(
    tmp_path: Path,
) -> None:
    """... while it makes its directory, or while it removes one: of a worker that is killed."""
    (tmp_path / ".1700000000000-00000000").mkdir()
    (tmp_path / ".1700000000000-00000000" / "lock").touch()
    (tmp_path / ".1700000000000-00000001").mkdir()
    (tmp_path / "1700000000000-00000002").mkdir()
    with audit_in(tmp_path, Topic()):
        pass
    assert not list(tmp_path.iterdir())


def test_processes_that_begin_and_look_for_what_is_left_do_not_disturb_each_other(
    tmp_path: Path,
) -> None:
    ended = Event()

    def inherit() -> None:
        while not ended.is_set():
            for path in tmp_path.iterdir():
                with suppress(FileNotFoundError):
                    descriptor = lock(path)
                    if descriptor is not None:
                        abandon(path, descriptor)

    inheriting = Thread(target=inherit)
    inheriting.start()
    for number in range(300):
        journal_directory = JournalDirectory(tmp_path, f"1700000000000-{number:08d}")
        assert journal_directory.path.exists()
        assert lock(journal_directory.path) is None
        journal_directory.close()
    ended.set()
    inheriting.join()
    assert not list(tmp_path.iterdir())


def test_an_heir_that_dies_while_it_inherits_makes_nobody_count_twice(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (journal_directory,) = tmp_path.iterdir()
    tables = {
        path: path.read_bytes() for path in journal_directory.iterdir() if path.suffix != ".log"
    }
    with audit_in(tmp_path):
        pass
    for path, table in tables.items():
        path.write_bytes(table)  # as if it had died before it removed them
    topic = Topic()
    with audit_in(tmp_path, topic):
        pass
    found = effective(topic.counts).counts
    assert sum(count.count for count in found) == 20_000


def test_a_table_grows_and_its_rows_are_used_again(tmp_path: Path) -> None:
    sends = Sends(tmp_path, "web")
    rows = [sends.sent("orders", 1, 1, b"id") for _ in range(40_000)]
    assert len(set(rows)) == 40_000
    assert len(list(left_behind(tmp_path, "web"))) == 40_000
    for row in rows:
        assert row is not None
        sends.free(row)
    again = [sends.sent("orders", 1, 1, b"id") for _ in range(40_000)]
    assert set(again) <= set(range(49_152))
    assert clients(tmp_path) == ["web"]
    sends.close()


def test_an_id_that_is_longer_than_its_row_keeps_its_hash(tmp_path: Path) -> None:
    long = b"x" * 80
    topics = []
    for number in range(2):
        topic = Topic()
        with audit_in(tmp_path / str(number), topic) as audit:
            producer = audit.producer("web")
            producer.acked(producer.sent("orders", None, 1, 61_000, long[: 80 - number]), 0, 1)
        topics.append([count.id_xor for count in topic.counts if count.count])
    assert topics[0] != topics[1]


def test_incarnations_of_later_processes_sort_behind_earlier_ones() -> None:
    names = [new_incarnation(each) for each in (999, 1_000, 1_700_000_000_000)]
    assert names == sorted(names)
