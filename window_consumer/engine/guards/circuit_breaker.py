"""The circuit breaker: tells poison (records that always fail) from an outage of what they need.

A record leaves only beside successes. While few records fail, spent ones leave at once. When more
than ``failures`` of the last new records failed, nothing leaves and calls cost no attempt until the
cause is found: new records from other places of the windows are called beside those that failed.

========= ============================ ====================================================
state     meaning                      leaves
========= ============================ ====================================================
closed    normal operation             to holding when most of the last ``min_calls`` new records
                                       failed, or MOST records left without a success between them
holding   nothing leaves while it      to poison when records from one place fail while those from
          searches for the cause       another succeed, or fewer calls do not fail less; to overload
                                       when they do; to open when none succeeds; to paused when most
                                       ask to be called later
poison    everything runs; a spent     to closed when few fail for POISON_S; to holding when those
          record leaves if others      from no place succeed, or none has for a while
          succeeded beside it
overload  as many calls as succeed,    to closed when all slots run again; to poison when fewer
          failed and new records in    calls do not fail less, or only those from some places
          turn; nothing leaves         fail; to open when none succeeds
open      only samples, one after      to half-open when a sample returns; to closed when nothing is
          another; nothing leaves      left to call; to paused when one asks to be called later
paused    nothing starts, and no       to half-open when the requested time is over, at most
          attempt is spent             ``cool_down``
half-open as many calls as succeeded   to closed when all slots run; to open when none of a round
          in the last round, doubled   succeeds; to paused when most ask to be called later
========= ============================ ====================================================

Only a failure that another call could resolve counts. A call that says nothing about the handler's
environment (Fatal, Skip) does not count at all. Decision 48 has the reasons.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence

from window_consumer.engine.guards.breaker_state import (
    CHARGED,
    FREE,
    NEXT,
    BreakerNews,
    BreakerRules,
    BreakerState,
    Outlook,
)
from window_consumer.engine.guards.call_round import CallRound
from window_consumer.engine.guards.cause_search import Cause, CauseSearch
from window_consumer.engine.guards.departures import HOLD_S, MOST, Departure, Departures, SpentCall
from window_consumer.engine.guards.load_search import LoadFinding, LoadSearch
from window_consumer.engine.guards.outage_evidence import FailedLanes, OutageEvidence
from window_consumer.engine.guards.outage_samples import OutageSamples

POISON_S = 5.0
"""How long few records must fail before poison is forgotten."""

SHORTEST_PAUSE_S = 0.1
"""The shortest pause: records that ask for an immediate call are not called more often."""

AGAIN = "again"
"""The kind of calls of records that failed before."""

SEARCHING = frozenset({BreakerState.HALF_OPEN, BreakerState.OVERLOAD})
"""The states in which it searches for the number of calls that can run."""

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
        running_since: Callable[[float, float], int] = lambda _first, _last: 0,
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
        self._lanes = FailedLanes()
        self._crowds: deque[int] = deque(maxlen=rules.min_calls)
        """While all slots may run: how many calls ran when the last new records failed."""
        self._cause = CauseSearch(rules)
        self._watch: CallRound | None = None
        """The present round of calls in poison: if calls of no place succeed, it holds again."""
        self._load = LoadSearch(rules.failures)
        self._last_bad = 0.0
        self._last_ok = _NEVER
        self.last_returned: object = None
        """The slice of the last call that returned while it was not closed."""
        self._failed_since_ok = 0
        self._new_failed_since_ok = 0
        self._last_error = ""
        self._asked_s = 0.0
        """The wait that the last record which asked to be called later wants."""
        self._ends_at = 0.0
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
        self._last_ok, self.last_returned = now, source
        self._failed_since_ok = self._new_failed_since_ok = 0
        for lane in lanes:
            self.departures.began(began or now, lane)
        self._lanes.returned(lanes)
        for each in self._rounds():
            each.returned(source, lanes)
        if self.state is BreakerState.OPEN and self.samples.is_running(source):
            self._half_open(now, "a call has returned", 2)

    def lanes_returned(self, lanes: Collection[Hashable]) -> None:
        """Record lanes of new records that returned while it is closed."""
        self._lanes.returned(lanes)

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
        self._failed_since_ok += 1
        self._new_failed_since_ok += is_new
        self.departures.new_failed += is_new
        if is_new and not self._lanes.is_repeat(lane, now):
            self._evidence.record(1, now, failed=1)
            if self.lets_start:
                self._crowds.append(self._running())
            self._judge(now)
        for each in self._rounds():
            each.failed(source, lane)

    def asked_later(
        self, now: float, after_s: float, source: object = None, *, is_new: bool = True
    ) -> None:
        """Record a call that asked to be repeated after a time (RetryLater)."""
        if not self.rules.enabled:
            return
        self._asked_s = after_s
        if is_new:
            self._evidence.record(1, now, later=1)
            self._judge(now)
        for each in self._rounds():
            each.asked_later(source)
        if self.state is BreakerState.OPEN and self.samples.is_running(source):
            self._pause(now, "a record asked to be called later")

    def started(
        self, source: object, records: int, now: float, kind: Hashable, lane: Hashable = None
    ) -> None:
        """Record that a slice goes out, while it ``counts_calls``.

        Its ``kind`` is where in the windows its records come from.
        """
        rounds = self._rounds()
        if rounds and (kind != AGAIN or self.state is not BreakerState.POISON):
            crowd = self._running()
            for each in rounds:
                each.start(source, records, kind, crowd)
        if self.state is BreakerState.OPEN:
            self.samples.started(source, now, lane)

    def over(self, source: object) -> None:
        """Record that a slice has ended, or that its call was abandoned."""
        for each in self._rounds():
            each.over(source)
        self.samples.over(source)

    def release(self, now: float) -> None:
        """Obey a user who declares the failures poison: held records may leave."""
        if self.state not in {BreakerState.CLOSED, BreakerState.POISON}:
            self._enter(BreakerState.POISON, now, "a user has released the held records")

    def hold(self, now: float) -> None:
        """Obey a user who declares an outage: nothing leaves until a call returns."""
        if self.state is not BreakerState.OPEN:
            self._open(now, "a user has declared an outage")
        self.samples.declare()

    def advance(self, now: float, outlook: Outlook | None = None) -> list[BreakerNews]:
        """Advance to ``now``; return the state changes since the last call.

        The outlook is required unless it is closed.
        """
        if self.since == _NEVER:
            self.since = now
        if self.state is not BreakerState.CLOSED and outlook is not None:
            self._decide(now, outlook)
        elif self.rules.enabled and self.departures.is_refusing:
            self._hold(now, f"{MOST} records left without a success between them")
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
    def charges(self) -> bool:
        """Failed calls cost an attempt."""
        return self.state in CHARGED

    @property
    def spreads(self) -> bool:
        """New records from other places of the windows are called beside the usual ones."""
        return self.state in {BreakerState.HOLDING, BreakerState.POISON}

    @property
    def compares(self) -> bool:
        """Fewer calls run, from all places alike, to see whether fewer fail."""
        return self.state is BreakerState.HOLDING

    @property
    def mixes(self) -> bool:
        """Records that failed are called in turn with new ones."""
        return self.state is BreakerState.OVERLOAD

    @property
    def pauses(self) -> bool:
        """Nothing starts until a requested time is over."""
        return self.state is BreakerState.PAUSED

    @property
    def limit(self) -> int | None:
        """The most calls that may run, one by one; None for as many as there are slots."""
        if self.state in SEARCHING:
            return self._load.limit
        if self.state is BreakerState.HOLDING:
            return self._cause.limit
        return None if self.state in FREE else 0

    def _rounds(self) -> Sequence[CallRound]:
        """Return the rounds that calls count towards now."""
        if self.state in SEARCHING:
            return self._load.rounds
        present = self._watch if self.state is BreakerState.POISON else self._cause.round
        return () if present is None else (present,)

    def departure(self, call: SpentCall, now: float, *, in_a_hurry: bool = False) -> Departure:
        """Decide about a record whose attempts are spent."""
        if not self.rules.enabled:
            return Departure.LEAVE
        return self.departures.decide(call, self.state, now, in_a_hurry=in_a_hurry)

    def next_look(self, now: float) -> float:
        """Return when it must be checked again even if nothing happens."""
        state = self.state
        if state is BreakerState.CLOSED:
            return float("inf")
        if state is BreakerState.OPEN:
            return self.samples.next_due(now)
        if state is BreakerState.PAUSED:
            return self._ends_at
        return max(self.since, now) + HOLD_S

    def calls_within_window(self, now: float) -> tuple[int, int]:
        """Return how many new records failed within the window, and how many were called."""
        seen = self._evidence.window(now)
        return seen.failed, seen.calls

    # ---- rules

    def _judge(self, now: float) -> None:
        """Decide after a new record that did not return."""
        if not (self._evidence.is_bad and self._evidence.is_bad_beside(self._outlasting(now))):
            return
        self._last_bad = now
        seen = self._evidence.last
        if self.state is BreakerState.CLOSED:
            self._hold(now, f"{seen.bad} of the last {seen.calls} new records failed")
        if self.state is BreakerState.HOLDING and seen.later > self.rules.failures * seen.calls:
            self._pause(now, f"{seen.later} of {seen.calls} new records asked to be called later")

    def _outlasting(self, now: float) -> int:
        """Return how many calls began before the last new records ended, within HOLD_S.

        Bad records may fail sooner than good ones return, so failures may be known first.
        """
        return self._running_since(now - HOLD_S, self._evidence.since)

    def _decide(self, now: float, outlook: Outlook) -> None:
        match self.state:
            case BreakerState.HOLDING:
                self._find_out(now, outlook)
            case BreakerState.POISON:
                self._watch_poison(now, outlook)
            case BreakerState.OPEN:
                self._wait_out(now, outlook)
            case BreakerState.PAUSED:
                if now >= self._ends_at:
                    self._half_open(now, "the pause is over", 1)
            case _:
                self._open_up(now, outlook)

    def _watch_poison(self, now: float, outlook: Outlook) -> None:
        """Forget poison when few records fail; search for the cause again when none succeeds."""
        if outlook.released:
            return  # a user knows better
        seen = self._watch
        if seen is not None and seen.is_over(now, POISON_S, starved=False):
            self._begin_watch(now)
            settled = now - self.since >= HOLD_S
            if settled and seen.has_kinds(2) and not seen.some_succeed(self.rules.failures):
                self._hold(now, f"{seen.bad} of {seen.ok + seen.bad} calls failed, in all places")
                return
        silent_s = now - max(self._last_ok, self.since)
        least = self.rules.min_calls
        if self._new_failed_since_ok >= least and silent_s >= HOLD_S:
            self._hold(now, f"{self._new_failed_since_ok} new records in a row failed")
        elif silent_s >= POISON_S and outlook.held < least:
            self._close(now, "few records fail")
        elif silent_s >= POISON_S and self._failed_since_ok:
            self._hold(now, f"nothing has succeeded for {silent_s:.0f} s")
        elif now - max(self._last_bad, self.since) >= POISON_S and not outlook.held:
            self._close(now, "few records fail")

    def _find_out(self, now: float, outlook: Outlook) -> None:
        """Search for the cause of many failures."""
        before, cause = self._cause.limit, self._cause.judge(now, outlook)
        why = self._cause.why
        match cause:
            case Cause.POISON:
                self._find_poison(now, why)
            case Cause.OVERLOAD:
                self._enter(BreakerState.OVERLOAD, now, why, pardon=True)
                self._load.begin(self._cause.calls, now, usual_share=self._cause.share)
            case Cause.OUTAGE:
                self._open(now, why or self.why)
            case Cause.LATER:
                self._pause(now, why)
            case Cause.UNKNOWN if before != self._cause.limit:
                limits = self._cause.limit is not None
                self._news.append(BreakerNews(self.state, "", worth_a_line=False, limits=limits))

    def _open_up(self, now: float, outlook: Outlook) -> None:
        """Let more or fewer calls run after a round, half-open or overloaded."""
        seen = self._load.rounds[0]
        if not seen.is_over(now, self.rules.cool_down_s, starved=not outlook.ready):
            return
        calls, running = seen.ok + seen.bad, self._load.limit
        if seen.later > seen.bad and not seen.ok:
            self._pause(now, "a record asked to be called later")
            return
        if not calls:
            if outlook.failed or outlook.new:
                self._load.repeat(now)
            else:
                self._close(now, "nothing is left to call")
            return
        match finding := self._load.judge(now, outlook.slots):
            case LoadFinding.NONE_SUCCEED:
                self._open(now, f"none of {calls} calls succeeded", again=True)
            case LoadFinding.OVERLOAD:
                why = f"with {running} calls at once, {seen.bad} of {calls} fail"
                self._enter(BreakerState.OVERLOAD, now, why, pardon=True)
            case LoadFinding.NOTHING:
                pass
            case _:
                self._find_poison(now, finding.value, pardon=True)

    def _wait_out(self, now: float, outlook: Outlook) -> None:
        """Let held records leave in the end, if nothing more can be learnt."""
        if not (outlook.failed or outlook.new or self.samples.is_running()):
            self._close(now, "nothing is left to call")
        elif why := self.samples.check_end(now, outlook):
            self._news.append(BreakerNews(self.state, why))

    def _hold(self, now: float, why: str) -> None:
        self._enter(BreakerState.HOLDING, now, why, worth_a_line=False)
        self._cause.begin(now, self._slots(), max(self._crowds, default=0))

    def _find_poison(self, now: float, why: str, *, pardon: bool = False) -> None:
        self._last_bad = now
        self._evidence.drop_old()
        self._lanes.clear()
        self._enter(BreakerState.POISON, now, why, pardon=pardon)
        self._begin_watch(now)

    def _begin_watch(self, now: float) -> None:
        least = self.rules.min_calls
        self._watch = CallRound(least, now, of_each=least / 2)

    def _half_open(self, now: float, why: str, calls: int) -> None:
        self._enter(BreakerState.HALF_OPEN, now, why, pardon=True)
        self._load.begin(calls, now)

    def _open(self, now: float, why: str, *, again: bool = False) -> None:
        self.samples.begin(now, again=again)
        self._lanes.clear()
        error = f", the last one with {self._last_error[:_SHOWN]}" if self._last_error else ""
        self._enter(BreakerState.OPEN, now, f"{why}{error}", pardon=True)

    def _pause(self, now: float, why: str) -> None:
        pause_s = min(max(self._asked_s, SHORTEST_PAUSE_S), self.rules.cool_down_s)
        self._enter(BreakerState.PAUSED, now, f"{why}, for {pause_s:.3g} s")
        self._ends_at = now + pause_s

    def _close(self, now: float, why: str) -> None:
        self._evidence.drop_old()
        self._lanes.clear()
        self.departures.succeeded()
        self._enter(BreakerState.CLOSED, now, why, pardon=True)

    def _enter(
        self,
        state: BreakerState,
        now: float,
        why: str,
        *,
        pardon: bool = False,
        worth_a_line: bool = True,
    ) -> None:
        if self.state not in FREE and self.state is not BreakerState.OVERLOAD:
            self.departures.doubt(now)
        if self.state is BreakerState.OPEN:
            self.departures.outage_ended(now)
        if state not in NEXT[self.state]:
            raise ValueError(f"a breaker that is {self.state} cannot become {state}")
        self.state, self.since = state, now
        self._watch = None
        self._cause.end()
        self.samples.end()
        self._failed_since_ok = self._new_failed_since_ok = 0
        if state is not BreakerState.CLOSED:
            self.why = why
        limits = state not in FREE
        self._news.append(BreakerNews(state, why, worth_a_line, pardon, limits))
