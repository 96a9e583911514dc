"""The page on migration: a loop of the page, a worker and the loop again, in one group."""

from __future__ import annotations

import threading

import pytest
from attrs import define

from tests.commands import DEADLINE_S
from tests.docs.takeovers.group import PARTITIONS, Group, KilledError

LOOPS = ["confluent_loop.py", "kafka_python_loop.py"]

# kafka-python 3.0 reads its protocol's schemas as Python 3.11 does not like it.
pytestmark = pytest.mark.filterwarnings("ignore:(read_text|open_text) is deprecated")


@define
class Loop:
    """One of the page's loops, in this process."""

    file: str
    group: Group

    def run(self, *expected: int) -> None:
        """Run it until it has charged these, and nothing else before."""
        shop = self.group.shop
        shop.expect(*expected)
        in_vain = threading.Timer(DEADLINE_S, shop.stopping.set)
        in_vain.start()
        try:
            self.group.program(self.file).main()
        finally:
            in_vain.cancel()
        assert sorted(shop.charged) == sorted(expected)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest, group: Group) -> Loop:
    return Loop(request.param, group)


def test_a_worker_takes_over_and_gives_back_without_a_loss_or_a_repetition(
    group: Group, loop: Loop
) -> None:
    group.send(5)
    loop.run(0, 1, 2, 3, 4)
    group.send(5)
    group.run_worker(5, 6, 7, 8, 9)
    group.send(2)
    loop.run(10, 11)


def test_what_the_loop_had_handled_and_not_committed_runs_again(group: Group, loop: Loop) -> None:
    group.send(4)
    group.shop.deadly = 2
    with pytest.raises(KilledError):
        loop.run(0, 1, 2, 3)
    committed = set(group.shop.charged) - {2}
    group.shop.deadly = -1
    group.run_worker(*({0, 1, 2, 3} - committed))


@pytest.mark.parametrize("cell_records", [1, 500])
def test_given_back_with_a_record_unfinished_its_cell_and_what_follows_run_again(
    group: Group, loop: Loop, cell_records: int
) -> None:
    group.send(10)
    group.shop.refused = {6}
    group.run_worker(0, 1, 2, 3, 4, 5, 7, 8, 9, cell_records=cell_records)
    group.shop.refused = set()
    loop.run(*range(6 if cell_records == 1 else 0, 10, PARTITIONS))


def test_taken_over_again_only_the_unfinished_record_runs(group: Group) -> None:
    group.send(10)
    group.shop.refused = {4}
    group.run_worker(0, 1, 2, 3, 5, 6, 7, 8, 9)
    group.shop.refused = set()
    group.send(1)
    group.run_worker(4, 10)
