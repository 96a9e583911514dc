"""What an answer means for its record: finished, skipped, a dead letter, later, or a failure.

Each kind of failure has a class, so that dead letters of different causes are told apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from attrs import frozen

from window_consumer.model.errors import Fatal, HoldCalls, Skip, WindowConsumerError

MOST_BYTES: Final = 1024**2
"""How much of an answer is read."""

SHORTEST_HOLD_S: Final = 1.0
"""A service that asks for none, or whose clock is behind, would get all records again at once, and
again: a pause spends no attempt."""

LONGEST_HOLD_S: Final = 3600.0
"""A service that asks for a year has a bug, and nobody would notice."""

_SHOWN_BYTES: Final = 200
"""Of an answer in an error: enough for its first sentence."""

_HOLDS: Final = frozenset({429, 503})


class PushFailedError(WindowConsumerError):
    """A request did not succeed; the record is tried again."""

    code = "WC165"


class NoConnectionError(PushFailedError):
    """There was no connection, or it broke: DNS, TCP or TLS."""


class NoAnswerInTimeError(PushFailedError):
    """The request took longer than ``timeout``."""


class NotHttpError(PushFailedError):
    """What was answered is not HTTP, or no longer: 101 switches to another protocol."""


class RedirectError(PushFailedError):
    """A redirect was answered, which is not followed."""


class RefusedRequestError(PushFailedError):
    """A status from 400 to 499 was answered."""


class ServiceFailedError(PushFailedError):
    """A status from 500 on was answered."""


class FatalStatus(Fatal):
    """A status of ``fatal_status`` was answered: the record is wrong."""


class Answer(NamedTuple):
    """What a service has answered."""

    status: int
    headers: Mapping[str, str]
    """Of any case."""
    body: bytes
    is_whole: bool
    """False if the body is longer than ``MOST_BYTES``, of which it has the beginning."""

    @property
    def words(self) -> str:
        """The status and the beginning of the body, for people."""
        shown = self.body[:_SHOWN_BYTES].decode("utf-8", "replace")
        text = "".join(each if each.isprintable() else " " for each in shown).strip()
        return f"answered {self.status}" + (f": {text}" if text else "")


@frozen
class StatusRules:
    """What statuses mean that the configuration names."""

    skip: frozenset[int] = frozenset()
    fatal: frozenset[int] = frozenset()

    def judge(self, answer: Answer, where: str, wall_ms: int) -> None:
        """Return if the record is done; raise what becomes of it otherwise.

        ``where`` is the URL for messages, ``wall_ms`` the time in milliseconds since 1970. Raises
        HoldCalls if the service asks for a pause.
        """
        status = answer.status
        if status in self.skip:
            raise Skip(f"{where} {answer.words}")
        if status in self.fatal:
            raise FatalStatus(f"{where} {answer.words}")
        if 200 <= status < 300:
            return
        if status in _HOLDS:
            wait_s = retry_after(answer.headers.get("Retry-After"), wall_ms)
            if wait_s is not None:
                raise HoldCalls(wait_s, f"{where} answered {status}, Retry-After {wait_s:g} s")
        raise _failure(status)(f"{where} {answer.words}")


def retry_after(value: str | None, wall_ms: int) -> float | None:
    """Return the seconds of a header Retry-After, a number or a date; None for anything else."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return _held_s(float(value))
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if date.tzinfo is None:  # it says -0000
        date = date.replace(tzinfo=UTC)
    return _held_s(date.timestamp() - wall_ms / 1000)


def _held_s(asked_s: float) -> float:
    return min(max(asked_s, SHORTEST_HOLD_S), LONGEST_HOLD_S)


def _failure(status: int) -> type[PushFailedError]:
    if status >= 400:
        return ServiceFailedError if status >= 500 else RefusedRequestError
    return RedirectError if status >= 300 else NotHttpError
