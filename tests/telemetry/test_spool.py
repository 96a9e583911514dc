"""The spool keeps what it was given, within its bounds, whatever becomes of process and disk."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import DEADLINE_S
from tests.logged import events_in, fields_of
from window_consumer.model.log_events import LogEvent
from window_consumer.trace.recording.exporter import Written
from window_consumer.trace.recording.spool import PREFIX, Orphans, Spool, data_of

LOGGER = logging.getLogger("window_consumer")
MANY = 10**9


def batch(number: int, size: int = 20) -> Written:
    return Written(f"{number:0{size}}".encode(), 3)


def spool(directory: Path, max_bytes: int = MANY) -> Spool:
    return Spool(directory, max_bytes, LOGGER)


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.spool"))


def numbers(*paths: Path) -> list[int | None]:
    lines = (line for path in paths for line in path.read_bytes().split(b"\n") if line)
    return [None if data is None else int(data[-9:]) for data in map(data_of, lines)]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: as if the disk were full then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_what_is_written_is_on_disk_at_once(tmp_path: Path) -> None:
    written = spool(tmp_path / "new" / "directory")
    written.append([batch(1), batch(2)])
    written.append([batch(3)])
    assert numbers(*files(tmp_path / "new" / "directory")) == [1, 2, 3]
    assert not written.finished
    written.finish()
    assert numbers(*written.finished) == [1, 2, 3]


EARLIER = (
    b'cec1674e {"format":1,"writer":"w","sequence":1,"count":2,"all":{},"columns":{}}\n'
    b'f9d01209 {"n":"\xc3\xa9"}\n'
)
"""What an earlier version wrote for the batches below."""


def test_files_have_the_bytes_that_earlier_versions_wrote_and_read(tmp_path: Path) -> None:
    data = [
        b'{"format":1,"writer":"w","sequence":1,"count":2,"all":{},"columns":{}}',
        '{"n":"é"}'.encode(),
    ]
    written = spool(tmp_path)
    written.append([Written(each, 1) for each in data])
    (path,) = files(tmp_path)
    assert re.fullmatch(r"wc-trace-1-[0-9a-f]{12}-000000001\.spool", path.name)
    assert (tmp_path / f"{path.name.rpartition('-')[0]}.lock").exists()
    assert path.read_bytes() == EARLIER
    assert [data_of(line) for line in EARLIER.splitlines()] == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_an_earlier_version_left_is_adopted(tmp_path: Path) -> None:
    path = tmp_path / "wc-trace-1-941e8a35d98a-000000001.spool"
    path.write_bytes(EARLIER)
    (tmp_path / "wc-trace-1-941e8a35d98a.lock").touch()
    orphans = Orphans(tmp_path, LOGGER)
    assert orphans.adopt() == [path]
    orphans.close()


def test_files_are_ended_when_they_are_large(tmp_path: Path) -> None:
    written = spool(tmp_path)
    written.append([batch(number, 1_000_000) for number in range(10)])
    assert len(written.finished) == 2
    assert numbers(*files(tmp_path)) == list(range(10))


def test_what_finds_no_room_is_counted_and_said_once_and_then_it_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    written = spool(tmp_path, max_bytes=100)
    for number in range(1, 6):
        written.append([batch(number)])
    assert numbers(*files(tmp_path)) == [1, 2, 3]
    assert written.lost == 6
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert events_in(caplog) == [LogEvent.TRACE_EVENTS_LOST]
    written.finish()
    for path in list(written.finished):
        path.unlink()
    written.append([batch(6)])
    assert numbers(*files(tmp_path)) == [6]
    assert events_in(caplog)[-1] == LogEvent.TRACE_RECOVERED


def test_a_full_disk_costs_what_comes_then_and_nothing_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = spool(tmp_path)
    with largest_file(100):
        for number in range(1, 6):
            written.append([batch(number)])
        assert written.lost == 3  # a batch that begins a new file fits again
    assert numbers(*files(tmp_path)) == [1, 2, 3, 5]
    written.append([batch(6)])
    assert numbers(*files(tmp_path)) == [1, 2, 3, 5, 6]
    assert os.strerror(errno.EFBIG) in caplog.text


def test_a_disk_without_any_room_is_not_littered_with_empty_files(tmp_path: Path) -> None:
    written = spool(tmp_path)
    with largest_file(10):
        for number in range(5):
            written.append([batch(number)])
    assert written.lost == 15
    assert len(files(tmp_path)) == 1
    written.append([batch(6)])
    assert numbers(*files(tmp_path)) == [6]


def test_a_directory_that_cannot_be_written_to_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = tmp_path / "spool"
    in_the_way.write_text("a file")
    written = spool(in_the_way)
    written.append([batch(1)])
    written.append([batch(2)])
    assert written.lost == 6
    assert len(caplog.records) == 1
    in_the_way.unlink()
    written.append([batch(3)])
    assert numbers(*files(in_the_way)) == [3]


def test_a_directory_that_somebody_deletes_is_made_anew(tmp_path: Path) -> None:
    written = spool(tmp_path / "spool")
    written.append([batch(1)])
    for path in (tmp_path / "spool").iterdir():
        path.unlink()
    (tmp_path / "spool").rmdir()
    written.append([batch(2)])
    assert numbers(*files(tmp_path / "spool")) == [2]
    assert Orphans(tmp_path / "spool", LOGGER).adopt() == []


@pytest.mark.parametrize("cut", [1, 10, 29])
def test_a_torn_line_is_known_as_such_and_the_others_are_read(tmp_path: Path, cut: int) -> None:
    written = spool(tmp_path)
    written.append([batch(1), batch(2)])
    (path,) = files(tmp_path)
    os.truncate(path, path.stat().st_size - cut)
    assert numbers(path) == ([1, 2] if cut == 1 else [1, None])
    path.write_bytes(path.read_bytes().replace(b"0001", b"0007", 1))
    assert numbers(path)[0] is None


def test_two_processes_keep_to_their_own_files(tmp_path: Path) -> None:
    one, other = spool(tmp_path), spool(tmp_path)
    one.append([batch(1)])
    other.append([batch(2)])
    one.finish()
    other.finish()
    assert (numbers(*one.finished), numbers(*other.finished)) == ([1], [2])
    orphans = Orphans(tmp_path, LOGGER)
    assert orphans.adopt() == []
    one.close()
    assert numbers(*orphans.adopt()) == [1]


def test_the_files_of_a_process_that_is_gone_belong_to_one_of_the_others(tmp_path: Path) -> None:
    gone = spool(tmp_path)
    gone.append([batch(1)])
    gone.close()
    one, other = Orphans(tmp_path, LOGGER), Orphans(tmp_path, LOGGER)
    adopted = one.adopt()
    assert numbers(*adopted) == [1]
    assert other.adopt() == []
    one.close()
    assert other.adopt() == adopted
    adopted[0].unlink()
    assert other.adopt() == []
    assert list(tmp_path.iterdir()) == []


def test_who_leaves_nothing_leaves_no_lock(tmp_path: Path) -> None:
    written = spool(tmp_path)
    written.append([batch(1)])
    written.finish()
    written.finished.popleft().unlink()
    written.close()
    assert list(tmp_path.iterdir()) == []


def test_files_of_another_version_are_left_alone_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "wc-trace-2-abc-000000001.spool").write_bytes(b"another form")
    (tmp_path / "wc-trace-2-abc.lock").touch()
    spool(tmp_path).append([batch(1)])
    orphans = Orphans(tmp_path, LOGGER)
    assert orphans.adopt() == orphans.adopt()
    assert len(list(tmp_path.glob("wc-trace-2-*"))) == 2
    assert fields_of(caplog, LogEvent.TRACE_FILES_IGNORED)["args"][1] == 2


KILLED = """
import logging, sys
from pathlib import Path
from window_consumer.trace.recording.spool import Spool
from window_consumer.trace.recording.exporter import Written
spool = Spool(Path(sys.argv[1]), 10**9, logging.getLogger())
for number in range(10**6):
    spool.append([Written(b"%020d" % number, 1)])
    print(number, flush=True)
"""


def test_what_was_flushed_survives_kill_9_once_and_in_order(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 50:
            pass
        process.kill()
        said = process.stdout.read().split("\n")
        process.wait(DEADLINE_S)
    last = max([50, *(int(line) for line in said if line)])
    adopted = Orphans(tmp_path, LOGGER).adopt()
    found = [number for number in numbers(*adopted) if number is not None]
    assert found == list(range(len(found)))
    assert len(found) > last
    assert all(path.name.startswith(PREFIX) for path in adopted)


def test_a_lock_that_others_see_is_held(tmp_path: Path) -> None:
    ended = threading.Event()
    held: set[str] = set()
    free: list[str] = []

    def look() -> None:
        while not ended.is_set():
            for name in {path.name for path in tmp_path.glob(f"{PREFIX}*.lock")} - held:
                lock = os.open(tmp_path / name, os.O_RDWR)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    free.append(name)
                except BlockingIOError:
                    held.add(name)
                os.close(lock)

    thread = threading.Thread(target=look)
    thread.start()
    switched = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    spools = []
    try:
        for number in range(250):
            spools.append(spool(tmp_path))
            spools[-1].append([batch(number)])
    finally:
        sys.setswitchinterval(switched)
        ended.set()
        thread.join()
        for each in spools:
            each.close()
    assert free == []
    assert sum(each.lost for each in spools) == 0
