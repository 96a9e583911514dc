"""The workloads of the comparison, and how long a peer may take for one."""

from __future__ import annotations

from attrs import evolve, frozen

from benchmarks.peers.contents import Contents


@frozen
class PeerWorkload:
    """A topic and a handler that waits as long as each record says."""

    name: str
    what: str
    contents: Contents
    slots: int
    """The most concurrent handler calls, where a peer can limit them."""
    cap_s: float
    """How long after its first record a peer is stopped, finished or not."""
    possible: bool = False
    """Whether the table shows each peer's share of the possible rate, by keys and slots."""

    @property
    def waits(self) -> bool:
        """Whether the handler waits; if not, the rate is measured in separate runs."""
        return self.contents.longest_us > 0

    def scaled(self, scale: float) -> PeerWorkload:
        """Return the same with fewer records, or more."""
        return self if scale == 1 else evolve(self, contents=self.contents.scaled(scale))


_TEN_MS = {"keys": 1_000, "shortest_us": 10_000, "longest_us": 10_000}

_ALL = (
    PeerWorkload(
        "noop",
        "1,000,000 records, 4 partitions, 10,000 keys; the handler does nothing",
        Contents(1_000_000, keys=10_000),
        slots=16,
        cap_s=4.0,
    ),
    PeerWorkload(
        "wait10-16",
        "6,400 records, 4 partitions, 1,000 keys; the handler waits 10 ms; 16 slots",
        Contents(6_400, **_TEN_MS),
        slots=16,
        cap_s=7.0,
    ),
    PeerWorkload(
        "wait10-100",
        "40,000 records, 4 partitions, 1,000 keys; the handler waits 10 ms; 100 slots",
        Contents(40_000, **_TEN_MS),
        slots=100,
        cap_s=7.0,
    ),
    PeerWorkload(
        "keyed",
        "30,000 records, 1 partition, 100 keys; the handler waits 0 to 5 ms; 100 slots",
        Contents(30_000, keys=100, partitions=1, longest_us=5_000),
        slots=100,
        cap_s=6.0,
    ),
    PeerWorkload(
        "skew",
        "16,000 records, 4 partitions, 1,000 keys; the handler waits 1 ms, for one record in 1,000"
        " it waits 2 s; 16 slots",
        Contents(
            16_000,
            keys=1_000,
            shortest_us=1_000,
            longest_us=1_000,
            slow_one_in=1_000,
            slow_us=2_000_000,
        ),
        slots=16,
        cap_s=10.0,
    ),
    PeerWorkload(
        "zipf",
        "15,000 records, 4 partitions, 1,000 keys of which the first is in one record of seven"
        " (Zipf, exponent 1); the handler waits 2 ms; 100 slots",
        Contents(15_000, keys=1_000, zipf=1.0, shortest_us=2_000, longest_us=2_000),
        slots=100,
        cap_s=8.0,
        possible=True,
    ),
)

WORKLOADS: dict[str, PeerWorkload] = {workload.name: workload for workload in _ALL}
