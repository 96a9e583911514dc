"""What a feature is while an application starts and runs: what it adds to each worker."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from window_consumer.engine.commits.delivery_guarantee import MakeGuarantee
from window_consumer.engine.guards.pause_rule import PauseRule
from window_consumer.engine.observer import Observer
from window_consumer.engine.turn import TurnRule
from window_consumer.model.protocols import Clock, Sink
from window_consumer.plan.topics.prepared_worker import Prepared, PreparedWorker
from window_consumer.runtime.calls.layer import CallLayer
from window_consumer.runtime.partitions.preparation import PartitionPreparation
from window_consumer.runtime.running import Running


class RunningFeature:
    """A feature of an application that starts or runs. Each part does nothing by default."""

    def beside(self, prepared: Prepared) -> AbstractContextManager[object]:
        """Return what runs from the cluster's answers until all workers have ended."""
        del prepared
        return nullcontext()

    def observer_of(self, worker: PreparedWorker) -> Observer | None:
        """Return an observer of a worker's records."""
        del worker
        return None

    def layers_of(self, worker: PreparedWorker) -> Sequence[CallLayer]:
        """Return what surrounds a worker's calls."""
        del worker
        return ()

    def turn_rules_of(self, worker: PreparedWorker) -> Sequence[TurnRule]:
        """Return what says which of a worker's records are not called at their turn."""
        del worker
        return ()

    def pause_rules_of(self, worker: PreparedWorker) -> Sequence[PauseRule]:
        """Return what may pause a worker until a user resumes it."""
        del worker
        return ()

    def preparations_of(self, worker: PreparedWorker) -> Sequence[PartitionPreparation]:
        """Return what must be ready before a partition of a worker starts."""
        del worker
        return ()

    def guarantee_of(self, worker: PreparedWorker) -> MakeGuarantee | None:
        """Return what makes a worker's delivery guarantee; None for at least once."""
        del worker
        return None

    def sink_of(self, worker: PreparedWorker, sink: Sink, clock: Clock) -> Sink:
        """Return the sink of a worker's copies and results, around ``sink``."""
        del worker, clock
        return sink

    def sends_on_time(self, worker: PreparedWorker) -> bool:
        """Return whether a worker's first copy must not wait until its producer has connected."""
        del worker
        return False

    def feature_sink(self, sender: str, worker: PreparedWorker, sink: Sink, clock: Clock) -> Sink:
        """Return the sink of what another feature, ``sender``, sends beside a worker.

        It stands around ``sink``, and writes to the cluster of the worker.
        """
        del sender, worker, clock
        return sink

    def attach(self, running: Running) -> None:
        """Take the workers, which are about to start."""

    def figures(self) -> object | None:
        """Return the figures of the process for metrics, an object of a class of their own.

        Any thread may ask.
        """
        return None

    def figures_of(self, worker: str) -> object | None:
        """Return the figures of one worker, likewise."""
        del worker
        return None

    def failure(self) -> str | None:
        """Return a line for ``/readyz`` if the process must not count as ready.

        Any thread may ask.
        """
        return None
