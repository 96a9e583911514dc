"""The fate of records that a task holds because calls no longer succeed.

In a consumer, records wait until new ones arrive or a person decides. A backfill must end: once no
more records can arrive, ``max_hold`` begins. After it, up to ``MOST`` records leave if they fail
once more. If there are more, it is unknown whether they are bad or there is an outage, so the task
fails and names them, unless the user wants them to leave.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, Literal

from attrs import frozen

from window_consumer.config.units import brief_duration
from window_consumer.engine.guards.breaker.departures import MOST
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.offsets import runs_of
from window_consumer.model.errors import RunError
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.worker import Worker
from window_consumer.spark.backfill.results import TaskResults

MAX_HOLD_S: Final = 30.0
"""The default of ``breaker.max_hold`` in a backfill: short, because a person waits for its end."""

_ONCE_MORE_S: Final = 1.0
"""How long records are held after others have left if nothing has succeeded since."""

_MOST_RUNS: Final = 20
"""The most runs of offsets that a message names."""

AtEnd = Literal["leave", "fail"]
"""What happens if more than ``MOST`` records in a row would leave."""


class HeldRecordsError(RunError):
    """A task ends while it holds records. ``without_error`` has no text of a handler's error."""

    code = "WC183"

    def __init__(self, text: str, without_error: str):
        super().__init__(text)
        self.without_error = without_error


@frozen
class HoldRules:
    """How long a task holds records, and what happens to many."""

    max_hold_s: float = MAX_HOLD_S
    at_end: AtEnd = "fail"


class HeldRecords:
    """Ends a task's hold. Owner: the task's own thread."""

    def __init__(self, rules: HoldRules, worker: Worker, results: TaskResults):
        self._rules = rules
        self._worker = worker
        self._results = results
        self._seen: tuple[int, int] = (0, 0)
        self._since = 0.0
        """Since when nothing has changed while the breaker is open and no more records can come."""
        self._hold_s = rules.max_hold_s
        self._succeeded = 0

    def check(self, now: float, *, open_records: int, taken_in: int, may_come: bool) -> None:
        """Let held records leave if it is time; raise HeldRecordsError if there are too many.

        ``taken_in`` records have reached the windows so far; ``may_come`` is True while the windows
        have room and the range is not exhausted.
        """
        seen, results = (open_records, taken_in), self._results
        if results.succeeded > self._succeeded:
            self._succeeded, self._hold_s = results.succeeded, self._rules.max_hold_s
        if may_come or seen != self._seen or results.breaker_state is not BreakerState.OPEN:
            self._seen, self._since = seen, now
        elif now - self._since >= self._hold_s:
            self._since, self._hold_s = now, min(self._hold_s, _ONCE_MORE_S)
            if self._rules.at_end == "fail" and results.left_in_a_row + open_records > MOST:
                raise self._refusal(open_records)
            self._worker.interventions.decide_breaker(release=True)

    def _refusal(self, records: int) -> HeldRecordsError:
        failing = self._results.failing.copy()
        others = records - len(failing)
        held_s = brief_duration(self._rules.max_hold_s)
        what = (
            f"nothing has succeeded for {held_s}, and {records} records would leave:"
            f" {named(failing)}{f' and {others} that were not called' if others > 0 else ''}"
        )
        advice = (
            ". Start the backfill again once the services that its handler needs work, or with"
            " --at-end leave if the records themselves are bad"
        )
        error = " ".join(next(reversed(failing.values()), "unknown").split())
        return HeldRecordsError(f"{what}; the last error was {error}{advice}", what + advice)


def named(records: Mapping[tuple[TopicPartition, int], object]) -> str:
    """Return the runs of records as text: ``orders[0]@300..499, orders[1]@7``."""
    offsets: dict[TopicPartition, list[int]] = defaultdict(list)
    for name, offset in sorted(records):
        offsets[name].append(offset)
    runs = [(name, run) for name, each in offsets.items() for run in runs_of(each)]
    texts = [
        f"{name}@{run.start}" + (f"..{run.stop - 1}" if len(run) > 1 else "")
        for name, run in runs[:_MOST_RUNS]
    ]
    unnamed = sum(len(run) for _, run in runs[_MOST_RUNS:])
    return ", ".join(texts) + (f" and {unnamed} more" if unnamed else "")
