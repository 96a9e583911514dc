"""Observes workers and their groups for a while: the diagnosis' I/O."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from time import monotonic, sleep
from typing import Final

from attrs import define, evolve, field, frozen

from window_consumer.admin.client import Access, AdminAddress, AskError, ask, fetch
from window_consumer.admin.doctor.diagnosis import diagnose
from window_consumer.admin.doctor.evidence import WorkerEvidence
from window_consumer.admin.doctor.metrics_reader import worker_looks
from window_consumer.admin.doctor.samples import (
    GroupLook,
    WorkerLook,
    answered,
    unanswered,
    worker_look,
)
from window_consumer.config import Config, WorkerConfig
from window_consumer.kafka.cluster import Cluster
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.record import TopicPartition
from window_consumer.plan.diagnosis import Diagnosis
from window_consumer.plan.topics.patterns import matching_topics

EVERY_S: Final = 1.0
_PING_S: Final = 2.0
"""A ping without an answer counts as having taken this long."""
_METRICS: Final = "/metrics"

Seen = tuple[list[WorkerLook], Sequence[str]]
"""Observations of workers, and the processes behind the same address that did not answer."""


@frozen
class Process:
    """The address of a process with workers."""

    address: AdminAddress
    access: Access
    has_windows: bool
    """Whether it is an admin address; otherwise it serves ``/metrics``."""

    def observe(self, at_s: float, *, stacks: bool) -> Seen:
        """Observe its workers; raise AskError."""
        if self.has_windows:
            answer = ask(self.address, self.access, stacks=stacks)
            return [worker_look(worker, at_s) for worker in answer.workers], answer.missing
        status, text = fetch(self.address, _METRICS, Access())
        if status != HTTPStatus.OK:
            raise AskError(f"{self.address}: {_METRICS} answers with status {status}")
        try:
            return worker_looks(text.decode("utf-8", "replace"), at_s), ()
        except ValueError as error:
            raise AskError(f"{self.address}: {error}") from error


@define
class Examination:
    """Observes everything for a while. Owner: the thread that runs the diagnosis."""

    config: Config
    workers: Sequence[WorkerConfig]
    clusters: Mapping[str, Cluster]
    """The cluster of each worker, shared if workers connect alike; missing if unreachable."""
    processes: Sequence[Process]
    notes: list[str] = field(factory=list)
    unreached: Collection[str] = ()
    """The workers whose cluster was unreachable."""
    _looks: dict[tuple[str, str, str], list[WorkerLook]] = field(factory=lambda: defaultdict(list))
    """By address, process and worker."""
    _groups: dict[str, list[GroupLook]] = field(factory=lambda: defaultdict(list))
    _trips: dict[int, list[float]] = field(factory=lambda: defaultdict(list))
    """By the cluster's identity."""
    _answered: set[int] = field(factory=set)
    """By the cluster's identity."""
    _stopped: threading.Event = field(factory=threading.Event)

    def run(self, for_s: float) -> Diagnosis:
        """Observe for ``for_s`` seconds; return the diagnosis."""
        deadline = monotonic() + for_s
        each = {id(cluster): cluster for cluster in self.clusters.values()}
        # A slow cluster must not delay the observation of workers or other clusters.
        with ThreadPoolExecutor(max(1, len(each)), "wc-doctor") as pool:
            asked = [pool.submit(self._watch_cluster, one, deadline) for one in each.values()]
            try:
                self._watch_workers(deadline)
            except BaseException:  # Ctrl-C: do not wait for the clusters
                self._stopped.set()
                raise
            for one in asked:
                one.result()
        return self._conclude()

    def _watch_workers(self, deadline: float) -> None:
        self._observe_workers(stacks=False)
        if not (self._looks or self.clusters):
            return  # nothing answered
        while (left_s := deadline - monotonic()) > 0:
            sleep(min(EVERY_S, left_s))
            if left_s > EVERY_S:
                self._observe_workers(stacks=False)
        # Stacks cost more, and only the last ones matter.
        self._observe_workers(stacks=True)

    def _watch_cluster(self, cluster: Cluster, deadline: float) -> None:
        """Observe the groups of one cluster at the start and at the end, and ping in between."""
        self._ping(cluster)
        self._observe_groups(cluster)
        while (left_s := deadline - monotonic()) > 0 and not self._stopped.is_set():
            self._ping(cluster)
            self._stopped.wait(min(EVERY_S, left_s))
        if not self._stopped.is_set():
            self._observe_groups(cluster)

    def _observe_workers(self, *, stacks: bool) -> None:
        for process in self.processes:
            try:
                now = monotonic()
                found, missing = process.observe(now, stacks=stacks)
            except AskError as error:
                self._add_note(str(error))
                continue
            for look in found:
                self._looks[str(process.address), look.worker.process, look.worker.name].append(
                    look
                )
            for number in missing:
                for worker in self.workers:
                    look = unanswered(now, worker.name, number)
                    self._looks[str(process.address), number, worker.name].append(look)

    def _observe_groups(self, cluster: Cluster) -> None:
        for worker in self.workers:
            if worker.is_broadcast or self.clusters.get(worker.name) is not cluster:
                continue
            try:
                look = self._group(worker, cluster)
                self._groups[worker.name].append(look)
            except WindowConsumerError as error:
                self._add_note(f"{worker.name}: its group could not be queried: {error}")

    def _group(self, worker: WorkerConfig, cluster: Cluster) -> GroupLook:
        group = cluster.group(worker.group)
        topics = list(worker.topics)
        if worker.patterns:
            topics += matching_topics(self.config, worker, cluster.topic_names())
        lags: dict[TopicPartition, int] = {}
        for topic in topics:
            lags |= cluster.backlogs(worker.group, topic)
        return GroupLook(monotonic(), group.members, not group.is_rebalancing, lags)

    def _ping(self, cluster: Cluster) -> None:
        try:
            self._trips[id(cluster)].append(cluster.round_trip_s(_PING_S))
            self._answered.add(id(cluster))
        except WindowConsumerError as error:
            self._trips[id(cluster)].append(_PING_S)
            self._add_note(f"{cluster.bootstrap} does not answer: {error}")

    def _add_note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _conclude(self) -> Diagnosis:
        known = {worker.name: worker for worker in self.workers}
        seen = {key: answered(looks) for key, looks in self._looks.items() if key[2] in known}
        strangers = sorted({key[2] for key in self._looks} - {*known, *self.config.workers})
        if strangers:
            self._add_note(f"workers that are not in the configuration: {', '.join(strangers)}")
        admin_urls = {str(each.address) for each in self.processes if each.has_windows}
        evidence = [
            evolve(
                self._evidence(known[name], looks, _whose(address, process, name, seen)),
                admin_url=address if address in admin_urls else "",
            )
            for (address, process, name), looks in seen.items()
        ]
        groups = [
            (name, _elsewhere(self._groups[name], _owned(name, seen)))
            for name in known
            if name in self._groups
        ]
        asked = {name for _, _, name in seen}
        return diagnose(
            evidence,
            groups=[(name, looks) for name, looks in groups if name not in asked],
            others=[(name, looks) for name, looks in groups if name in asked],
            notes=self.notes,
            were_asked=bool(self.processes),
        )

    def _evidence(
        self, worker: WorkerConfig, looks: Sequence[WorkerLook], where: str
    ) -> WorkerEvidence:
        cluster = self.clusters.get(worker.name)
        is_mute = cluster is not None and id(cluster) not in self._answered
        return WorkerEvidence(
            worker=worker.name,
            where=where,
            ordering=worker.ordering,
            pool=worker.pool,
            looks=looks,
            group=self._groups.get(worker.name, ()),
            round_trips_s=self._trips.get(id(cluster), ()),
            is_cluster_silent=is_mute or worker.name in self.unreached,
            blocks=worker.retry.on_failure == "block",
        )


def _whose(address: str, process: str, name: str, seen: Iterable[tuple[str, str, str]]) -> str:
    """Return the process of a worker in words, empty if there is only one."""
    same = [key for key in seen if key[2] == name]
    where = [f"process {process}"] if process else []
    if len({key[0] for key in same}) > 1:
        where.append(address if process else f"the process at {address}")
    return " at ".join(where)


def _owned(
    name: str, seen: Mapping[tuple[str, str, str], Sequence[WorkerLook]]
) -> set[TopicPartition]:
    """Return the partitions that the observed processes owned at any time."""
    return {
        each.name
        for key, looks in seen.items()
        if key[2] == name
        for look in looks
        for each in look.windows.partitions
    }


def _elsewhere(looks: Sequence[GroupLook], owned: set[TopicPartition]) -> list[GroupLook]:
    """Return the observations without the lag of these partitions."""
    return [
        GroupLook(
            look.at_s,
            look.members,
            look.is_stable,
            {name: lag for name, lag in look.lags.items() if name not in owned},
        )
        for look in looks
    ]
