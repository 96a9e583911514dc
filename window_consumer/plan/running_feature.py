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
    """A feature of a starting or running application. Each part does nothing by default."""

    def beside(self, prepared: Prepared) -> AbstractContextManager[object]:
        """Return a context that lasts from the cluster's first answers until all workers ended."""
        del prepared
        return nullcontext()

    def observer_of(self, worker: PreparedWorker) -> Observer | None:
        """Return an observer of a worker's records."""
        del worker
        return None

    def layers_of(self, worker: PreparedWorker) -> Sequence[CallLayer]:
        """Return the layers around a worker's calls."""
        del worker
        return ()

    def turn_rules_of(self, worker: PreparedWorker) -> Sequence[TurnRule]:
        """Return the rules that keep records of a worker from being called at their turn."""
        del worker
        return ()

    def pause_rules_of(self, worker: PreparedWorker) -> Sequence[PauseRule]:
        """Return the rules that may pause a worker until a user resumes it."""
        del worker
        return ()

    def preparations_of(self, worker: PreparedWorker) -> Sequence[PartitionPreparation]:
        """Return the preparations that a partition of a worker needs before it starts."""
        del worker
        return ()

    def guarantee_of(self, worker: PreparedWorker) -> MakeGuarantee | None:
        """Return the factory of a worker's delivery guarantee; None for at least once."""
        del worker
        return None

    def sink_of(self, worker: PreparedWorker, sink: Sink, clock: Clock) -> Sink:
        """Return the sink of a worker's copies and results, around ``sink``."""
        del worker, clock
        return sink

    def sends_on_time(self, worker: PreparedWorker) -> bool:
        """Return whether a worker needs a connected producer before its first copy."""
        del worker
        return False

    def feature_sink(self, sender: str, worker: PreparedWorker, sink: Sink, clock: Clock) -> Sink:
        """Return the sink for records that another feature, ``sender``, sends beside a worker.

        It wraps ``sink``, which writes to the worker's cluster.
        """
        del sender, worker, clock
        return sink

    def attach(self, running: Running) -> None:
        """Receive the workers, which are about to start."""

    def figures(self) -> object | None:
        """Return the figures of the process for metrics, an object of the feature's own class.

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
