"""Redrives with one planted bug each: most between the rules and the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve

from window_consumer.dlq.redrive import Redrive
from window_consumer.model import headers as names
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Copy

Refused = Mapping[int, PublishFailedError]


class _Outlet:
    """A correct outlet; a bug changes one of its steps."""

    def __init__(self, inner: Any):
        self.inner = inner

    def send(self, copies: Sequence[Copy]) -> None:
        self.inner.send(copies)

    def acks(self) -> Refused:
        refused: Refused = self.inner.acks()
        return refused


def commits_before_the_acks(*, outlet: Any, finish: Callable[[], None], **parts: Any) -> Redrive:
    """The progress is committed when the copies are sent."""

    class Hasty(_Outlet):
        def acks(self) -> Refused:
            finish()
            return super().acks()

    return Redrive(outlet=Hasty(outlet), finish=finish, **parts)


def commits_before_it_remembers(
    *, outlet: Any, finish: Callable[[], None], **parts: Any
) -> Redrive:
    """The progress is committed when the copies are acked, the memory written after it."""

    class Hasty(_Outlet):
        def send(self, copies: Sequence[Copy]) -> None:
            if any(copy.topic == parts["rules"].state_topic for copy in copies):
                finish()
            super().send(copies)

    return Redrive(outlet=Hasty(outlet), finish=finish, **parts)


def remembers_before_the_acks(*, outlet: Any, **parts: Any) -> Redrive:
    """Sent records count as acked, and are remembered as resolved."""

    class Trusting(_Outlet):
        all_sent = False

        def send(self, copies: Sequence[Copy]) -> None:
            super().send(copies)
            self.all_sent = not copies or copies[0].topic != parts["rules"].state_topic

        def acks(self) -> Refused:
            return {} if self.all_sent else super().acks()

    return Redrive(outlet=Trusting(outlet), **parts)


def ignores_failures(*, outlet: Any, **parts: Any) -> Redrive:
    """A copy that was not acked is taken for one that was."""

    class Deaf(_Outlet):
        def acks(self) -> Refused:
            try:
                return super().acks()
            except PublishFailedError:
                return {}

    return Redrive(outlet=Deaf(outlet), **parts)


def takes_what_is_refused_for_acked(*, outlet: Any, **parts: Any) -> Redrive:
    """A copy that is too large for its topic is remembered as resolved."""

    class Blind(_Outlet):
        def acks(self) -> Refused:
            super().acks()
            return {}

    return Redrive(outlet=Blind(outlet), **parts)


def does_not_count(*, outlet: Any, **parts: Any) -> Redrive:
    """``wc-redrives`` stays what it was, so that the guard never stops a record."""

    class Forgetful(_Outlet):
        def send(self, copies: Sequence[Copy]) -> None:
            super().send([_with_redrives(copy, -1) for copy in copies])

    return Redrive(outlet=Forgetful(outlet), **parts)


def appends_its_count(*, outlet: Any, **parts: Any) -> Redrive:
    """``wc-redrives`` stands there once for each time."""

    class Appending(_Outlet):
        def send(self, copies: Sequence[Copy]) -> None:
            super().send([_with_redrives(copy, 0, *copy.headers) for copy in copies])

    return Redrive(outlet=Appending(outlet), **parts)


def _with_redrives(copy: Copy, more: int, *kept: tuple[str, bytes | None]) -> Copy:
    redrives = dict(copy.headers).get(names.REDRIVES)
    if redrives is None:
        return copy
    others = kept or [pair for pair in copy.headers if pair[0] != names.REDRIVES]
    return copy._replace(headers=[*others, (names.REDRIVES, b"%d" % (int(redrives) + more))])


def never_guards(*, rules: Any, **parts: Any) -> Redrive:
    """Records go back however often they did."""
    return Redrive(rules=evolve(rules, max_redrives=10**6), **parts)


def forgets_its_progress(*, finish: Callable[[], None], **parts: Any) -> Redrive:
    """The progress is not committed."""
    del finish
    return Redrive(finish=lambda: None, **parts)


def commits_only_at_the_end(*, finish: Callable[[], None], **parts: Any) -> Redrive:
    """The progress is committed when everything has gone back."""
    return _Late(finish=lambda: None, late=finish, **parts)


class _Late(Redrive):
    def __init__(self, *, late: Callable[[], None], **parts: Any):
        super().__init__(**parts)
        self._late = late

    def run(self, *, stop_asked: Callable[[], bool] = lambda: False) -> bool:
        ended = super().run(stop_asked=stop_asked)
        self._late()
        return ended


def forgets_what_is_resolved(*, resolved: object, **parts: Any) -> Redrive:
    """Records that other redrives have put back are ignored."""
    del resolved
    return Redrive(**parts)


def remembers_nothing(*, outlet: Any, **parts: Any) -> Redrive:
    """Nothing is written into the memory of resolved dead letters."""

    class Mute(_Outlet):
        def send(self, copies: Sequence[Copy]) -> None:
            state = parts["rules"].state_topic
            super().send([copy for copy in copies if copy.topic != state])

    return Redrive(outlet=Mute(outlet), **parts)


def passes_over_the_last_of_a_batch(*, letters: Any, **parts: Any) -> Redrive:
    """The last record of each read gets lost."""

    class Short:
        def read(self, max_records: int) -> Any:
            found = letters.read(max_records)
            return found[:-1] or found

        def check_alone(self) -> None:
            letters.check_alone()

    return Redrive(letters=Short(), **parts)


def goes_by_the_key(*, rules: Any, **parts: Any) -> Redrive:
    """A copy goes where its key says, away from its lane."""
    return Redrive(rules=evolve(rules, to=evolve(rules.to, partitions=0)), **parts)


def drops_references(*, fetch: object, **parts: Any) -> Redrive:
    """A value that must be fetched counts as gone."""
    del fetch
    return Redrive(fetch=lambda *_: None, **parts)
