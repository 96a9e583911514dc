"""What leaves the Engine: records for the slots, and copies for the broker.

Everything that may hold something back has its say here: the breaker, records that are suspected of
ending the process, the budget, a partition that is about to be given up.
"""

from __future__ import annotations

from window_consumer.core.breaker import Breaker, BreakerNews, BreakerState
from window_consumer.core.budget import Budget
from window_consumer.core.counters import Counters
from window_consumer.core.decisions import Decisions
from window_consumer.core.dispatcher import Dispatcher
from window_consumer.core.failures import Failures
from window_consumer.core.ladder import FailedRecord
from window_consumer.core.producing import Producing
from window_consumer.core.settling import Settling
from window_consumer.core.slices import Slice
from window_consumer.core.suspects import Suspects


class Departures:
    """Decides what starts and what leaves. Owner: poll thread."""

    def __init__(  # noqa: PLR0913 - everything that has a say; made in one place
        self,
        breaker: Breaker,
        dispatcher: Dispatcher,
        failures: Failures,
        producing: Producing,
        settling: Settling,
        suspects: Suspects,
        budget: Budget,
        counters: Counters,
    ):
        self._breaker = breaker
        self._dispatcher = dispatcher
        self._failures = failures
        self._producing = producing
        self._settling = settling
        self._suspects = suspects
        self._budget = budget
        self._counters = counters
        self.in_a_hurry = False
        """Partitions are about to be given up: what is spent leaves now or not at all."""

    def decide(self, decisions: Decisions, now: float) -> None:
        """Hand out what may start, and what leaves."""
        if self._breaker.lets_start:
            if self._suspects.cases:
                decisions.dispatch.extend(self._suspects.slices(now))
            if self._suspects.holds_the_worker(now):
                self._dispatcher.break_all_up()
            elif not self._producing.holds_back:
                self._start(decisions, now)
        elif self._may_probe and (probe := self._probe(now)):
            self._breaker.probing(probe, now)
            decisions.dispatch.append(probe)
        self._publish(decisions, now)
        decisions.produce.extend(self._producing.to_send())

    def obey(self, news: BreakerNews, now: float) -> None:
        """Do what follows from the breaker's new state."""
        if news.pardon:
            self._failures.pardon()
        if news.state is BreakerState.OPEN:
            self._counters.breaker_opened += 1
            self._dispatcher.break_all_up()
            for slice_ in list(self._dispatcher.out):
                partition = slice_.partition
                # The commit names a suspect that was handed out: it is as good as started.
                if partition.owned and not partition.closing and partition.case is None:
                    self._settling.take_back(slice_, now)

    @property
    def _may_probe(self) -> bool:
        return self._breaker.wants_probe and not self._dispatcher.full

    def _start(self, decisions: Decisions, now: float) -> None:
        """Hand out what may start without a commit that names it."""
        count = self._dispatcher.slice_records
        while not self._dispatcher.full and (records := self._failures.next_calls(count)):
            decisions.dispatch.append(self._dispatcher.again(records, now))
        decisions.dispatch.extend(self._dispatcher.slices(now))

    def _probe(self, now: float) -> Slice | None:
        """Hand out one record: a new one and one that failed before in turn, as far as there are.

        Those that failed may be what is wrong, and so may those that are new.
        """
        if self._suspects.cases and (suspect := next(self._suspects.slices(now), None)):
            return suspect
        # What the last probe said nothing of, as its process died on several records at once.
        if half := self._dispatcher.half(now):
            return half
        for is_again in (self._breaker.probes % 2 == 1, self._breaker.probes % 2 == 0):
            if not is_again:
                slice_ = self._dispatcher.single(now)
                if slice_ is not None:
                    return slice_
            elif records := self._failures.next_calls(1):
                return self._dispatcher.again(records, now)
        return None

    def _publish(self, decisions: Decisions, now: float) -> None:
        def may_leave(failed: FailedRecord) -> bool:
            spent_at = failed.last_failure
            return self._breaker.lets_leave(spent_at, now, in_a_hurry=self.in_a_hurry)

        for failed in self._failures.to_publish(self._budget, may_leave):
            if failed.is_dropped:
                self._settling.drop(failed, now)
                continue
            failed.partition.publishing += 1
            decisions.publish.append(failed)
