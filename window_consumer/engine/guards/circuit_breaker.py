"""The circuit breaker: tells poison (records that always fail) from an outage of what they need.

A record leaves only beside successes. While few records fail, spent ones leave at once. When more
than ``failures`` of the last new records failed, nothing leaves and calls cost no attempt until the
cause is found: new records from other places of the windows are called beside those that failed.
``breaker_state`` lists the states and what leads from one to another. In most of them something is
searched: each search gets the calls that begin in its state, and finds the state that follows.

Only a failure that another call could resolve counts. A call that says nothing about the handler's
environment (Fatal, Skip) does not count at all. Decision 48 has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from math import inf

from window_consumer.engine.guards.breaker.call_round import CallRound, StateSearch
from window_consumer.engine.guards.breaker.cause_search import CauseSearch
from window_consumer.engine.guards.breaker.departures import (
    HOLD_S,
    MOST,
    Departure,
    Departures,
    SpentCall,
)
from window_consumer.engine.guards.breaker.load_search import LoadSearch
from window_consumer.engine.guards.breaker.outage_evidence import OutageEvidence
from window_consumer.engine.guards.breaker.outage_samples import OutageSamples
from window_consumer.engine.guards.breaker.poison_review import PoisonReview
from window_consumer.engine.guards.breaker.requested_pause import RequestedPause
from window_consumer.engine.guards.breaker_state import (
    FREE,
    NEXT,
    BreakerNews,
    BreakerRules,
    BreakerState,
    Outlook,
)

AGAIN = "again"
"""The kind of calls of records that failed before."""

_PARDONS = frozenset(
    {BreakerState.CLOSED, BreakerState.OVERLOAD, BreakerState.OPEN, BreakerState.HALF_OPEN}
)
"""The states on whose entry records whose attempts were spent are called once more."""

_SHOWN = 200
"""The most characters of an error in the reason for opening."""

_NEVER = float("-inf")


class CircuitBreaker:
    """Records all calls of one worker and decides what may proceed. Owner: poll thread."""

    def __init__(
        self,
        rules: BreakerRules,
        slots: Callable[[], int],
        running: Callable[[], int],
        running_since: Callable[[float, float], int],
    ):
        """``slots`` returns how many calls may run, ``running`` how many do.

        ``running_since`` returns how many running slices of new records began between two times.
        """
        self.rules = rules
        self._slots, self._running, self._running_since = slots, running, running_since
        self.state = BreakerState.CLOSED
        self.since = _NEVER
        """When it entered this state; initially the first ``advance``."""
        self.departures = Departures()
        self.samples = OutageSamples(rules)
        self.why = ""
        """Why it last opened, paused or found something."""
        self._evidence = OutageEvidence(rules.failures, rules.window_s, rules.min_calls)
        self._cause = CauseSearch(rules)
        self._load = LoadSearch(rules)
        self._poison = PoisonReview(rules)
        self._pause = RequestedPause(rules)
        self._search_of: Mapping[BreakerState, StateSearch] = {
            BreakerState.HOLDING: self._cause,
            BreakerState.POISON: self._poison,
            BreakerState.OVERLOAD: self._load,
            BreakerState.OPEN: self.samples,
            BreakerState.PAUSED: self._pause,
            BreakerState.HALF_OPEN: self._load,
        }
        self._search: StateSearch | None = None
        """That of its state; none while it is closed."""
        self.last_returned: object = None
        """The slice of the last call that returned while it was not closed."""
        self._last_error = ""
        self._news: list[BreakerNews] = []

    # ---- events

    def returned(
        self,
        calls: int,
        now: float,
        source: object = None,
        *,
        is_new: bool = True,
        lanes: Collection[Hashable] = (),
        began: float = 0.0,
    ) -> None:
        """Record calls of a slice that returned.

        ``lanes`` are their lanes, one for each record if it ``counts_calls``; they began at
        ``began``.
        """
        if not self.rules.enabled or not calls:
            return
        self.departures.succeeded()
        if is_new:
            self._evidence.record(calls, now)
        if self.state is BreakerState.CLOSED:
            if began:
                self.departures.began(began, next(iter(lanes)) if len(lanes) == 1 else None)
            return
        self.last_returned = source
        self._poison.returned(now)
        for lane in lanes:
            self.departures.began(began or now, lane)
        self._evidence.lanes.returned(lanes)
        for each in self._rounds:
            each.returned(source, lanes)
        if self.state is BreakerState.OPEN and self.samples.is_running(source):
            self._enter(BreakerState.HALF_OPEN, now, "a call has returned")

    def lanes_returned(self, lanes: Collection[Hashable]) -> None:
        """Record lanes of new records that returned while it is closed."""
        self._evidence.lanes.returned(lanes)

    def failed(
        self,
        now: float,
        error: str,
        source: object = None,
        *,
        is_new: bool = True,
        lane: Hashable = None,
    ) -> None:
        """Record a failure that another call could resolve; ``error`` is its text."""
        if not self.rules.enabled:
            return
        self._last_error = error
        self._poison.failed(is_new=is_new)
        self.departures.new_failed += is_new
        if is_new and self._evidence.failed(now, lane):
            if self.lets_start:
                self._evidence.crowds.append(self._running())
            self._judge(now)
        for each in self._rounds:
            each.failed(source, lane)

    def asked_later(
        self, now: float, after_s: float, source: object = None, *, is_new: bool = True
    ) -> None:
        """Record a call that asked to be repeated after a time (RetryLater)."""
        if not self.rules.enabled:
            return
        self._pause.asked_s = after_s
        if is_new:
            self._evidence.record(1, now, later=1)
            self._judge(now)
        for each in self._rounds:
            each.asked_later(source)
        if self.state is BreakerState.OPEN and self.samples.is_running(source):
            self._enter(BreakerState.PAUSED, now, "a record asked to be called later")

    def started(
        self, source: object, records: int, now: float, kind: Hashable, lane: Hashable = None
    ) -> None:
        """Record that a slice goes out, while it ``counts_calls``.

        Its ``kind`` is where in the windows its records come from.
        """
        rounds = self._rounds
        if rounds and (kind != AGAIN or self.state is not BreakerState.POISON):
            crowd = self._running()
            for each in rounds:
                each.start(source, records, kind, crowd)
        if self.state is BreakerState.OPEN:
            self.samples.started(source, now, lane)

    def over(self, source: object) -> None:
        """Record that a slice has ended, or that its call was abandoned."""
        for each in self._rounds:
            each.over(source)
        self.samples.over(source)

    def release(self, now: float) -> None:
        """Obey a user who declares the failures poison: held records may leave."""
        if self.state not in {BreakerState.CLOSED, BreakerState.POISON}:
            why = "a user has released the held records"
            self._enter(BreakerState.POISON, now, why, by_user=True)

    def hold(self, now: float) -> None:
        """Obey a user who declares an outage: nothing leaves until a call returns."""
        if self.state is not BreakerState.OPEN:
            self._enter(BreakerState.OPEN, now, "a user has declared an outage", by_user=True)
        self.samples.declare()

    def advance(self, now: float, outlook: Outlook | None = None) -> list[BreakerNews]:
        """Advance to ``now``; return the state changes since the last call.

        The outlook is required unless it is closed.
        """
        if self.since == _NEVER:
            self.since = now
        if self._search is not None and outlook is not None:
            self._decide(self._search, now, outlook)
        elif self.rules.enabled and self.departures.is_refusing:
            why = f"{MOST} records left without a success between them"
            self._enter(BreakerState.HOLDING, now, why)
        news, self._news = self._news, []
        return news

    # ---- queries

    @property
    def lets_start(self) -> bool:
        """Calls may start freely."""
        return self.state is BreakerState.CLOSED or (self.limit is None and self.state in FREE)

    @property
    def counts_calls(self) -> bool:
        """It must be notified of calls that start, and of the lanes of calls that return."""
        return self.state is not BreakerState.CLOSED

    @property
    def limit(self) -> int | None:
        """The most calls that may run, one by one; None for as many as there are slots."""
        return None if self._search is None else self._search.limit

    @property
    def _rounds(self) -> Sequence[CallRound]:
        """The rounds that calls count towards now."""
        return () if self._search is None else self._search.rounds

    def departure(self, call: SpentCall, now: float, *, in_a_hurry: bool = False) -> Departure:
        """Decide about a record whose attempts are spent."""
        if not self.rules.enabled:
            return Departure.LEAVE
        return self.departures.decide(call, self.state, now, in_a_hurry=in_a_hurry)

    def next_look(self, now: float) -> float:
        """Return when it must be checked again even if nothing happens."""
        return inf if self._search is None else self._search.next_due(now)

    def calls_within_window(self, now: float) -> tuple[int, int]:
        """Return how many new records failed within the window, and how many were called."""
        seen = self._evidence.window(now)
        return seen.failed, seen.calls

    # ---- rules

    def _judge(self, now: float) -> None:
        """Decide after a new record that did not return."""
        if not (self._evidence.is_bad and self._evidence.is_bad_beside(self._outlasting(now))):
            return
        self._poison.many_fail(now)
        seen = self._evidence.last
        if self.state is BreakerState.CLOSED:
            why = f"{seen.bad} of the last {seen.calls} new records failed"
            self._enter(BreakerState.HOLDING, now, why)
        if self.state is BreakerState.HOLDING and seen.later > self.rules.failures * seen.calls:
            why = f"{seen.later} of {seen.calls} new records asked to be called later"
            self._enter(BreakerState.PAUSED, now, why)

    def _outlasting(self, now: float) -> int:
        """Return how many calls began before the last new records ended, within HOLD_S.

        Bad records may fail sooner than good ones return, so failures may be known first.
        """
        return self._running_since(now - HOLD_S, self._evidence.since)

    def _decide(self, search: StateSearch, now: float, outlook: Outlook) -> None:
        """Follow what the calls of this state have shown."""
        limit = search.limit
        finding = search.judge(now, outlook)
        if finding is None:
            if search.limit != limit and self.state is BreakerState.HOLDING:
                limits = search.limit is not None
                self._news.append(BreakerNews(self.state, "", worth_a_line=False, limits=limits))
        elif finding.state is self.state:
            self._news.append(BreakerNews(self.state, finding.why))
        else:
            self._enter(finding.state, now, finding.why or self.why)

    def _enter(self, state: BreakerState, now: float, why: str, *, by_user: bool = False) -> None:
        """Enter a state; raise ValueError, and change nothing, if none leads there."""
        before = self.state
        if state not in NEXT[before]:
            raise ValueError(f"a breaker that is {before} cannot become {state}")
        if before not in FREE and before is not BreakerState.OVERLOAD:
            self.departures.doubt(now)
        if before is BreakerState.OPEN:
            self.departures.outage_ended(now)
        if state is BreakerState.OPEN and self._last_error:
            why = f"{why}, the last one with {self._last_error[:_SHOWN]}"
        elif state is BreakerState.PAUSED:
            why = f"{why}, for {self._pause.length_s:.3g} s"
        self.state, self.since = state, now
        if state is not BreakerState.CLOSED:
            self.why = why
        self._search = self._search_of.get(state)
        self._cause.end()
        self.samples.end()
        continues = before.searches_load and not by_user
        self._begin(before, now, by_user=by_user, continues=continues)
        pardon = state in _PARDONS or (state is BreakerState.POISON and continues)
        worth_a_line = state is not BreakerState.HOLDING
        self._news.append(BreakerNews(state, why, worth_a_line, pardon, state not in FREE))

    def _begin(self, before: BreakerState, now: float, *, by_user: bool, continues: bool) -> None:
        """Begin the search of its state; ``continues`` with what the search for the load found."""
        match self.state:
            case BreakerState.CLOSED:
                self._evidence.drop_old()
                self.departures.succeeded()
            case BreakerState.HOLDING:
                self._cause.begin(now, self._slots(), max(self._evidence.crowds, default=0))
            case BreakerState.POISON:
                if not by_user:
                    self._evidence.drop_old()
                self._poison.begin(now, by_user=by_user)
            case BreakerState.OVERLOAD:
                if not continues:
                    self._load.begin(self._cause.calls, now, usual_share=self._cause.share)
            case BreakerState.OPEN:
                self._evidence.lanes.clear()
                self.samples.begin(now, again=continues)
            case BreakerState.PAUSED:
                self._pause.begin(now)
            case BreakerState.HALF_OPEN:
                # A sample has returned, or nothing is known after a pause.
                self._load.begin(2 if before is BreakerState.OPEN else 1, now)
