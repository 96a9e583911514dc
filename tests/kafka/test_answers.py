"""Waiting for the cluster's answers, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from window_consumer.kafka.cluster.answers import (
    AlreadyThereError,
    NoGroupError,
    UnsupportedError,
    first_answer,
    patience_s,
)
from window_consumer.model.errors import (
    BrokerUnavailableError,
    NotPermittedError,
    WindowConsumerError,
)

LOADING = KafkaError.COORDINATOR_LOAD_IN_PROGRESS


def answered(outcome: Any) -> Future[Any]:
    """Return a future with a result, or with the error of a code."""
    future: Future[Any] = Future()
    if isinstance(outcome, int):
        future.set_exception(KafkaException(KafkaError(outcome, "says the broker")))
    else:
        future.set_result(outcome)
    return future


class Questions:
    """Gives one answer for each question; counts them, and the pauses between them."""

    def __init__(self, *outcomes: Any):
        self._outcomes = outcomes
        self.asked = 0
        self.pauses = 0

    def __iter__(self) -> Iterator[Future[Any]]:
        for outcome in self._outcomes:
            self.asked += 1
            yield answered(outcome)

    def pause(self) -> None:
        self.pauses += 1

    def first_answer(self, deadline_s: float = 600.0) -> Any:
        return first_answer(
            iter(self), "group shop", timeout_s=0.0, deadline_s=deadline_s, pause=self.pause
        )


def test_a_question_is_asked_again_while_the_coordinator_loads() -> None:
    questions = Questions(LOADING, KafkaError.NOT_COORDINATOR, LOADING, "members")
    assert questions.first_answer() == "members"
    assert (questions.asked, questions.pauses) == (4, 3)


def test_a_question_whose_time_is_over_is_not_asked_again() -> None:
    questions = Questions(LOADING, LOADING, "too late")
    with pytest.raises(BrokerUnavailableError, match=r"group shop: .*\(COORD"):
        questions.first_answer(deadline_s=-1.0)
    assert questions.asked == 1


def test_a_denial_is_not_asked_again() -> None:
    questions = Questions(KafkaError.GROUP_AUTHORIZATION_FAILED, "never")
    with pytest.raises(NotPermittedError, match="group shop"):
        questions.first_answer()
    assert questions.asked == 1


def test_no_answer_in_time_is_an_error() -> None:
    silent: Future[Any] = Future()
    with pytest.raises(BrokerUnavailableError, match=r"group shop: .* within"):
        first_answer(iter([silent]), "group shop", timeout_s=-1.0, deadline_s=0, pause=print)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNSUPPORTED_VERSION, UnsupportedError),
        (KafkaError._UNSUPPORTED_FEATURE, UnsupportedError),
        (KafkaError.TOPIC_ALREADY_EXISTS, AlreadyThereError),
        (KafkaError.GROUP_ID_NOT_FOUND, NoGroupError),
    ],
)
def test_answers_that_are_no_failure_have_errors_of_their_own(
    code: int, kind: type[WindowConsumerError]
) -> None:
    with pytest.raises(kind):
        Questions(code).first_answer()


def test_first_requests_wait_briefly_as_their_broker_may_have_died() -> None:
    assert [patience_s(n, 5.0, 20.0) for n in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert patience_s(2, 5.0, 1.5) == 1.5
    assert patience_s(0, 0.5, 20.0) == 0.5
    assert 0 < patience_s(3, 5.0, -1.0) <= 0.5
