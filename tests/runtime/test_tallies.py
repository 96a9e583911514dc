"""Counts that processes share: each of them goes to one side."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pytest

from window_consumer.runtime.pools.processes.shared_memory import NUMBER_BYTES, SharedNumber

COUNT = 200_000

CHILD = """
import mmap, sys
from window_consumer.runtime.pools.processes.shared_memory import NUMBER_BYTES, SharedNumber
memory = mmap.mmap(int(sys.argv[1]), mmap.PAGESIZE)
tokens, mine = SharedNumber(memory, 0), SharedNumber(memory, NUMBER_BYTES)
sys.stdin.readline()
while tokens.take(False):
    mine.add()
"""


@pytest.fixture
def memory() -> mmap.mmap:
    fd = os.memfd_create("tallies")
    os.truncate(fd, mmap.PAGESIZE)
    mapped = mmap.mmap(fd, mmap.PAGESIZE)
    os.close(fd)
    return mapped


def test_a_tally_counts_down_to_nothing_and_up_again(memory: mmap.mmap) -> None:
    tally = SharedNumber(memory, 0)
    tally.set(2)
    assert [tally.take(False) for _ in range(3)] == [True, True, False]
    tally.add()
    assert tally.value == 1
    tally.set(0)
    assert not tally.take(False)


def test_tallies_beside_each_other_do_not_mix(memory: mmap.mmap) -> None:
    one, other = SharedNumber(memory, 0), SharedNumber(memory, NUMBER_BYTES)
    one.set(1)
    other.set(5)
    assert one.take(False)
    assert (one.value, other.value) == (0, 5)


def test_each_token_goes_to_one_of_two_processes_that_take_at_once() -> None:
    fd = os.memfd_create("tallies")
    os.truncate(fd, mmap.PAGESIZE)
    memory = mmap.mmap(fd, mmap.PAGESIZE)
    tokens, theirs = SharedNumber(memory, 0), SharedNumber(memory, NUMBER_BYTES)
    tokens.set(COUNT)
    theirs.set(0)
    command = [sys.executable, "-c", CHILD, str(fd)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[fd]) as child:
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        ours = 0
        while theirs.value == 0:  # it has begun
            assert child.poll() is None
        while tokens.take(False):
            ours += 1
        child.stdin.close()
        assert child.wait() == 0
    os.close(fd)
    assert ours
    assert ours + theirs.value == COUNT
