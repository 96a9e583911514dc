"""The checks of ``check --connect`` beyond those of every start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve, frozen

from window_consumer.app.limits.group_times import HEARTBEAT, SESSION, GroupTimes, group_times
from window_consumer.engine.commits.commit_metadata import MAX_BYTES
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.topics.event_topics import event_place
from window_consumer.plan.topics.prepared_worker import PreparedWorker
from window_consumer.plan.topics.problems import wider_copies
from window_consumer.plan.topics.state_topics import StateTopic


@frozen
class ClusterFindings:
    """The cluster's answers about one worker."""

    worker: str
    topics: dict[str, int]
    """The source topics and their partition counts."""
    dead_letter_topics: dict[str, str]
    """The dead-letter topic of each source topic."""
    retry_topics: dict[str, list[str]]
    """The retry topics of each source topic, in the order of the ladder."""
    park_topics: dict[str, str]
    """The park topic of each source topic."""
    state_topics: dict[str, str]
    """The compacted topics with the state of its group, each with a description."""
    leftovers: dict[str, int | None]
    """Retry topics without a configured level, each with its number of remaining records; None
    where the cluster does not report it."""
    partitions: int
    members: int | None
    """The current number of group members, None if the cluster does not report it."""
    limits: dict[str, str]
    """The broker limits that we rely on."""
    group_times: GroupTimes
    """How soon the group notices that a member is gone, by the cluster's settings."""
    warnings: tuple[str, ...]

    def in_words(self) -> Iterator[str]:
        """Yield lines for people."""
        named = ", ".join(f"{name} ({count})" for name, count in sorted(self.topics.items()))
        yield f"  cluster: reads {named or 'no topic yet'}; may read and commit"
        for source, target in sorted(self.dead_letter_topics.items()):
            yield f"  cluster: dead letters of {source} go to {target}; may write"
        for source, names in sorted(self.retry_topics.items()):
            yield f"  cluster: {source} is retried by {', '.join(names)}; may read and write"
        for source, target in sorted(self.park_topics.items()):
            yield f"  cluster: {source} is parked in {target}; may read and write"
        for name, what in sorted(self.state_topics.items()):
            yield f"  cluster: {name} keeps {what}; may be used"
        for name, backlog in sorted(self.leftovers.items()):
            held = "an unknown number of" if backlog is None else str(backlog)
            then = "it may be deleted" if backlog == 0 else "it is read until it is drained"
            yield f"  cluster: {name} no longer belongs to a level and holds {held} records: {then}"
        if self.members is not None:
            members = "1 member" if self.members == 1 else f"{self.members} members"
            yield f"  cluster: the group has {members} now"
        for key, value in sorted(self.limits.items()):
            yield f"  cluster: {key} = {value}"
        for warning in self.warnings:
            yield f"  warning: {warning}"


_LIMITS = (
    "offset.metadata.max.bytes",
    SESSION,
    HEARTBEAT,
    "offsets.retention.minutes",
    "message.max.bytes",
)


def findings_of(
    app: AppDefinition, plan: AppPlan, start_timeout: float | None
) -> tuple[ClusterFindings, ...]:
    """Query the cluster for everything that a start checks, and for its limits.

    Changes nothing: it only checks whether missing dead-letter topics could be created. Raises what
    a start would raise.
    """
    prepared = app.prepare(plan, start_timeout=start_timeout, dry=True)
    states = app.features.state_topics(plan.config)
    found = [_findings(worker, _checked(worker, states, plan)) for worker in prepared.workers]
    topics = list(app.features.event_topics(plan.config))
    place = event_place(plan, prepared) if topics else None
    problems = [each.problem(plan, place, dry=True) for each in topics if place is not None]
    warnings = [problem for problem in problems if problem is not None]
    found[0] = evolve(found[0], warnings=(*found[0].warnings, *warnings))
    return tuple(found)


def _checked(worker: PreparedWorker, states: Sequence[StateTopic], plan: AppPlan) -> dict[str, str]:
    """Check the worker's topics of state as a start does."""
    own = [each for each in states if each.worker == worker.plan.name]
    for each in own:
        source = worker.cluster.topics([each.source]).get(each.source)
        each.prepare(plan.loaded, worker.plan.config, worker.cluster, source, dry=True)
    return {each.name: each.what for each in own}


def _findings(worker: PreparedWorker, state_topics: dict[str, str]) -> ClusterFindings:
    cluster = worker.cluster
    config = cluster.broker_config()
    limits = {key: config[key] for key in _LIMITS if key in config}
    partitions = sum(facts.partitions for facts in worker.topics.values())
    group = worker.plan.config.group
    members = cluster.group(group).members if group else None
    times = group_times(
        worker.plan.consumer,
        has_consumer_protocol=cluster.has_consumer_protocol(),
        broker=config,
        group=cluster.group_config(group) if group else {},
    )
    return ClusterFindings(
        worker=worker.plan.name,
        topics={name: facts.partitions for name, facts in worker.topics.items()},
        dead_letter_topics={
            name: ladder.dead_letters.topic
            for name, ladder in worker.ladders.items()
            if ladder.dead_letters
        },
        retry_topics={
            name: [target.topic for target in ladder.levels.values()]
            for name, ladder in worker.ladders.items()
            if ladder.levels
        },
        park_topics={
            name: ladder.park.topic for name, ladder in worker.ladders.items() if ladder.park
        },
        state_topics=state_topics,
        leftovers={each.name: each.backlog for each in worker.leftovers if each.retry_level.level},
        partitions=partitions,
        members=members,
        limits=limits,
        group_times=times,
        warnings=tuple(_warnings(worker, members, partitions, limits)),
    )


def _warnings(
    worker: PreparedWorker, members: int | None, partitions: int, limits: Mapping[str, str]
) -> Iterator[str]:
    config = worker.plan.config
    if members is not None and members + 1 > partitions:
        yield (
            f"the group has {members} members and its topics {partitions} partitions: another"
            " member would have no work"
        )
    if config.ordering == "partition" and config.slots > partitions:
        yield (
            f"ordering: partition uses at most {partitions} of the {config.slots} slots:"
            " one for each partition"
        )
    yield from wider_copies(config, worker.retry_levels, worker.described)
    taken = int(limits.get("offset.metadata.max.bytes", MAX_BYTES + 1))
    if taken <= MAX_BYTES:
        yield (
            f"the broker's offset.metadata.max.bytes is {taken}: commits carry fewer finished"
            " ranges than they could, so more may run again after a crash"
        )
    for source, ladder in worker.ladders.items():
        for target in ladder.targets:
            if target.partitions < target.source_partitions:
                yield (
                    f"{target.topic} has {target.partitions} partitions, {source} has"
                    f" {target.source_partitions}: copies from the rest are placed by key"
                )
