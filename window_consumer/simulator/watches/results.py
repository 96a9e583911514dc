"""Watches results: their owner, their order, and the end of their record."""

from __future__ import annotations

from attrs import define, field

from window_consumer.model.errors import PublishFailedError
from window_consumer.model.produce import Produce
from window_consumer.model.protocols import Copy, Delivery
from window_consumer.model.record import TopicPartition
from window_consumer.simulator.log_history import Lane, Member, SimulatedCall, Tenure
from window_consumer.simulator.schedule import RESULT_TOPICS
from window_consumer.simulator.watches.calls import CallWatch
from window_consumer.testing.fakes.log import FakeMessage

Place = tuple[int, int]
"""Partition and offset of a result."""


@define(eq=False)
class _Returned:
    """A call that returned results."""

    call: SimulatedCall
    results: list[Produce]
    counts: bool
    """Its results will be produced, because the call was not abandoned."""
    on_their_way: set[int] = field(factory=set)
    acked: set[int] = field(factory=set)
    lost: dict[int, PublishFailedError] = field(factory=dict)
    """Failed results of the last send."""
    places: dict[int, Place] = field(factory=dict)
    """Where each result was last written."""
    alone: bool = False
    over: bool = False


class ResultWatch:
    """Checks every result that a member writes. Owner: one thread."""

    def __init__(self, calls: CallWatch):
        self._call_watch = calls
        self._history = calls.history
        self._is_transactional = calls.history.plan.is_transactional
        self._calls: list[_Returned] = []
        self._acked: list[_Returned] = []
        self._latest: dict[tuple[Tenure, Lane], dict[int, int]] = {}
        """The last offset of a lane's finished results in each partition."""

    def returned(self, call: SimulatedCall, count: int, *, bad: str = "") -> list[Produce]:
        """Return ``count`` results of a call; with ``bad`` the last will be refused for good."""
        number = len(self._calls)
        key = call.record.message.key()
        results = [Produce(RESULT_TOPICS[0], key, f"{number}/{index}") for index in range(count)]
        if bad:
            topic = RESULT_TOPICS[1 if bad == "topic" else 0]
            filling = "x" * 2_000 if bad == "size" else ""
            results[-1] = Produce(topic, key, f"{number}/{count - 1}/{filling}")
        tenure = call.tenure
        counts = tenure.current and call.offset not in tenure.abandoned
        self._calls.append(_Returned(call, results, counts))
        return results

    def writing(self, member: Member, copy: Copy, on_delivery: Delivery) -> Delivery:
        """Check a result that a member writes; return the callback for the broker's answer."""
        history = self._history
        returned, index = self._of(copy)
        call = returned.call
        what = f"result {index} of {call.tenure.name}@{call.offset}"
        if history.trace is not None:
            history.record(f"{member} produces {what}")
        if call.tenure.member is not member or not returned.counts:
            history.violate(f"{member} produces {what}, of a call that does not count")
        elif not call.tenure.current:
            history.violate(f"{member} produces {what}, of a partition that it no longer has")
        elif returned.over:
            history.violate(f"{member} produces {what}, which is over")
        elif index in returned.acked:
            history.violate(f"{member} produces {what} again, which was acked")
        before = set(range(index)) - returned.acked - returned.on_their_way
        if before:
            history.violate(f"{member} produces {what} before {before}")
        returned.on_their_way.add(index)

        def answer(error: PublishFailedError | None) -> None:
            if history.trace is not None:
                history.record(f"{what}: {error or 'acked'}")
            self._answered(returned, index, error)
            on_delivery(error)

        return answer

    def written(self, name: TopicPartition, copy: Copy, message: FakeMessage) -> None:
        """Record a result in its topic."""
        returned, index = self._of(copy)
        returned.places[index] = (name.partition, message.offset())
        if self._is_transactional and len(returned.places) == len(returned.results):
            self._complete(returned)

    def record_of(self, copy: Copy) -> tuple[Tenure, int]:
        """Return the record whose call returned a result."""
        call = self._of(copy)[0].call
        return call.tenure, call.offset

    def _of(self, copy: Copy) -> tuple[_Returned, int]:
        number, index, *_ = (copy.value or b"").split(b"/")
        return self._calls[int(number)], int(index)

    def _answered(self, returned: _Returned, index: int, error: PublishFailedError | None) -> None:
        returned.on_their_way.discard(index)
        if error is None:
            returned.acked.add(index)
        else:
            returned.lost[index] = error
        tenure = returned.call.tenure
        if returned.on_their_way or returned.over or not tenure.current:
            return
        lost, returned.lost = returned.lost, {}
        if lost:
            first = min(lost)
            why = lost[first]
            if why.refused and (returned.alone or not why.too_large):
                returned.over = True
                self._call_watch.refused(returned.call)
            returned.alone |= why.too_large
            returned.acked = set(range(first))
        elif len(returned.acked) == len(returned.results):
            returned.over = True
            if not self._is_transactional:
                self._complete(returned)
            self._call_watch.acked(returned.call)

    def _complete(self, returned: _Returned) -> None:
        """Record that all results of a call are permanently in their topic."""
        self._acked.append(returned)
        self._check_order(returned)

    def _check_order(self, returned: _Returned) -> None:
        """Check that results are in the list's order, and after earlier ones of the lane."""
        call = returned.call
        what = f"the results of {call.tenure.name}@{call.offset}"
        latest: dict[int, int] = {}
        if call.lane is not None:
            latest = self._latest.setdefault((call.tenure, call.lane), latest)
        for index in range(len(returned.results)):
            partition, offset = returned.places[index]
            if offset <= latest.get(partition, -1):
                self._history.violate(f"{what} are in another order: {returned.places}")
            latest[partition] = offset

    def check_results(self) -> None:
        """Check that every result of a finished record is in its topic."""
        there = {
            message.value()
            for log in self._history.broker.topics.by_name[RESULT_TOPICS[0]].logs
            for message in log.messages
        }
        for returned in self._acked:
            name, offset = returned.call.tenure.name, returned.call.offset
            if any(result.value not in there for result in returned.results):
                self._history.violate(
                    f"{name}@{offset} is finished, but not all of its results are there"
                )
