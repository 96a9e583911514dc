"""A consumer group in memory: who owns which partition, and what is committed.

It has Kafka's two kinds of rebalance. Incremental: a member gives up only the partitions that it
loses, and these get their new owner after that. Eager: all members give up everything, then
everything is assigned again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import frozen

from window_consumer.model.errors import CommitFailedError
from window_consumer.model.protocols import Commit, CommittedOffset
from window_consumer.model.record import TopicPartition

CountPartitions = Callable[[str], int]
"""Returns how many partitions a topic has, 0 if there is no such topic."""


class GroupMember(Protocol):
    """A consumer as its group sees it."""

    topics: Sequence[str]

    @property
    def held(self) -> Sequence[TopicPartition]:
        """The partitions that it believes it owns."""


@frozen
class RefusedCommit:
    """A planned failure of a commit; ``written`` if only the answer is wrong."""

    error: CommitFailedError
    written: bool = False


@frozen
class Applied:
    """A commit that was written, for checkers."""

    member: GroupMember | None
    """None if an administrator wrote it."""
    commit: Commit


class FakeGroup:
    """One consumer group. Owner: one thread."""

    def __init__(self, name: str, count_partitions: CountPartitions, *, incremental: bool):
        self.name = name
        self.incremental = incremental
        self.commit_fault: Callable[[Commit], RefusedCommit | None] = lambda _commit: None
        """Decides how the next commits fail."""
        self.max_metadata_bytes = 4095
        self.applied: list[Applied] = []
        """Every commit that was written, in order."""
        self._count_partitions = count_partitions
        self._joined: dict[GroupMember, int] = {}
        """The members, with the last generation that each has seen."""
        self._dealt: dict[GroupMember, None] = {}
        """Eager: the members with their partitions of this generation."""
        self._owners: dict[TopicPartition, GroupMember] = {}
        self._targets: dict[TopicPartition, GroupMember] = {}
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._generation = 0
        self._turns = 0

    # ---- members

    @property
    def members(self) -> Sequence[GroupMember]:
        """The members, in the order of joining."""
        return list(self._joined)

    def has(self, member: GroupMember) -> bool:
        """Return whether a consumer is a member for the broker."""
        return member in self._joined

    def owner(self, name: TopicPartition) -> GroupMember | None:
        """Return who owns a partition."""
        return self._owners.get(name)

    def join(self, member: GroupMember) -> None:
        """Add a member, or update the topics that it reads."""
        self._joined.setdefault(member, 0)
        self.rebalance()

    def leave(self, member: GroupMember) -> None:
        """Remove or evict a member: its partitions are free at once."""
        if member in self._joined:
            del self._joined[member]
            self.release(member, [n for n, owner in self._owners.items() if owner is member])
            self.rebalance()

    def rebalance(self, *, turn: bool = False) -> None:
        """Assign again; with ``turn`` the partitions move on by one member.

        Equal partition numbers of all topics stay together, as with Kafka's range assignor.
        """
        self._generation += 1
        self._turns += turn
        self._dealt.clear()
        self._targets.clear()
        for topic in sorted({topic for member in self._joined for topic in member.topics}):
            readers = [member for member in self._joined if topic in member.topics]
            count = self._count_partitions(topic)
            share = max(1, -(-count // len(readers)))
            for partition in range(count):
                reader = readers[(partition // share + self._turns) % len(readers)]
                self._targets[TopicPartition(topic, partition)] = reader

    def to_give_up(self, member: GroupMember) -> list[TopicPartition]:
        """Return the partitions that a member must give up now."""
        if self.incremental:
            return [name for name in member.held if self._targets.get(name) is not member]
        return list(member.held) if self._is_behind(member) else []

    def to_take(self, member: GroupMember) -> list[TopicPartition] | None:
        """Return the partitions that a member gets now, None if nothing changes.

        The first answer may be empty: a member learns that it has joined.
        """
        if not self.incremental and member.held:
            return None
        is_new = not self._joined[member]
        self._joined[member] = self._generation
        if self.incremental:
            names = self._take(member)
            return names if names or is_new else None
        if member in self._dealt or any(map(self._is_behind, self._joined)):
            return None
        self._dealt[member] = None
        return self._take(member)

    def release(self, member: GroupMember, names: Sequence[TopicPartition]) -> None:
        """Record that a member has given partitions up."""
        for name in names:
            if self._owners.get(name) is member:
                del self._owners[name]

    def _is_behind(self, member: GroupMember) -> bool:
        return self._joined[member] < self._generation

    def _take(self, member: GroupMember) -> list[TopicPartition]:
        names = [
            name
            for name, target in self._targets.items()
            if target is member and name not in self._owners
        ]
        self._owners.update(dict.fromkeys(names, member))
        return names

    # ---- offsets

    def committed(self, name: TopicPartition) -> CommittedOffset:
        """Return the commit of a partition."""
        return self._committed.get(name, CommittedOffset(None, ""))

    def write(self, member: GroupMember, commit: Commit) -> CommitFailedError | None:
        """Apply a commit; return the error if it is refused.

        Like Kafka's brokers, it does not check that the member owns the partition.
        """
        refusal = self._refusal(member, commit)
        if refusal is None or refusal.written:
            self._store(member, commit)
        return None if refusal is None else refusal.error

    def refusal(self, member: GroupMember, commits: Sequence[Commit]) -> RefusedCommit | None:
        """Return why a commit of a transaction is refused, None if all are accepted."""
        refusals = [self._refusal(member, each) for each in commits]
        return next((each for each in refusals if each is not None), None)

    def store(self, member: GroupMember, commits: Sequence[Commit]) -> None:
        """Apply the commits of a transaction."""
        for commit in commits:
            self._store(member, commit)

    def _refusal(self, member: GroupMember, commit: Commit) -> RefusedCommit | None:
        if member not in self._joined:
            text = "the coordinator does not know this member"
            return RefusedCommit(CommitFailedError(text, retriable=False))
        if commit.name.partition >= self._count_partitions(commit.name.topic):
            return RefusedCommit(CommitFailedError(f"there is no {commit.name}"))
        size = len(commit.metadata.encode())
        if size > self.max_metadata_bytes:
            text = f"{commit.name}: {size} bytes of metadata, at most {self.max_metadata_bytes}"
            return RefusedCommit(CommitFailedError(text, metadata_too_large=True))
        return self.commit_fault(commit)

    def write_as_administrator(self, commit: Commit) -> None:
        """Move a committed offset manually; ``RuntimeError`` while the group has members."""
        if self._joined:
            msg = f"group {self.name} has members: Kafka refuses to move its offsets"
            raise RuntimeError(msg)
        self._store(None, commit)

    def delete_offsets(self, topic: str) -> None:
        """Drop the committed offsets of a deleted topic."""
        self._committed = {
            name: each for name, each in self._committed.items() if name.topic != topic
        }

    def _store(self, member: GroupMember | None, commit: Commit) -> None:
        self._committed[commit.name] = CommittedOffset(commit.next_offset, commit.metadata)
        self.applied.append(Applied(member, commit))
