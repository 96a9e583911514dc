"""Exceptions that cross from a child process: judged alike, whatever they are."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.golden_texts import Golden
from window_consumer.engine.retry.policy import Retry, RetryRules, Spent
from window_consumer.model.errors import Expired, Fatal, RetryLater, Undecodable
from window_consumer.model.headers import Reason
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.pools.processes.child_failures import carried, restored


class PickyError(ValueError):
    """Wants more than it keeps."""

    def __init__(self, code: int, *, why: str):
        super().__init__(f"{code}: {why}")
        self.code = code
        self.unpicklable = lambda: code


class SlottedError(OSError):
    """Has a constructor of another form than OSError."""

    def __init__(self, host: str):
        super().__init__(111, "refused", host)


def crossed(error: BaseException) -> Any:
    """Return the failure on the other side of a pipe."""
    data = pickle.dumps(carried(ErrorReports().failure(error, "charge")))
    return restored(pickle.loads(data))  # noqa: S301 - as the parent does


def test_an_exception_keeps_its_class_arguments_and_what_can_be_pickled_of_it() -> None:
    failure = crossed(PickyError(3, why="no card"))
    assert type(failure.error) is PickyError
    assert (failure.error.args, failure.error.code) == (("3: no card",), 3)
    assert not hasattr(failure.error, "unpicklable")
    assert failure.fault.message == "3: no card"
    assert failure.handler == "charge"
    refused = crossed(SlottedError("bank")).error
    assert (type(refused), refused.args) == (SlottedError, (111, "refused"))
    group = crossed(ExceptionGroup("several", [ValueError("x"), KeyError("y")])).error
    assert (type(group), group.message) == (ExceptionGroup, "several")


def test_rules_judge_it_as_they_judge_it_on_a_thread() -> None:
    class HomeError(PickyError):
        """Unknown to the other side: it is defined here."""

    class BothError(Fatal, ConnectionError):
        """Of two kinds."""

    rules = RetryRules(attempts=3, fatal=(ValueError,), retryable=(PickyError,), backoff_min_s=1.0)

    def step(error: BaseException) -> Retry | Spent:
        return rules.next_step(error, 1, lambda: 0.0)

    for error in (
        ValueError("x"),
        KeyError("x"),
        PickyError(1, why="x"),
        HomeError(1, why="x"),
        BothError("x"),
        Fatal("x"),
        Undecodable("x"),
        RetryLater(4.0),
        Expired("old", "drop"),
        SystemExit(3),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        ExceptionGroup("several", [ValueError("x"), KeyError("y")]),
    ):
        assert step(crossed(error).error) == step(error), error
    assert step(crossed(Undecodable("x")).error) == Spent(Reason.DECODE)
    assert step(crossed(ExceptionGroup("one", [Fatal("x")])).error) == Spent(Reason.FATAL)
    home = crossed(HomeError(1, why="x")).error
    assert isinstance(home, PickyError)
    assert type(home).__qualname__ == HomeError.__qualname__


def test_stand_ins_are_made_once() -> None:
    class HomeError(Exception):
        """Unknown to the other side."""

    assert type(crossed(HomeError()).error) is type(crossed(HomeError()).error)


def test_what_cannot_even_be_described_is_carried(golden: Golden) -> None:
    class HostileError(Exception):
        """Raises wherever it can."""

        def __str__(self) -> str:
            raise RuntimeError

        def __reduce__(self) -> Any:
            raise RuntimeError

    failure = crossed(HostileError(object(), lambda: None))
    assert isinstance(failure.error, Exception)
    golden(failure.fault.message)
    with pytest.raises(type(failure.error)):
        raise failure.error
