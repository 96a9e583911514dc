"""What ``tests.suite`` adds to pytest: which process runs which file, and bytecode of tests.

Processes run whole files, those that take long first: begun late they would run when all others
have ended. Spark's files go to the first processes only, as each of these starts a session.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SPARK = ("tests/backfill/", "tests/pipeline/")
SPARK_PROCESSES = 2

TAKES_S: dict[str, float] = {}
"""What the longest files take, of a run in four processes on two cores. Others count a second for
each test."""


class LongestFirst(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Files in the order of their durations."""

    def schedule(self) -> None:
        """Deal out files; the order is that of ``pytest_collection_modifyitems``."""
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

    def _files_for(self, node: WorkerController) -> Iterator[str]:
        """Yield what a process may run next, Spark's files first where it has a session."""
        if node in self.nodes[:SPARK_PROCESSES]:
            yield from (file for file in self.workqueue if file.startswith(SPARK))
        yield from (file for file in self.workqueue if not file.startswith(SPARK))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LongestFirst:
    """Schedule by duration."""
    return LongestFirst(config, log)


_writes_none = sys.dont_write_bytecode


def pytest_configure() -> None:
    """Keep what pytest makes of test files: to make it takes ten seconds of each process.

    Only that, where PYTHONDONTWRITEBYTECODE is set: not what tests write and import.
    """
    sys.dont_write_bytecode = False


def pytest_collection_finish() -> None:
    """Be as Python was started."""
    sys.dont_write_bytecode = _writes_none


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files by how long they take."""
    tests: dict[str, float] = {}
    for item in items:
        file = file_of(item)
        tests[file] = tests.get(file, 0) + 1
    tests |= {file: TAKES_S[file] for file in tests.keys() & TAKES_S.keys()}
    items.sort(key=lambda item: -tests[file_of(item)])


def file_of(item: pytest.Item) -> str:
    """Return the path as the name of the test has it."""
    return item.nodeid.partition("::")[0]
