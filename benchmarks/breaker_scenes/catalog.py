"""All scenes with their variants; their names are promises.

The usual worker has 16 slots, 3 attempts, and windows of 32 x 500 records; each scene states what
differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random

from benchmarks.breaker_scenes import judging
from benchmarks.breaker_scenes.scene import Burst, Scene, Traffic
from benchmarks.breaker_scenes.services import (
    Flap,
    Outage,
    Overloaded,
    Poison,
    ShardDown,
    SlowRetries,
)
from benchmarks.workloads import Ordering

ORDERINGS: tuple[Ordering, ...] = ("unordered", "key")
OK_S = 0.005

_SEED = 32
_STRETCH = ("stretch_rate", "stretch_p99_s")
_OUTAGE = ("outage_moved", "outage_full_speed_s")
_OVERLOAD = ("overload_share", "overload_moved")


def stretch() -> Iterator[Scene]:
    """A stretch of records that always fail, in a live stream of 150 records/s."""
    begin_s, until_s = 4.0, 20.0
    for partitions, keys, one in ((1, 100_000, False), (4, 200, True), (4, 200, False)):
        for records in (300, 3_000):
            burst = Burst(begin_s, records, one_partition=one)
            traffic = Traffic(partitions, keys, rate_per_s=150, until_s=until_s, burst=burst)
            for ordering in ORDERINGS:
                for bad_s in (0.005, 0.05, 0.5):
                    place = f"{partitions}p{'-one' if one else ''}"
                    yield Scene(
                        f"stretch-{records}-{place}-{ordering}-{bad_s * 1000:g}ms",
                        traffic,
                        partial(Poison, OK_S, bad_s, traffic.burst_numbers),
                        judging.stretch(begin_s, until_s),
                        _STRETCH,
                        lasts_s=until_s + 8,
                        compared=True,
                        ordering=ordering,
                    )


def outage_after_stretch() -> Iterator[Scene]:
    """A full outage of 20 s that begins right after a stretch, or while it is called."""
    for ordering in ORDERINGS:
        for after_s in (0.5, 4.0):
            traffic = Traffic(4, 200, rate_per_s=150, until_s=36, burst=Burst(4.0, 300))
            down_s = 4.0 + after_s
            yield Scene(
                f"outage-after-stretch-{ordering}-{after_s:g}s",
                traffic,
                partial(Outage, OK_S, 0.05, down_s, down_s + 20, traffic.burst_numbers),
                judging.moved("outage_moved"),
                ("outage_moved",),
                lasts_s=40,
                ordering=ordering,
            )


def outage() -> Iterator[Scene]:
    """A full outage of 20 s, and one of 5 minutes with full windows."""
    backlog = Traffic(4, 200, backlog=12_000)
    for ordering in ORDERINGS:
        for kind, bad_s in (("fast", 0.0005), ("slow", 0.5)):
            for attempts in (1, 3):
                yield Scene(
                    f"outage-{ordering}-{kind}-{attempts}",
                    backlog,
                    partial(Outage, 0.02, bad_s, 4, 24),
                    judging.outage(4, 24, 800),
                    _OUTAGE,
                    lasts_s=32,
                    ordering=ordering,
                    attempts=attempts,
                )
    live = Traffic(4, 200, rate_per_s=150, until_s=34)
    for levels in ((), ("1s", "5s")):
        yield Scene(
            f"outage-live-{'levels' if levels else 'local'}",
            live,
            partial(Outage, OK_S, 0.02, 4, 24),
            judging.outage(4, 24, 150),
            _OUTAGE,
            lasts_s=36,
            ordering="key",
            attempts=1 if levels else 2,
            levels=levels,
        )
    yield Scene(
        "outage-at-start",
        Traffic(4, 200, backlog=6_000),
        partial(Outage, 0.02, 0.01, 0, 20),
        judging.outage(0, 20, 700),
        _OUTAGE,
        lasts_s=30,
        ordering="key",
        attempts=2,
    )
    yield Scene(
        "outage-batches-of-1000",
        Traffic(4, 200, backlog=100_000),
        partial(Outage, 0.4, 0.1, 4, 24),
        judging.outage(4, 24, 8_000),
        _OUTAGE,
        lasts_s=32,
        slots=4,
        attempts=1,
        batch=1_000,
    )
    yield Scene(
        "outage-5m-full-windows",
        Traffic(4, 200, backlog=12_000),
        partial(Outage, 0.02, 0.01, 4, 304),
        judging.outage(4, 304, 800, is_short=False),
        ("outage_moved",),
        lasts_s=330,
        attempts=2,
        window=(10, 50),
        breaker={"max_hold": "1m"},
    )


def flap() -> Iterator[Scene]:
    """One success, then all fail; ten times. 200 keys, 400 records/s."""
    traffic = Traffic(4, 200, rate_per_s=400, until_s=50)
    for kind, bad_s in (("fast", 0.0005), ("slow", 0.5)):
        for attempts in (2, 3):
            for every_s in (4.0, 1.0):
                yield Scene(
                    f"flap-{kind}-{attempts}{'' if every_s > 1 else '-often'}",
                    traffic,
                    partial(Flap, OK_S, bad_s, 3.0, every_s, 10),
                    judging.moved("flap_moved"),
                    ("flap_moved",),
                    lasts_s=54,
                    ordering="key",
                    attempts=attempts,
                )


def overload() -> Iterator[Scene]:
    """A service that fails above 20 calls at once, and a worker with 64 slots."""
    ok_s, most = 0.1, 20
    kinds = {
        "backlog": Traffic(4, 400, backlog=20_000),
        "backlog-ends": Traffic(4, 400, backlog=4_000),
        "live": Traffic(4, 400, rate_per_s=300, until_s=30),
    }
    for kind, traffic in kinds.items():
        for ordering in ORDERINGS:
            for speed, bad_s in (("fast", 0.001), ("slow", 0.1)):
                yield Scene(
                    f"overload-{kind}-{ordering}-{speed}",
                    traffic,
                    partial(Overloaded, ok_s, bad_s, most),
                    judging.overload(most / ok_s),
                    _OVERLOAD,
                    lasts_s=30,
                    slots=64,
                    ordering=ordering,
                    attempts=2,
                )


def end() -> Iterator[Scene]:
    """1,500 healthy records, then bad ones, and nothing more."""
    for bad in (20, 30):
        for ordering in ORDERINGS:
            for partitions, keys in ((1, 100_000), (4, 200)):
                yield Scene(
                    f"end-{bad}-{partitions}p-{ordering}",
                    Traffic(partitions, keys, backlog=1_500 + bad),
                    partial(Poison, OK_S, OK_S, range(1_500, 1_500 + bad)),
                    judging.end,
                    ("end_left_s",),
                    lasts_s=75,
                    ordering=ordering,
                    breaker={"max_hold": "30s"},
                )


def batch() -> Iterator[Scene]:
    """Poison in batches of 25, which fail as a whole; 500 records/s."""
    until_s = 20.0
    traffic = Traffic(4, 200, rate_per_s=500, until_s=until_s)
    tenth = frozenset(Random(_SEED).sample(range(traffic.usual), traffic.usual // 10))
    for kind, bad in (("one", frozenset({2_500})), ("tenth", tenth)):
        for attempts in (1, 3):
            yield Scene(
                f"batch-{kind}-{attempts}",
                traffic,
                partial(Poison, 0.02, 0.02, bad),
                judging.gap(1.0, until_s),
                ("batch_gap_s",),
                lasts_s=28,
                attempts=attempts,
                batch=25,
            )


def retries() -> Iterator[Scene]:
    """Retries above capacity: 1 % of the records are retried twice, for 5 s each time."""
    ok_s, lasts_s = 0.05, 40.0
    per_s = 0.8 * 16 / ok_s
    live = Traffic(4, 1_000, rate_per_s=per_s, until_s=lasts_s)
    backlog = Traffic(4, 1_000, backlog=14_000)
    for kind, traffic in (("live", live), ("backlog", backlog)):
        for ordering in ORDERINGS:
            yield Scene(
                f"retries-{kind}-{ordering}",
                traffic,
                partial(SlowRetries, ok_s, 5.0, 100),
                judging.retries(10, lasts_s, per_s * 0.99),
                ("retries_rate",),
                lasts_s=lasts_s,
                ordering=ordering,
            )


def shard() -> Iterator[Scene]:
    """Half of the keys fail for 40 s: one shard is down."""
    for ordering in ORDERINGS:
        yield Scene(
            f"shard-{ordering}",
            Traffic(4, 200, rate_per_s=100, until_s=54),
            partial(ShardDown, 0.02, 0.02, 5, 45),
            judging.shard(5, 45),
            ("shard_rate",),
            lasts_s=60,
            compared=True,
            ordering=ordering,
            attempts=2,
            levels=("2s", "10s"),
        )


def _all() -> Iterator[Scene]:
    # The longest ones first, so that none is left at the end.
    yield from sorted(
        (
            *outage(),
            *stretch(),
            *outage_after_stretch(),
            *flap(),
            *overload(),
            *end(),
            *batch(),
            *retries(),
            *shard(),
        ),
        key=lambda each: -each.lasts_s,
    )


SCENES: dict[str, Scene] = {each.name: each for each in _all()}
