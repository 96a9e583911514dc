"""What ``check --connect`` asks of the cluster beyond what a start asks anyway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from window_consumer.app.application import App
from window_consumer.app.plan import Plan
from window_consumer.app.preflight import PreparedWorker
from window_consumer.core.metadata import MAX_BYTES


@frozen
class ClusterFindings:
    """What the cluster says about one worker."""

    worker: str
    topics: dict[str, int]
    """The source topics and their partitions."""
    dead_letter_topics: dict[str, str]
    """The dead-letter topic of each source topic."""
    partitions: int
    members: int | None
    """Members that the group has now, None where the cluster does not tell."""
    limits: dict[str, str]
    """The broker's limits that we rely on."""
    warnings: tuple[str, ...]

    def in_words(self) -> Iterator[str]:
        """Yield lines for people."""
        named = ", ".join(f"{name} ({count})" for name, count in sorted(self.topics.items()))
        yield f"  cluster: reads {named or 'no topic yet'}; may read and commit"
        for source, target in sorted(self.dead_letter_topics.items()):
            yield f"  cluster: dead letters of {source} go to {target}; may write"
        if self.members is not None:
            yield f"  cluster: the group has {self.members} members now"
        for key, value in sorted(self.limits.items()):
            yield f"  cluster: {key} = {value}"
        for warning in self.warnings:
            yield f"  warning: {warning}"


_LIMITS = (
    "offset.metadata.max.bytes",
    "group.consumer.session.timeout.ms",
    "offsets.retention.minutes",
    "message.max.bytes",
)


def findings_of(app: App, plan: Plan, start_timeout: float | None) -> tuple[ClusterFindings, ...]:
    """Ask the cluster everything that a start would ask, and for its limits.

    Changes nothing: missing dead-letter topics are not made, only whether they could be. Raises
    what a start would raise.
    """
    prepared = app.prepare(plan, start_timeout=start_timeout, dry=True)
    return tuple(_findings(worker) for worker in prepared.workers)


def _findings(worker: PreparedWorker) -> ClusterFindings:
    cluster = worker.cluster
    config = cluster.broker_config()
    limits = {key: config[key] for key in _LIMITS if key in config}
    partitions = sum(facts.partitions for facts in worker.topics.values())
    members = cluster.group(worker.plan.config.group).members
    return ClusterFindings(
        worker=worker.plan.name,
        topics={name: facts.partitions for name, facts in worker.topics.items()},
        dead_letter_topics={name: target.topic for name, target in worker.targets.items()},
        partitions=partitions,
        members=members,
        limits=limits,
        warnings=tuple(_warnings(worker, members, partitions, limits)),
    )


def _warnings(
    worker: PreparedWorker, members: int | None, partitions: int, limits: Mapping[str, str]
) -> Iterator[str]:
    config = worker.plan.config
    if members is not None and members + 1 > partitions:
        yield (
            f"the group has {members} members and its topics {partitions} partitions: a further"
            " member would have nothing to do"
        )
    if config.ordering == "partition" and config.concurrency > partitions:
        yield (
            f"ordering: partition uses at most {partitions} of the {config.concurrency} slots:"
            " that many partitions there are"
        )
    taken = int(limits.get("offset.metadata.max.bytes", MAX_BYTES + 1))
    if taken <= MAX_BYTES:
        yield (
            f"the broker's offset.metadata.max.bytes is {taken}: commits carry fewer finished"
            " ranges than they could, more may run again after a crash"
        )
    for source, target in worker.targets.items():
        facts = worker.topics.get(source)
        if facts is not None and target.partitions != facts.partitions:
            yield (
                f"{target.topic} has {target.partitions} partitions, {source} has"
                f" {facts.partitions}: copies are placed by key"
            )
