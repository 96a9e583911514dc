"""Looks through ``/metrics`` are those through the admin address, less what no metric says."""

from __future__ import annotations

import attrs
import pytest

from tests.engine.driver import Driven
from tests.engine.support import notes
from tests.golden_texts import Golden
from tests.kernel import scrape_of
from window_consumer.admin.doctor.metrics_reader import worker_looks
from window_consumer.admin.doctor.samples import worker_look
from window_consumer.engine.windows_snapshot import LoopSnapshot, PartitionSnapshot, WindowsSnapshot
from window_consumer.runtime.figures.measures import Measures
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot


def a_picture() -> WindowsSnapshot:
    driven = Driven(slots=2, ordering="key", window_cells=4, cell_records=10)
    driven.engine.on_log_ends(dict.fromkeys(driven.engine.partitions, 40))
    driven.deliver(*notes(*range(16), keys=[b"hot"] * 15 + [b'"\\\n']))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.tick(0.1)
    for slice_ in driven.out:
        driven.claim(slice_, 1)
    driven.engine.on_rebalance(driven.now)
    driven.now += 2.0
    seen = driven.snapshot()
    return attrs.evolve(seen, loop=LoopSnapshot(3.5, 1.25))


def a_worker(windows: WindowsSnapshot | None, *, is_ready: bool = True) -> WorkerSnapshot:
    return WorkerSnapshot(
        name="charge", process="2", phase="running", is_ready=is_ready, windows=windows
    )


def test_both_ways_show_the_same() -> None:
    seen = a_picture()
    measures = Measures(a_worker(seen), seen.counters, "key")
    (scraped,) = worker_looks(scrape_of([measures], process="2"), 7.0)
    reported = worker_look(a_worker(seen), 7.0)
    assert scraped.worker == attrs.evolve(reported.worker, windows=scraped.windows)
    assert (scraped.running, scraped.running_s) == (reported.running, None)
    for name in ("slots", "durations", "loop", "cannot_write"):
        assert getattr(scraped.windows, name) == getattr(reported.windows, name)
    assert scraped.windows.breaker.state == reported.windows.breaker.state
    for name in ("finished", "rebalances", "commits", "commits_s"):
        assert getattr(scraped.windows.counters, name) == getattr(reported.windows.counters, name)
    assert scraped.windows.partitions == tuple(map(as_metrics_say, reported.windows.partitions))
    assert scraped.windows.partitions[0].unread == 24
    assert scraped.windows.counters.rebalances == 1


def as_metrics_say(each: PartitionSnapshot) -> PartitionSnapshot:
    """What no metric says is left out."""
    said = attrs.evolve(each, cells=(), capacity_cells=0, bytes=0, row="", slid=0)
    return attrs.evolve(said, next_offset=0, hottest_key=None, first_open=None)


def test_a_worker_that_is_not_there_is_seen_as_such() -> None:
    measures = Measures(a_worker(None, is_ready=False), a_picture().counters, "key")
    (scraped,) = worker_looks(scrape_of([measures]), 7.0)
    assert not scraped.worker.is_ready
    assert scraped.windows.partitions == ()


@pytest.mark.parametrize("text", ["", "<html>", 'up{job="node"} 1\n', "a{ 1"])
def test_what_are_no_metrics_of_a_worker_is_reported(text: str, golden: Golden) -> None:
    with golden.raises(ValueError):
        worker_looks(text, 0.0)
