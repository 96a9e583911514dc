"""Manual interventions in a running worker: pause it, set its concurrency, decide about records."""

from __future__ import annotations

from attrs import frozen

from window_consumer.engine.engine import Engine
from window_consumer.engine.guards.breaker_state import BreakerAnswer
from window_consumer.engine.guards.interventions import (
    ConcurrencyAnswer,
    ConcurrencyRequest,
    Intervention,
    InterventionResult,
    PauseRequest,
)
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Clock
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.mailbox import WorkerMailbox
from window_consumer.runtime.worker_log import WorkerLog

_ANSWER_S = 10.0
"""A poll thread in the middle of a rebalance takes some seconds to answer."""


@frozen
class ManualInterventions:
    """Runs interventions on the poll thread. Any thread may use it.

    Every method returns None, and changes nothing, if the poll thread does not answer in time.
    """

    _mailbox: WorkerMailbox
    _log: WorkerLog

    def halt(
        self, name: TopicPartition | None, request: PauseRequest, *, halted: bool
    ) -> bool | None:
        """Pause or resume a partition, or the whole worker for None, see ``Engine.on_halted``.

        Return False for a partition that the worker does not own.
        """

        def do(engine: Engine, clock: Clock) -> bool:
            is_ours = engine.on_halted(name, clock.now(), request, halted=halted)
            if is_ours:
                what = "the worker" if name is None else str(name)
                how = "paused: nothing new starts" if halted else "resumed"
                self._log.info(
                    LogEvent.READING_PAUSED if halted else LogEvent.READING_RESUMED,
                    f"{what} is {how}, manually" + (f" ({said})" if (said := str(request)) else ""),
                    topic=None if name is None else name.topic,
                    partition=None if name is None else name.partition,
                    user=request.user,
                    reason=request.reason,
                    offset=None,  # otherwise RecordContext would add the current record
                )
            return is_ours

        return self._mailbox.ask(do, _ANSWER_S)

    def set_concurrency(self, request: ConcurrencyRequest) -> ConcurrencyAnswer | None:
        """Set how many calls run at once, see ``Engine.on_concurrency``."""

        def do(engine: Engine, clock: Clock) -> ConcurrencyAnswer:
            answer = engine.on_concurrency(request, clock.now())
            if answer is ConcurrencyAnswer.OBEYED:
                limit = request.limit or "as configured"
                self._log.info(
                    LogEvent.CONCURRENCY_SET,
                    f"concurrency {limit}, {request}",
                    limit=request.limit,
                    user=request.user,
                    reason=request.reason,
                )
            return answer

        return self._mailbox.ask(do, _ANSWER_S)

    def decide_breaker(self, *, release: bool) -> BreakerAnswer | None:
        """Release the records that the breaker holds, or declare an outage."""

        def do(engine: Engine, clock: Clock) -> BreakerAnswer:
            return engine.on_breaker_decision(clock.now(), release=release)

        return self._mailbox.ask(do, _ANSWER_S)

    def intervene(
        self, name: TopicPartition, offset: int, wanted: Intervention
    ) -> InterventionResult | None:
        """Skip a failed record or dead-letter it, see ``engine.interventions``."""

        def do(engine: Engine, clock: Clock) -> InterventionResult:
            return engine.on_intervention(name, offset, wanted, clock.now())

        return self._mailbox.ask(do, _ANSWER_S)
