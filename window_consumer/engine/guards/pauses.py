"""Pauses: partitions, or the whole worker, that start nothing until a user resumes them.

A user pauses a partition or the worker; a ``PauseRule`` pauses the worker. Running calls may
finish, commits continue, and the worker stays in its group. Records come in until the window is
full. Failed records wait too, even if their next call is due. During a user's pause, copies are
still written; while a rule pauses the worker, only records that a user sends away leave. A paused
worker stays paused when partitions are assigned; the pause of one partition ends when the partition
is released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve

from window_consumer.engine.guards.interventions import PauseRequest
from window_consumer.engine.guards.pause_rule import PauseRule, RuleFinding
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.retry.copy_queue import CopyQueue
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.retry.record_outcomes import RecordOutcomes
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.model.record import TopicPartition


class Pauses:
    """The pauses of one worker. Owner: poll thread."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        dispatcher: Dispatcher,
        copy_queue: CopyQueue,
        failed_records: FailedRecords,
        completion: Completion,
        outcomes: RecordOutcomes,
    ):
        self._partitions = partitions
        self._dispatcher = dispatcher
        self._copy_queue = copy_queue
        self._failed_records = failed_records
        self._completion = completion
        self._outcomes = outcomes
        self.rules: list[PauseRule] = []
        self.by_user: PauseRequest | None = None
        """A user's pause of the worker, which also holds for future assignments."""
        self._alone: set[TopicPartition] = set()
        """Partitions that are paused individually."""

    @property
    def worker(self) -> bool:
        """The whole worker is paused, by a user or by a rule."""
        return self.by_user is not None or self._copy_queue.keeps

    def findings(self) -> Sequence[RuleFinding]:
        """Return the findings of rules that nobody has accepted."""
        return [finding for rule in self.rules for finding in rule.findings()]

    def halt(
        self, name: TopicPartition | None, now: float, request: PauseRequest, *, halted: bool
    ) -> bool:
        """Pause or resume a partition, or the worker for None; return False if it is not ours.

        Resuming the worker accepts its rules' findings. Pausing it again replaces user and reason.
        """
        if name is None:
            since = now if self.by_user is None else self.by_user.since
            self.by_user = evolve(request, since=since) if halted else None
            for rule in () if halted else self.rules:
                rule.accept()
        elif name not in self._partitions:
            return False
        elif halted:
            self._alone.add(name)
        else:
            self._alone.discard(name)
        self._copy_queue.keeps = self._rules_pause(now)
        self._apply(now)
        return True

    def ask_rules(self, now: float) -> None:
        """Pause the worker if a rule says so."""
        if self.rules and self._rules_pause(now) and not self._copy_queue.keeps:
            self._copy_queue.keeps = True
            self._apply(now)

    def assigned(self, partition: Partition) -> None:
        """Apply a pause of the worker to a new partition."""
        partition.set_hold(HoldReason.MANUAL, held=self._is_halted(partition))

    def remove(self, name: TopicPartition) -> None:
        """Remove a released partition."""
        self._alone.discard(name)

    def _rules_pause(self, now: float) -> bool:
        return any(rule.pauses(now) for rule in self.rules)

    def _is_halted(self, partition: Partition) -> bool:
        return self.worker or partition.name in self._alone

    def _apply(self, now: float) -> None:
        """Hold back the partitions that are now paused, and resume the others."""
        for partition in self._partitions.values():
            is_halted = self._is_halted(partition)
            was_halted = HoldReason.MANUAL in partition.holds
            partition.set_hold(HoldReason.MANUAL, held=is_halted)
            if is_halted and not was_halted:
                hold_back(partition, self._dispatcher, self._completion, now)
            elif was_halted and not is_halted:
                self._resume_work(partition, now)

    def _resume_work(self, partition: Partition, now: float) -> None:
        if not partition.is_assigned or partition.is_suspended:
            return
        self._failed_records.call_held(partition)
        self._outcomes.advance(partition, now)


def hold_back(
    partition: Partition, dispatcher: Dispatcher, completion: Completion, now: float
) -> None:
    """Take back the unstarted records of a partition that is held back from now on."""
    dispatcher.release_gathered(partition)
    dispatcher.remove(partition)
    for slice_ in [each for each in dispatcher.out if each.partition is partition]:
        completion.take_back(slice_, now)
