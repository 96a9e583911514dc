"""How long a slot waits before it replaces a child that has ended."""

from __future__ import annotations

from window_consumer.runtime.pools.processes.child_slot import MAX_BACKOFF_S, Replacement


def test_children_that_die_soon_are_replaced_after_growing_waits() -> None:
    replacement = Replacement()
    waits = [replacement.wait_s(0.3, was_killed=False, is_halving=False) for _ in range(9)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_one_that_lived_for_long_or_was_killed_is_replaced_at_once_and_the_waits_begin_anew() -> (
    None
):
    replacement = Replacement()
    for lived_s, was_killed in ((MAX_BACKOFF_S + 1, False), (0.3, True)):
        for wait_s in (0.1, 0.2):
            assert replacement.wait_s(0.3, was_killed=False, is_halving=False) == wait_s
        assert replacement.wait_s(lived_s, was_killed=was_killed, is_halving=False) == 0


def test_one_that_died_on_a_batch_is_replaced_at_once_and_the_waits_go_on() -> None:
    replacement = Replacement()
    for wait_s in (0.1, 0.2, 0.4):
        assert replacement.wait_s(0.3, was_killed=False, is_halving=True) == 0
        assert replacement.wait_s(0.3, was_killed=False, is_halving=False) == wait_s
