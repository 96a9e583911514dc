"""What a response means for its record: finished, skipped, a dead letter, later, or a failure.

Each kind of failure has its own class, which distinguishes the causes of dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from attrs import frozen

from window_consumer.model.errors import Fatal, HoldCalls, Skip, WindowConsumerError

MOST_BYTES: Final = 1024**2
"""How much of a response is read."""

SHORTEST_HOLD_S: Final = 1.0
"""The shortest pause. If a service asks for none, or its clock is behind, it would otherwise get
all records again at once, repeatedly: a pause spends no attempt."""

LONGEST_HOLD_S: Final = 3600.0
"""The longest pause. A service that asks for a year has a bug that nobody would notice."""

_SHOWN_BYTES: Final = 200
"""How much of a response an error shows: enough for its first sentence."""

_HOLDS: Final = frozenset({429, 503})


class PushFailedError(WindowConsumerError):
    """A request failed; the record is tried again."""

    code = "WC165"


class NoConnectionError(PushFailedError):
    """There was no connection, or it broke (DNS, TCP or TLS)."""


class NoAnswerInTimeError(PushFailedError):
    """The request took longer than ``timeout``."""


class NotHttpError(PushFailedError):
    """The response is not HTTP, or switches to another protocol (101)."""


class RedirectError(PushFailedError):
    """The response is a redirect, which is not followed."""


class RefusedRequestError(PushFailedError):
    """The response has a status from 400 to 499."""


class ServiceFailedError(PushFailedError):
    """The response has a status of 500 or more."""


class FatalStatus(Fatal):
    """The response has a status from ``fatal_status``: the record is wrong."""


class Answer(NamedTuple):
    """A service's response."""

    status: int
    headers: Mapping[str, str]
    """Names are in any case."""
    body: bytes
    is_whole: bool
    """False if the body was longer than ``MOST_BYTES``; it then has only the beginning."""

    @property
    def words(self) -> str:
        """The status and the beginning of the body, for people."""
        shown = self.body[:_SHOWN_BYTES].decode("utf-8", "replace")
        text = "".join(each if each.isprintable() else " " for each in shown).strip()
        return f"answered {self.status}" + (f": {text}" if text else "")


@frozen
class StatusRules:
    """The meaning of the statuses that the configuration names."""

    skip: frozenset[int] = frozenset()
    fatal: frozenset[int] = frozenset()

    def judge(self, answer: Answer, where: str, wall_ms: int) -> None:
        """Return if the record is done; otherwise raise the error that decides what follows.

        ``where`` is the URL to show in messages, ``wall_ms`` the time in milliseconds since 1970.
        Raises HoldCalls if the service asks for a pause.
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
