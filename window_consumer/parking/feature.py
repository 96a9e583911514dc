"""Parking as a feature of the workers with ``retry.on_failure: park``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from window_consumer.config import TopicsConfig
from window_consumer.engine.turn import TurnRule
from window_consumer.parking.index import ParkLimits
from window_consumer.parking.metrics import METRICS
from window_consumer.parking.rules import Parking, ParkingFigures
from window_consumer.parking.scans import LadderScans
from window_consumer.parking.topics import ParkTopics
from window_consumer.plan.feature import AppStart, Feature
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.topics.prepared_worker import Prepared, PreparedWorker
from window_consumer.runtime.partitions.preparation import PartitionPreparation


class RunningParking(RunningFeature):
    """The rules and scans of an application's workers."""

    def __init__(self, names: TopicsConfig):
        self._names = names
        self._rules: dict[str, Parking] = {}
        """By worker."""
        self._scans: dict[str, LadderScans] = {}

    @contextmanager
    def beside(self, prepared: Prepared) -> Iterator[None]:
        """Make the rules of workers that park, or whose park topics are not empty yet."""
        for worker in prepared.workers:
            config = worker.plan.config
            topics = ParkTopics(worker, self._names, prepared.oauth_token)
            if config.parks or topics.are_left:
                section = config.retry.park
                limits = ParkLimits(section.max_keys, section.max_records)
                scans = self._scans[config.name] = LadderScans(topics)
                park = topics.park if config.parks else None
                self._rules[config.name] = Parking(
                    limits, park, scans, follows=section.on_dead == "follow"
                )
        yield

    def turn_rules_of(self, worker: PreparedWorker) -> Sequence[TurnRule]:
        """Return the rule of a worker that parks."""
        rule = self._rules.get(worker.plan.name)
        return [] if rule is None else [rule]

    def preparations_of(self, worker: PreparedWorker) -> Sequence[PartitionPreparation]:
        """Return the scans of its ladders."""
        scans = self._scans.get(worker.plan.name)
        return [] if scans is None else [scans]

    def figures_of(self, worker: str) -> ParkingFigures | None:
        """Return the figures of a worker's ladders."""
        rule = self._rules.get(worker)
        return None if rule is None else rule.figures()


class ParkingFeature(Feature):
    """Parking. It has no section of its own: workers request it."""

    name = "parking"
    metrics = METRICS

    @contextmanager
    def starting(self, start: AppStart) -> Iterator[RunningFeature | None]:
        """Start with the workers."""
        yield RunningParking(start.plan.config.topics)
