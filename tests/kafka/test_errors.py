"""Each kind of Kafka's errors, and what it becomes."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.golden_texts import Golden
from window_consumer.kafka import errors
from window_consumer.model.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    MissingTopicError,
    NotPermittedError,
    RunError,
    WindowConsumerError,
)

ABSENT = [
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_RESOLVE",
    "_TIMED_OUT",
    "REQUEST_TIMED_OUT",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR",
    "LEADER_NOT_AVAILABLE",
]
KINDS: dict[type[WindowConsumerError], list[str]] = {
    AuthenticationError: ["_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"],
    NotPermittedError: [
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
    ],
    MissingTopicError: ["UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"],
    BrokerUnavailableError: ABSENT,
    RunError: ["UNKNOWN", "_FAIL", "INVALID_REQUEST", "FENCED_INSTANCE_ID"],
}
LOST = ["ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH", "FENCED_INSTANCE_ID"]
PASSING = ["REBALANCE_IN_PROGRESS", "NOT_COORDINATOR", "_TIMED_OUT", "OFFSET_METADATA_TOO_LARGE"]


def error_named(name: str, text: str = "what the broker says") -> KafkaError:
    return KafkaError(getattr(KafkaError, name), text)


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for kind, names in KINDS.items() for name in names]
)
def test_an_error_becomes_the_one_that_says_what_can_be_done(
    name: str, kind: type[WindowConsumerError], golden: Golden
) -> None:
    error = errors.translate(error_named(name), "topic orders")
    assert type(error) is kind
    golden(str(error))


@pytest.mark.parametrize("name", [name for names in KINDS.values() for name in names])
def test_only_an_absent_broker_counts_as_absent(name: str) -> None:
    assert errors.is_absence(error_named(name)) is (name in ABSENT)


def test_a_wrong_password_and_a_missing_acl_say_where_to_look() -> None:
    refused = errors.translate(error_named("_AUTHENTICATION"), "cluster")
    assert "sasl.mechanism, sasl.username" in str(refused)
    denied = errors.translate(error_named("TOPIC_AUTHORIZATION_FAILED"), "topic orders")
    assert "ACL" in str(denied)


@pytest.mark.parametrize("name", LOST + PASSING)
def test_a_refused_commit_is_retriable_unless_the_group_knows_us_no_more(name: str) -> None:
    failure = errors.commit_failure(error_named(name))
    assert failure.retriable is (name in PASSING)
    assert failure.metadata_too_large is (name == "OFFSET_METADATA_TOO_LARGE")
    assert name in str(failure)


@pytest.mark.parametrize(
    ("name", "too_large"),
    [
        ("MSG_SIZE_TOO_LARGE", True),
        ("RECORD_LIST_TOO_LARGE", True),
        ("_MSG_TIMED_OUT", False),
        ("NOT_ENOUGH_REPLICAS", False),
    ],
)
def test_a_copy_that_was_not_acked_says_whether_it_was_too_large(
    name: str,
    too_large: bool,  # noqa: FBT001 - a column of the table
    golden: Golden,
) -> None:
    failure = errors.publish_failure(error_named(name), "shop.orders.dlq")
    assert failure.too_large is too_large
    golden(str(failure))


@pytest.mark.parametrize(
    "name",
    [
        "MSG_SIZE_TOO_LARGE",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
        "INVALID_RECORD",
    ],
)
def test_what_sending_again_cannot_help_is_refused(name: str) -> None:
    failure = errors.publish_failure(error_named(name), "invoices")
    assert failure.refused
    assert failure.why.endswith(f"({name})")


@pytest.mark.parametrize(
    "name",
    [
        "_MSG_TIMED_OUT",
        "NOT_LEADER_FOR_PARTITION",
        "NOT_ENOUGH_REPLICAS",
        "INVALID_MSG",  # torn on the way
        "_INVALID_DIFFERENT_RECORD",  # another record of its batch was refused
        "_PURGE_QUEUE",
    ],
)
def test_what_may_pass_is_not_refused(name: str) -> None:
    assert not errors.publish_failure(error_named(name), "invoices").refused


def test_the_reason_for_which_a_client_gave_up_is_found_in_its_words() -> None:
    words = f"Fatal: {KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED).str()}"
    given_up = KafkaError(KafkaError._FATAL, words)
    assert errors.is_fatal(given_up)
    reason = errors.behind_fatal(given_up)
    assert (reason.code(), reason.str()) == (KafkaError.GROUP_AUTHORIZATION_FAILED, words)
    unknown = KafkaError(KafkaError._FATAL, "for another reason")
    assert errors.behind_fatal(unknown) is unknown


def test_the_cause_of_an_exception_is_the_kafka_error_in_it() -> None:
    error = error_named("_FAIL")
    assert errors.cause_of(KafkaException(error)) is error
    for other in (KafkaException("words"), KafkaException(), ValueError(error)):
        assert errors.cause_of(other) is None
