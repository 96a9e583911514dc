"""Who gets which lease: whatever clients do, each slice comes back once, and no request is lost."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from window_consumer.model.errors import Expired
from window_consumer.model.fault import Failure
from window_consumer.model.record import Call, Record
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.pools.leases import Lease, LeaseRequest, Leases

MOST = 5


class OneRecord:
    """What leases need of a slice."""

    def __init__(self, number: int):
        self.messages = [number]
        self.unclaimed = iter(self.messages)
        self.call = Call()
        self.started = self.elapsed = self.lease_until = 0.0
        self.failed: list[Any] = []
        self.held: list[Any] = []

    def deviate(self) -> OneRecord:
        return self


class LeasesMachine(RuleBasedStateMachine):
    """Clients ask, take, withdraw and answer; the poll thread offers, takes back and expires."""

    def __init__(self) -> None:
        super().__init__()
        self.completions: SimpleQueue[Any] = SimpleQueue()
        self.refuses = False
        caller = Caller(self._layers, lambda error, *_: Failure.uncalled(error))
        self.leases = Leases(MOST, caller, self.completions)
        self.requests: dict[int, LeaseRequest] = {}
        self.called: set[int] = set()
        self.taken: list[Lease] = []
        self.out: list[OneRecord] = []
        self.numbers = 0

    def _layers(self, _record: Record) -> None:
        if self.refuses:
            raise Expired("too old")

    def _collect(self) -> None:
        while True:
            try:
                slice_ = self.completions.get_nowait()
            except Empty:
                return
            if slice_ is not None:
                self.out.remove(slice_)  # raises if it has come back before

    @rule(most=st.integers(1, 3))
    def ask(self, most: int) -> None:
        self.numbers += 1
        number = self.numbers
        self.requests[number] = self.leases.ask(most, lambda: self.called.add(number))

    @precondition(lambda self: self.leases.slots > len(self.out))
    @rule()
    def offer(self) -> None:
        slice_ = OneRecord(len(self.out))
        self.out.append(slice_)
        offered: Any = slice_
        self.leases.offer(offered)
        self._collect()

    @precondition(lambda self: self.called & self.requests.keys())
    @rule(lease_s=st.sampled_from([0.0, 600.0]), refuses=st.booleans())
    def take(self, lease_s: float, refuses: bool) -> None:  # noqa: FBT001 - drawn
        self.refuses = refuses
        number = min(self.called & self.requests.keys())
        request = self.requests.pop(number)
        found = self.leases.take(request, lease_s)
        assert len(found) <= (0 if refuses else request.most)
        self.taken += found
        self._collect()

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def withdraw(self, data: Any) -> None:
        number = data.draw(st.sampled_from(sorted(self.requests)))
        self.leases.withdraw(self.requests.pop(number))
        self._collect()

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def take_back(self, data: Any) -> None:
        list(data.draw(st.sampled_from(self.out)).unclaimed)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), fails=st.booleans())
    def answer(self, data: Any, fails: bool) -> None:  # noqa: FBT001 - drawn
        lease = data.draw(st.sampled_from(self.taken))
        is_current = lease.slice_ in self.out
        assert self.leases.finish(lease.number, ValueError() if fails else None) == is_current
        self._collect()

    @rule()
    def expire(self) -> None:
        for slice_ in tuple(self.out):
            if slice_.started:
                expired: Any = slice_
                failure = self.leases.expire(expired, 1.0)
                assert (failure is None) == (slice_.lease_until > slice_.started)
        self._collect()

    @invariant()
    def nobody_waits_for_what_is_ready(self) -> None:
        leased = sum(each.started > 0 for each in self.out)
        assert self.leases.in_flight == leased
        asked = sum(each.most for each in self.requests.values())
        assert self.leases.slots == min(MOST, leased + asked)
        ready = len(self.out) - leased
        called = sum(self.requests[each].most for each in self.called & self.requests.keys())
        assert ready <= called


LeasesMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLeases = LeasesMachine.TestCase
