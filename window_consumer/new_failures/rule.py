"""The rule of one worker: which failures are new, and when there are too many."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final

from attrs import frozen

from window_consumer.config.sections.guards import NewFailureConfig
from window_consumer.config.units import format_duration
from window_consumer.engine.guards.pause_rule import PauseRule, RuleFinding
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import NotCalled, RetryLater
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message, TopicPartition
from window_consumer.new_failures.call_window import CallWindow

KIND: Final = "new_failure"
"""The name of the cause in ``doctor``."""


@frozen
class FailedCall:
    """A call that failed: the class of its error, and its record."""

    error_class: str
    partition: TopicPartition
    offset: int


@frozen
class NewFailure:
    """A fingerprint that is new in this version and has too many calls."""

    fingerprint: str
    last: FailedCall
    """The last of its calls before it was judged."""
    failures: int
    calls: int
    window_s: float

    def __str__(self) -> str:
        last, within = self.last, format_duration(self.window_s)
        return (
            f"{self.failures} of {self.calls} calls within {within} failed with {last.error_class}"
            f" (fingerprint {self.fingerprint}), which no other version has among the dead letters;"
            f" the last one was for offset {last.offset} of {last.partition}"
        )


@frozen
class NewFailureFigures:
    """The figures of one worker."""

    calls: int
    undecided: int


class NewFailureRule(PauseRule):
    """Finds new failures of one worker, and pauses it if configured to. Owner: poll thread.

    Only a record's first call in each topic counts, so that a bad record is not counted for each
    retry. A batch is one call. ``RetryLater`` is not a failure, but a request.
    """

    def __init__(
        self,
        config: NewFailureConfig,
        known: Container[str],
        on_found: Callable[[NewFailure], None],
        on_accepted: Callable[[Sequence[NewFailure]], None],
        *,
        is_batch: bool = False,
    ):
        """``known`` are the fingerprints of other versions."""
        self._config = config
        self._known = known
        self._on_found = on_found
        self._on_accepted = on_accepted
        self._is_batch = is_batch
        self._window = CallWindow(config.window)
        self._found: dict[str, NewFailure] = {}
        self._accepted: set[str] = set()
        self._unjudged: dict[str, FailedCall] = {}
        """The last failure of each fingerprint that has failed since it was judged."""
        self._last_batch: tuple[object, str] | None = None
        self._calls = 0

    @property
    def figures(self) -> NewFailureFigures:
        """Its figures. Any thread may read them (slightly outdated)."""
        return NewFailureFigures(self._calls, len(self._found))

    def pauses(self, now: float) -> bool:
        """See PauseRule. Judges only here: of a slice, failures are reported before successes."""
        for fingerprint in list(self._unjudged):
            self._judge(fingerprint, now)
        return self._is_pausing

    @property
    def _is_pausing(self) -> bool:
        return bool(self._found) and self._config.action == "pause"

    def findings(self) -> Sequence[RuleFinding]:
        """See PauseRule."""
        return [
            RuleFinding(
                KIND,
                str(each),
                self._is_pausing,
                {
                    "fingerprint": each.fingerprint,
                    "error": each.last.error_class,
                    "failed": each.failures,
                    "calls": each.calls,
                },
            )
            for each in self._found.values()
        ]

    def accept(self) -> None:
        """Accept these failures for this version."""
        if self._found:
            self._on_accepted(tuple(self._found.values()))
            self._accepted.update(self._found)
            self._found.clear()

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,
    ) -> None:
        """Count calls that returned."""
        del partition, slice_
        if outcome.calls_handler:
            self._window.called(1 if self._is_batch else len(messages), now)

    def failed(self, failed: FailedRecord, now: float) -> None:
        """Count a failed call, and judge its fingerprint."""
        error, fault = failed.failure.error, failed.failure.fault
        if isinstance(error, NotCalled | RetryLater) or failed.attempts - failed.uncalled > 1:
            return
        name = fault.fingerprint
        if failed.together is not None:
            if self._last_batch == (failed.together, name):
                return
            self._last_batch = failed.together, name
        if name in self._known or name in self._accepted:
            self._window.called(1, now)
            return
        self._calls += 1
        self._window.failed(name, now)
        if name not in self._found:
            place, offset = failed.partition.name, failed.message.offset()
            self._unjudged[name] = FailedCall(fault.error_class, place, offset)

    def _judge(self, fingerprint: str, now: float) -> None:
        """Decide about a fingerprint once there are enough calls."""
        failures, calls = self._window.share(fingerprint, now)
        if failures and calls < self._config.min_calls:
            return
        failed = self._unjudged.pop(fingerprint)
        if failures > self._config.share * calls:
            found = NewFailure(fingerprint, failed, failures, calls, self._config.window)
            self._found[fingerprint] = found
            self._on_found(found)
