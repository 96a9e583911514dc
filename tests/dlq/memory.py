"""Dead letters, topics and progress in memory, and a process that may be killed at any step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import define, field, frozen

from window_consumer.dlq.redrive import Redrive, RedriveCounts, RedriveRules
from window_consumer.dlq.redrive_copy import Destination
from window_consumer.dlq.redrive_state import read_resolved
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Copy, Headers
from window_consumer.model.record import Message
from window_consumer.testing.clock import ManualClock

SOURCE, DEAD, ENTRY, STATE = "orders", "shop.orders.dlq", "shop.orders.retry.now", "shop.dlq.state"
TOPIC_ID = "an id"
RULES = RedriveRules(
    to=Destination(ENTRY, 4, of_the_ladder=True),
    state_topic=STATE,
    by="shop.redrive.1",
    topic_id=TOPIC_ID,
    batch_records=4,
)


@frozen
class Stored:
    """A record of a topic, with the methods that the client's has."""

    at: tuple[str, int, int]
    a_key: bytes | None = None
    a_value: bytes | None = None
    its_headers: Headers = ()

    def __len__(self) -> int:
        return len(self.a_value or b"")

    def topic(self) -> str:
        return self.at[0]

    def partition(self) -> int:
        return self.at[1]

    def offset(self) -> int:
        return self.at[2]

    def key(self) -> bytes | None:
        return self.a_key

    def value(self) -> bytes | None:
        return self.a_value

    def headers(self) -> Headers:
        return self.its_headers

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000


class KilledError(BaseException):
    """The process is gone: nothing that it would have done happens."""


@define
class Cluster:
    """The state that outlives a process."""

    letters: list[Stored] = field(factory=list)
    source: dict[tuple[str, int, int], Message] = field(factory=dict)
    """Records of the source topic that can be fetched."""
    written: list[Copy] = field(factory=list)
    progress: int = 0
    too_large: set[bytes] = field(factory=set)
    steps: int = 0
    killed_at: int | None = None

    def step(self) -> None:
        """Kill the process here, if this is the place."""
        self.steps += 1
        if self.steps == self.killed_at:
            raise KilledError

    def entered(self) -> list[Copy]:
        return [copy for copy in self.written if copy.topic == ENTRY]

    def remembered(self) -> list[Stored]:
        """Return the state topic as records."""
        copies = [copy for copy in self.written if copy.topic == STATE]
        return [
            Stored((STATE, 0, offset), copy.key, copy.value) for offset, copy in enumerate(copies)
        ]

    def redrive(
        self,
        rules: RedriveRules = RULES,
        *,
        dry: bool = False,
        clock: ManualClock | None = None,
        stop_asked: Callable[[], bool] = lambda: False,
    ) -> RedriveCounts:
        """Run one process to its end."""
        process = Process(self, self.progress)
        run = Redrive(
            rules=rules,
            letters=process,
            outlet=None if dry else process,
            finish=process.finish,
            fetch=lambda topic, partition, offset: self.source.get((topic, partition, offset)),
            clock=clock or ManualClock(),
            resolved=read_resolved(self.remembered(), DEAD, TOPIC_ID),
        )
        run.run(stop_asked=stop_asked)
        return run.counts


@define
class Process:
    """One run. Each copy and each commit is a step before and a step after which it may die."""

    cluster: Cluster
    position: int
    sent: list[Copy] = field(factory=list)

    def read(self, max_records: int) -> Sequence[Message]:
        found = self.cluster.letters[self.position : self.position + max_records]
        self.position += len(found)
        return found

    def check_alone(self) -> None:
        self.cluster.step()

    def send(self, copies: Sequence[Copy]) -> None:
        self.sent += copies

    def acks(self) -> Mapping[int, PublishFailedError]:
        """The broker takes sent records one by one; a kill may come in between."""
        refused = {}
        for place, copy in enumerate(self.sent):
            self.cluster.step()
            if copy.value is not None and copy.value in self.cluster.too_large:
                refused[place] = PublishFailedError("too large", too_large=True)
            else:
                self.cluster.written.append(copy)
        self.sent = []
        self.cluster.step()
        return refused

    def finish(self) -> None:
        self.cluster.step()
        self.cluster.progress = self.position
        self.cluster.step()


def letter(offset: int, *more: tuple[str, bytes], value: bytes | None = None) -> Stored:
    """Return a dead letter of ours, of partition 1 of the source topic."""
    headers = [
        ("user", b"\x00\xff"),
        ("wc-id", b"orders/1/%d" % offset),
        ("wc-orig-topic", b"orders"),
        ("wc-orig-partition", b"1"),
        ("wc-orig-offset", b"%d" % offset),
        ("wc-format", b"1"),
        ("wc-group", b"shop"),
        ("wc-reason", b"FATAL"),
        ("wc-error-class", b"shop.InvalidOrder"),
        ("wc-error-stack", b"a stack"),
        ("wc-attempts", b"3"),
        ("wc-first-failure", b"1700000000000"),
        *more,
    ]
    body = b"value %d" % offset if value is None else value
    return Stored((DEAD, 1, offset), b"key %d" % offset, body, headers)
