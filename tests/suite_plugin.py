"""The suite's pytest plugin: chooses which process runs which file, and speeds up collection.

Processes run whole files, those that take long first: begun late they would run when all others
have ended. Spark's files go to the first processes only, as each of these starts a session. All
processes use one Kafka.
"""

from __future__ import annotations

import fcntl
import gc
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests import shared_kafka

SPARK = ("tests/backfill/", "tests/pipeline/")
SPARK_PROCESSES = 2
SHARING = "tests/architecture/"

TAKES_S = {
    "tests/admin/test_page.py": 35,
    "tests/architecture/test_docstrings.py": 3,
    "tests/backfill/test_backlog.py": 200,
    "tests/backfill/test_killed.py": 190,
    "tests/benchmarks/test_breaker_rehearsals.py": 60,
    "tests/benchmarks/test_runs.py": 105,
    "tests/cli/test_breaker.py": 30,
    "tests/cli/test_doctor.py": 50,
    "tests/console/test_dead_letters.py": 60,
    "tests/database/test_bad_days.py": 30,
    "tests/database/test_once.py": 30,
    "tests/delay/test_refusing_targets.py": 70,
    "tests/delay/test_wheel_service.py": 60,
    "tests/dev/test_reload.py": 60,
    "tests/docs/takeovers/test_faust.py": 20,
    "tests/docs/takeovers/test_spring.py": 45,
    "tests/docs/test_shop.py": 120,
    "tests/integration/test_broker_trouble.py": 140,
    "tests/integration/test_exactly_once.py": 50,
    "tests/integration/test_idle_worker.py": 20,
    "tests/integration/test_levels_while_they_wait.py": 60,
    "tests/integration/test_levels_with_members.py": 45,
    "tests/integration/test_members_that_vanish.py": 60,
    "tests/integration/test_members_with_other_levels.py": 20,
    "tests/integration/test_records_that_kill.py": 70,
    "tests/integration/test_rolling_restarts.py": 110,
    "tests/integration/test_start_permissions.py": 60,
    "tests/integration/test_topics_that_change.py": 80,
    "tests/integration/test_usual_heartbeats.py": 45,
    "tests/kafka/test_lifeline.py": 40,
    "tests/kafka/test_oauth.py": 60,
    "tests/kafka/test_real_kafka.py": 70,
    "tests/login/test_real_kafka.py": 50,
    "tests/new_failures/test_versions.py": 50,
    "tests/pipeline/test_audit.py": 60,
    "tests/pipeline/test_audit_findings.py": 60,
    "tests/pipeline/test_audit_of_a_shop.py": 300,
    "tests/pipeline/test_bad_days.py": 180,
    "tests/pipeline/test_checkpoints.py": 90,
    "tests/pipeline/test_dead_letter_report.py": 60,
    "tests/pipeline/test_dead_letters_end_to_end.py": 30,
    "tests/pipeline/test_forgetting.py": 155,
    "tests/pipeline/test_jobs.py": 200,
    "tests/pipeline/test_journeys.py": 60,
    "tests/pipeline/test_kills.py": 190,
    "tests/pipeline/test_maintenance.py": 270,
    "tests/pipeline/test_recreated_topics.py": 210,
    "tests/pipeline/test_session.py": 30,
    "tests/pipeline/test_snapshots.py": 110,
    "tests/pipeline/test_standalone.py": 400,
    "tests/pipeline/test_ticks.py": 35,
    "tests/runtime/test_process_deaths.py": 20,
    "tests/runtime/test_process_pool.py": 10,
    "tests/runtime/test_process_stalls.py": 10,
    "tests/runtime/test_resting_children.py": 10,
    "tests/simulation/test_batches.py": 25,
    "tests/simulation/test_homes.py": 60,
    "tests/simulation/test_reassignment.py": 30,
    "tests/simulation/test_redrives.py": 75,
    "tests/simulation/test_simulator.py": 300,
}
"""Seconds of files whose tests take longer or shorter than usual; roughly, for the order."""

USUAL_S, KAFKA_S = 0.5, 3.0


class LongestFirst(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Files in the order of their durations."""

    def schedule(self) -> None:
        """Distribute files in the order of ``pytest_collection_modifyitems``."""
        self.config.option.loadscopereorder = False
        super().schedule()

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = next(self._files_for(node), None)
        if file is not None:
            self.workqueue.move_to_end(file, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if not node.shutting_down and next(self._files_for(node), None) is None:
            node.shutdown()  # it ends when it has run what it has
        else:
            super()._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        """Return the file of a test, or its folder if tests there share an expensive fixture."""
        return SHARING if nodeid.startswith(SHARING) else str(super()._split_scope(nodeid))

    def _files_for(self, node: WorkerController) -> Iterator[str]:
        """Yield the files that a process may run next, Spark's first if it has a session."""
        place = self.nodes.index(node)
        if place < SPARK_PROCESSES:
            yield from (file for file in self.workqueue if file.startswith(SPARK))
        yield from (file for file in self.workqueue if not file.startswith(SPARK))


_KAFKA = pytest.StashKey[shared_kafka.SharedKafka]()


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Start a Kafka for all processes when the first one needs it."""
    config.stash[_KAFKA] = shared_kafka.SharedKafka(_base_of(config) / "kafka")


def pytest_configure_node(node: WorkerController) -> None:
    """Tell a process where to ask for the Kafka."""
    node.workerinput[shared_kafka.PLACE] = str(node.config.stash[_KAFKA].directory)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the Kafka after all tests."""
    kafka = config.stash.get(_KAFKA, None)
    if kafka is not None:
        kafka.end()


def _base_of(config: pytest.Config) -> Path:
    """Return the directory of a run, in which each process has one of its own."""
    return Path(config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined] # as xdist does


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LongestFirst:
    """Schedule by duration."""
    return LongestFirst(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep what pytest makes of test files: to make it takes ten seconds, and the first does it.

    Only that, where PYTHONDONTWRITEBYTECODE is set: not what tests write and import. All that is
    collected stays: to look for what can be freed takes a third of the time.
    """
    writes_none = sys.dont_write_bytecode
    sys.dont_write_bytecode = False
    gc.disable()
    try:
        with _first_alone(session.config):
            return (yield)
    finally:
        gc.freeze()
        gc.enable()
        sys.dont_write_bytecode = writes_none


@contextmanager
def _first_alone(config: pytest.Config) -> Iterator[None]:
    """Make the run's other processes wait until the first has collected."""
    if not hasattr(config, "workerinput"):
        yield
        return
    with Path(config.option.basetemp).with_name("collecting").open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_SH)
            fcntl.flock(file, fcntl.LOCK_UN)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Fail if a test belongs to no stage: later stages read only files that name their mark."""
    for mark in ("alone", "calm"):
        if item.get_closest_marker(mark) and not _names(item.path, mark):
            raise pytest.UsageError(
                f"{item.nodeid} is {mark}: its file has to name pytest.mark.{mark}"
            )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files by how long they take."""
    usual_s: defaultdict[str, float] = defaultdict(float)
    for item in items:
        usual_s[file_of(item)] += KAFKA_S if item.get_closest_marker("kafka") else USUAL_S
    items.sort(key=lambda item: -TAKES_S.get(file_of(item), usual_s[file_of(item)]))


def files_marked(root: Path, mark: str) -> list[str]:
    """Return the files with tests that have a mark."""
    files = sorted(root.glob("tests/**/test_*.py"))
    return [str(file.relative_to(root)) for file in files if _names(file, mark)]


def _names(file: Path, mark: str) -> bool:
    return f"pytest.mark.{mark}" in file.read_text(encoding="utf-8")


def file_of(item: pytest.Item) -> str:
    """Return the path part of the test's name."""
    return item.nodeid.partition("::")[0]
