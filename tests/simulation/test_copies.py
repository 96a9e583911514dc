"""Whether the simulator notices copies that are not what they should be."""

from __future__ import annotations

import pytest

from tests.simulation import copy_mutants
from tests.simulation.planted import Planted
from window_consumer.simulator.system_under_test import MakeCopy, SystemUnderTest

SEEDS = 3000


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (copy_mutants.appends_headers, "headers of ours that were appended"),
        (copy_mutants.grows_at_each_hop, "bytes of headers of ours"),
        (copy_mutants.drops_what_stands_twice, "is another record.*: headers"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_in_copies_is_found(planted: Planted, mutant: MakeCopy, expected: str) -> None:
    planted.expect(mutant, SystemUnderTest(make_copy=mutant), expected, SEEDS)
