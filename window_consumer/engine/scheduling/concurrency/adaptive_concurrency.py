"""The adaptive limit on busy slots, found by trial between two bounds.

The goal is throughput. Of limits with about the same throughput, the lowest is kept: a downstream
system that must queue calls answers later and does no more. The limit is held while a *stretch* is
measured; then another limit is tried for a stretch, and kept or not:

======== ================================= =====================================================
trial    when                              kept if
======== ================================= =====================================================
more     at first, and now and then        at least half of the added slots were useful
fewer    when more were not useful, or     throughput stays within a few percent of the best
         calls take longer than before     measured since the limit began to go down
======== ================================= =====================================================

Throughput follows from Little's law: the mean number of slices in progress, divided by the time
from dispatch to completion. If durations vary widely, completions in a span are counted instead. If
not, calls that began together end together, and a span may hold one wave more or less. The time
includes waiting for a thread, for the interpreter and for the poll loop: slots that only wait for
each other are useless, whatever each call measures. The number of records in a slice does not
matter.

The sources: Little's law (J. Little, 1961); trying other limits and keeping the best, from .NET's
thread pool (Hellerstein, Morrison, Eilebrecht: Applying Control Theory in the Real World, 2009) and
BBR's probing for bandwidth (Cardwell et al., 2016). Netflix' concurrency-limits (Vegas after TCP
Vegas by Brakmo and Peterson, 1995, and Gradient2) compares each latency with the best or usual one;
decision 20 has the measurements behind this choice.
"""

from __future__ import annotations

from enum import StrEnum
from math import log

from attrs import frozen

from window_consumer.engine.scheduling.concurrency.stretch import SURE, Measured, Stretch

FIRST = 10
"""The initial limit: enough for some concurrency, too low for a burst at startup."""

STEPS = (2.0, 1.25, 1.1)
"""The factors by which more slots are tried: coarse until a limit is too high, then finer."""

USEFUL = 0.5
"""The share of the added slots that must be useful. At this share, throughput divided by latency is
largest: Kleinrock's power (Power and Deterministic Rules of Thumb, 1979)."""

AS_GOOD = 0.97
"""Fewer slots are as good if they keep this share of the best throughput."""

CHANGED = 1.25
"""If calls take this many times longer, or throughput falls by this factor, fewer slots are tried
at once."""

RETREAT = 0.75
"""The factor by which fewer slots are tried then, repeatedly while the result is as good."""

REST_S = 2.0
"""How long a limit stays when neither more nor fewer slots were better; a trial costs some
throughput."""

SETTLE_CALLS = 1.0
"""How many slice durations after a change of the limit a stretch begins."""

FED = 0.75
"""If less than this share of the slots is in use, a stretch shows nothing about a limit."""


@frozen
class LimitRules:
    """The inclusive bounds in ``concurrency: {auto: 1..200}``. The upper one is ``slots``."""

    lower: int = 1
    first: int = FIRST
    """The initial limit, moved between the bounds if necessary."""


class LimitCause(StrEnum):
    """Why a trial limit was kept."""

    MORE_THROUGHPUT = "more_throughput"
    """More concurrent calls did more."""
    AS_MUCH_WITH_FEWER = "as_much_with_fewer"
    SLOWER_CALLS = "slower_calls"
    """Calls now take longer, and fewer of them achieve as much."""


@frozen
class LimitNews:
    """The limit has changed permanently, as far as is known."""

    before: int
    limit: int
    why: str
    """The reason, as text."""
    cause: LimitCause


class AdaptiveConcurrency:
    """Finds the number of slots that may be busy. Owner: poll thread."""

    def __init__(self, rules: LimitRules, upper: int):
        self._lower, self._upper = rules.lower, upper
        self.ahead = 1
        """The most slices in progress for each slot."""
        self.base = min(upper, max(rules.lower, rules.first))
        """The best known limit."""
        self.limit = self.base
        """How many slices may be in progress now: the base or a trial limit."""
        self.why = "initial limit"
        """The reason for the base, as text."""
        self.cause = LimitCause.MORE_THROUGHPUT
        """The reason as an enum value; meaningless before the first change."""
        self._step = 0
        """Index into STEPS: the factor for trying more."""
        self._reference: Measured | None = None
        """The latest measurement of the base."""
        self._usual: Measured | None = None
        """The measurement when the limit came to rest."""
        self._best = 0.0
        """The best throughput since the limit began to go down."""
        self._worse = False
        """The last stretch at rest was worse than usual."""
        self._reason = ""
        """Why the limit goes down; empty for an ordinary trial."""
        self._down = False
        self._factor = STEPS[0]
        self._in_a_row = 0
        """How many limits were kept in a row."""
        self._rests_until = 0.0
        self._stretch: Stretch | None = None
        self._out = 0
        """How many slices were in progress at the last check. Slices that have ended since then
        count until others replace them."""
        self._took_s = 0.0
        self._error = 0.0

    def record(self, sent: float, now: float, records: int, failed: int, called_s: float) -> None:
        """Record a slice that was dispatched at ``sent`` and has ended.

        Its ``records`` took ``called_s`` seconds in all; ``failed`` of them failed.
        """
        stretch = self._stretch
        took_s = now - sent
        if stretch is None or took_s <= 0:
            return
        if sent >= stretch.began:
            stretch.own += 1
            stretch.seconds += took_s
            stretch.squares += took_s * took_s
        if self._out > stretch.limit * self.ahead:
            stretch.since = now  # the excess has to return first
        elif now >= stretch.since:
            stretch.slices += 1
            stretch.records += records
            stretch.done += records - failed
            stretch.out += self._out
            stretch.busy += min(self._out, stretch.limit)
            stretch.called_s += called_s

    def adjust(self, now: float, out: int) -> LimitNews | None:
        """Evaluate a finished stretch; return the change of the base, if any.

        ``out`` slices are in progress, and no others can be dispatched now.
        """
        self._out = out
        stretch = self._stretch
        if stretch is None or out < FED * self.limit:
            # Too few records exist, or too few may run concurrently. Queued slices do not count:
            # behind a long call there are none.
            self._give_up(now)
            return None
        if not stretch.is_over(now, self._factor, coarse=self._factor >= STEPS[0]):
            return None
        measured = stretch.measured(now)
        self._took_s = measured.slice_s
        self._error = stretch.error
        before = self.base
        self._conclude(measured, now)
        return LimitNews(before, self.base, self.why, self.cause) if self.base != before else None

    def wait(self, now: float) -> None:
        """Record that some slots of the limit under test do not exist yet."""
        self._stretch = None
        self._begin(self.limit, now)

    # ---- stretches

    def _begin(self, limit: int, now: float) -> None:
        """Measure once most slices dispatched under another limit have returned."""
        before, settle_s = self._stretch, 0.0
        if before is None or before.limit != limit:
            settle_s = SETTLE_CALLS * self._took_s
        self._stretch = Stretch(limit, now, now + settle_s)

    # ---- conclusions

    def _conclude(self, measured: Measured, now: float) -> None:
        if measured.slots < FED * self.limit:
            self._give_up(now)
            return
        if self.limit == self.base:
            self._judge_base(measured, now)
        elif self.limit > self.base:
            self._judge_more(measured, now)
        else:
            self._judge_fewer(measured, now)
        self._begin(self.limit, now)

    def _give_up(self, now: float) -> None:
        """Start again from the base."""
        self.limit = self.base
        self._usual, self._down, self._in_a_row, self._worse = None, False, 0, False
        self._factor = STEPS[self._step]
        self._begin(self.limit, now)

    def _judge_base(self, measured: Measured, now: float) -> None:
        usual, self._reference = self._usual, measured
        if usual is not None:
            worse = _is_worse(measured, usual)
            if worse and not self._worse:
                self._worse = True
                return  # a short loss of the processor to others is over by the next one
            self._worse = False
            if worse:
                self._usual = None
                self._down, self._best = True, measured.records_per_s
                self._reason = (
                    f"at {self.base} a call takes {_ms(measured.call_s)} instead of"
                    f" {_ms(usual.call_s)}: fewer calls do as much"
                )
                self._in_a_row = 0
                self._try_fewer(RETREAT, now)
                return
            if now < self._rests_until:
                return
            self._usual = None
        if self._down:
            self._best = max(self._best, measured.records_per_s)
            self._try_fewer(1 / STEPS[-1], now)
        else:
            self._try_more(measured, now)

    def _judge_more(self, measured: Measured, now: float) -> None:
        reference = self._reference
        assert reference is not None  # more slots are tried only after the base was measured
        use = log(measured.records_per_s / reference.records_per_s) / log(
            max(measured.slots / reference.slots, 1.01)
        )
        if use >= USEFUL:
            gain = measured.records_per_s / reference.records_per_s - 1
            why = f"{gain:.0%} more throughput than at {self.base}"
            self._keep(measured, LimitCause.MORE_THROUGHPUT, why)
            if self._in_a_row > 1:
                self._step, self._in_a_row = max(0, self._step - 1), 0
            self._try_more(measured, now)
            return
        self._in_a_row = 0
        if self._step + 1 < len(STEPS):
            self._step += 1
        else:
            self._down, self._best = True, 0.0
        self._back(now)

    def _judge_fewer(self, measured: Measured, now: float) -> None:
        if measured.records_per_s >= AS_GOOD * self._best:
            self._best = max(self._best, measured.records_per_s)
            if self._reason:
                self._keep(measured, LimitCause.SLOWER_CALLS, self._reason)
            else:
                why = f"as much throughput as at {self.base}"
                self._keep(measured, LimitCause.AS_MUCH_WITH_FEWER, why)
            self._try_fewer(RETREAT if self._in_a_row > 1 else self._factor, now)
            return
        self._in_a_row, self._reason = 0, ""
        # The step may have been too large; finer ones are tried before the end.
        self._back(now, rest=self._factor > RETREAT)

    def _keep(self, measured: Measured, cause: LimitCause, why: str) -> None:
        """Make the trial limit the base."""
        self.cause, self.why = cause, why
        self.base, self._reference = self.limit, measured
        self._in_a_row += 1

    def _back(self, now: float, *, rest: bool = False) -> None:
        """Return to the base; if nothing better is likely, rest there."""
        self.limit = self.base
        self._factor = 1 / STEPS[-1] if self._down else STEPS[self._step]
        if rest:
            self._usual, self._reference = self._reference, None
            self._rests_until = now + REST_S
            self._down, self._in_a_row = False, 0
            self._step = len(STEPS) - 1

    def _try_more(self, measured: Measured, now: float) -> None:
        # Differences below the noise are indistinguishable.
        while self._step > 1 and self._error * SURE > STEPS[self._step] - 1.0:
            self._step -= 1
        self._factor = STEPS[self._step]
        self.limit = min(self._upper, max(self.base + 1, round(self.base * self._factor)))
        if self.limit <= self.base:
            self._down, self._best = True, measured.records_per_s
            self._try_fewer(1 / STEPS[-1], now)

    def _try_fewer(self, factor: float, now: float) -> None:
        self._factor = factor
        self.limit = max(self._lower, min(self.base - 1, round(self.base * factor)))
        if self.limit >= self.base:
            self._back(now, rest=True)


def _is_worse(measured: Measured, usual: Measured) -> bool:
    return (
        measured.records_per_s * CHANGED < usual.records_per_s
        or measured.record_s > CHANGED * usual.record_s
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
