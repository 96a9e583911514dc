"""Who lives, and who is ready."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.golden_texts import Golden
from window_consumer.metrics.health import SILENT_S, Health
from window_consumer.runtime.figures.measures import MeasuredWorkers
from window_consumer.runtime.figures.worker_snapshot import Phase


def worker(
    name: str = "charge",
    phase: Phase = Phase.RUNNING,
    *,
    in_group: bool = True,
    silent_s: float = 0.1,
    alive: bool = True,
    group: str = "shop",
    catching_up: int | None = None,
) -> Any:
    thread = SimpleNamespace(is_alive=lambda: alive)
    ownership = SimpleNamespace(in_group=in_group)
    loop = SimpleNamespace(
        phase=phase, ownership=ownership, silent_s=silent_s, thread=thread, catching_up=catching_up
    )
    setup = SimpleNamespace(origin=SimpleNamespace(group=group))
    return SimpleNamespace(name=name, loop=loop, setup=setup, cannot_write=None)


def health(*workers: Any) -> Health:
    measured = MeasuredWorkers()
    measured.attach(SimpleNamespace(workers=workers))  # type: ignore[arg-type] # all that is asked
    return Health(measured)


def test_a_process_that_is_starting_lives_and_is_not_ready() -> None:
    made = Health(MeasuredWorkers())
    assert made.live().status == 200
    assert (made.ready().status, made.ready().text) == (503, "starting\n")
    assert health().ready().status == 503


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.DRAINING, Phase.DRAINED, Phase.LEFT])
def test_who_does_not_work_yet_or_any_more_is_not_ready_and_lives(phase: Phase) -> None:
    found = health(worker(), worker("refund", phase))
    assert found.live().status == 200
    ready = found.ready()
    assert (ready.status, ready.text.splitlines()[1]) == (503, f"refund: {phase.value}")


def test_who_was_thrown_out_of_its_group_is_not_ready_and_lives(golden: Golden) -> None:
    found = health(worker(in_group=False))
    assert found.live().status == 200
    assert found.ready().status == 503
    golden(found.ready().text)


@pytest.mark.parametrize(
    ("in_group", "catching_up", "status"), [(False, 0, 503), (True, 7, 503), (True, None, 200)]
)
def test_a_worker_without_a_group_is_ready_once_it_has_caught_up(
    *, in_group: bool, catching_up: int | None, status: int, golden: Golden
) -> None:
    found = health(worker(group="", in_group=in_group, catching_up=catching_up)).ready()
    assert found.status == status
    golden(found.text)


@pytest.mark.parametrize(("silent_s", "status"), [(SILENT_S - 1, 200), (SILENT_S + 1, 503)])
def test_only_a_poll_thread_that_stands_still_is_no_life(
    silent_s: float, status: int, golden: Golden
) -> None:
    found = health(worker("refund"), worker(silent_s=silent_s)).live()
    assert found.status == status
    assert (found.status == 200) == (found.text == "live\n")
    if status != 200:
        golden(found.text)


def test_a_poll_thread_that_has_ended_does_not_hang() -> None:
    assert health(worker(silent_s=1000.0, alive=False)).live().status == 200
