"""Looks through ``/metrics`` are those through the admin address, less what no metric says."""

from __future__ import annotations

import attrs
import pytest

from tests.engine.support import Driven, notes
from window_consumer.admin.client import ToldWorker
from window_consumer.admin.doctor.samples import look_at
from window_consumer.admin.doctor.scraped import looks_at
from window_consumer.engine.snapshot import (
    LoopPicture,
    Snapshot,
    picture,
)
from window_consumer.metrics.exposition import exposition
from window_consumer.runtime.measures import Measures


def a_picture() -> Snapshot:
    driven = Driven(slots=2, ordering="key", window_cells=4, cell_records=10)
    driven.engine.on_log_ends(dict.fromkeys(driven.engine.partitions, 40))
    driven.deliver(*notes(*range(16), keys=[b"hot"] * 15 + [b'"\\\n']))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.tick(0.1)
    for slice_ in driven.out:
        driven.claim(slice_, 1)
    driven.engine.note_change(driven.now)
    seen = picture(driven.engine, driven.now + 2.0, driven.wall_ms)
    return attrs.evolve(seen, loop=LoopPicture(3.5, 1.25))


def test_both_ways_show_the_same() -> None:
    seen = a_picture()
    measures = Measures("charge", "shop", "key", True, 0.1, seen.counters, seen)
    (scraped,) = looks_at(exposition([measures], common={"process": "2"}), 7.0)
    told = look_at(ToldWorker("charge", "2", "running", True, seen, None, None), 7.0)
    partitions = [attrs.evolve(each, hottest_key=None) for each in told.partitions]
    told = attrs.evolve(told, calls=(), running_s=None, changes_s=(), partitions=tuple(partitions))
    told = attrs.evolve(told, breaker=scraped.breaker)
    assert scraped.partitions[0].unread == 24
    assert scraped.rebalances == 1
    assert scraped == told


def test_a_worker_that_is_not_there_is_seen_as_such() -> None:
    measures = Measures("charge", "shop", "key", False, 0.1, a_picture().counters, None)
    (scraped,) = looks_at(exposition([measures]), 7.0)
    assert not scraped.is_ready
    assert scraped.partitions == ()


@pytest.mark.parametrize("text", ["", "<html>", 'up{job="node"} 1\n', "a{ 1"])
def test_what_are_no_metrics_of_a_worker_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="no metrics of a worker"):
        looks_at(text, 0.0)
