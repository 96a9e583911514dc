"""Translates Kafka's errors into ours. No other module looks at error codes."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, Message

from window_consumer.kafka.writing.sent_record import SendFailure, SendVerdict
from window_consumer.model.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    CommitFailedError,
    MissingTopicError,
    NotPermittedError,
    PublishFailedError,
    RunError,
    WindowConsumerError,
)

_ABSENT = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._WAIT_COORD,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
    }
)
_AUTHENTICATION = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
_NOT_PERMITTED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_NO_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_REFUSED = (
    _NO_TOPIC
    | _NOT_PERMITTED
    | frozenset(
        {
            KafkaError.TOPIC_EXCEPTION,
            KafkaError.INVALID_TIMESTAMP,
            KafkaError.POLICY_VIOLATION,
            KafkaError.INVALID_RECORD,
        }
    )
)
"""Errors with which a record is always refused, except for its size."""

_INVALID = frozenset(
    {
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_RECORD,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._INVALID_ARG,
    }
)

_FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)

# Reasons to refuse one partition's commit and accept the others of the request.
_OF_ONE_PARTITION = frozenset(
    {
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
    }
)

_LOST_OWNERSHIP = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)

# Reasons why the client may give up a consumer, which it reports only as text.
_MAKES_FATAL = (
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.UNSUPPORTED_ASSIGNOR,
    KafkaError.UNRELEASED_INSTANCE_ID,
    KafkaError.FENCED_INSTANCE_ID,
)
_ONE_INSTANCE = frozenset({KafkaError.UNRELEASED_INSTANCE_ID, KafkaError.FENCED_INSTANCE_ID})


def cause_of(exception: BaseException) -> KafkaError | None:
    """Return the KafkaError inside a KafkaException, or None."""
    if isinstance(exception, KafkaException) and exception.args:
        error = exception.args[0]
        return error if isinstance(error, KafkaError) else None
    return None


def text_of(error: KafkaError) -> str:
    """Return the client's or the broker's message, with the error's name."""
    return f"{error.str()} ({error.name()})"


def translate(error: KafkaError, where: str) -> WindowConsumerError:
    """Return our error for a KafkaError; its class shows what a caller can do."""
    code = error.code()
    text = f"{where}: {text_of(error)}"
    if code in _AUTHENTICATION:
        return AuthenticationError(
            f"{text}: check sasl.mechanism, sasl.username and the password in `kafka:`"
        )
    if code in _NOT_PERMITTED:
        return NotPermittedError(f"{text}: an ACL is missing")
    if code in _ONE_INSTANCE:
        return RunError(
            f"{text}: each process needs its own group.instance.id; that of a crashed process is"
            " free when its session has timed out"
        )
    if code in _NO_TOPIC:
        return MissingTopicError(text)
    if code in _ABSENT:
        return BrokerUnavailableError(text)
    return RunError(text)


def is_absence(error: KafkaError) -> bool:
    """Return whether the error only says that a broker did not answer for now."""
    return error.code() in _ABSENT


def text_of_no_transaction(error: KafkaError) -> str:
    """Return why a producer's first transaction could not begin, with the possible cause.

    A cluster with too few brokers for the topic of transactions just does not answer.
    """
    text = text_of(error)
    if is_absence(error):
        text += (
            "; if the brokers are running, their topic __transaction_state may need more"
            " replicas than there are brokers (transaction.state.log.replication.factor)"
        )
    return text


def is_expiry(error: KafkaError) -> bool:
    """Return whether a message was given up because no broker accepted it in time."""
    return error.code() == KafkaError._MSG_TIMED_OUT


def are_all_down(error: KafkaError) -> bool:
    """Return whether the client reports that it is connected to no broker."""
    return error.code() == KafkaError._ALL_BROKERS_DOWN


def is_fatal(error: KafkaError) -> bool:
    """Return whether the client has given up, so only a new one can help."""
    return error.code() == KafkaError._FATAL or error.fatal()


def behind_fatal(error: KafkaError) -> KafkaError:
    """Return the error that made a client give up, with all its details."""
    text = error.str()
    for code in _MAKES_FATAL:
        if KafkaError(code).str() in text:
            return KafkaError(code, text)
    return error


def is_out_of_range(error: KafkaError) -> bool:
    """Return whether the position lies outside the log."""
    return error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


def is_without_leader(error: KafkaError) -> bool:
    """Return whether the client knows no broker for a partition, which may not exist."""
    return error.code() in (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)


def is_leader_moving(error: KafkaError) -> bool:
    """Return whether a partition briefly has no leader: its topic is new, or a broker left."""
    return error.code() in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


def is_of_one_partition(error: KafkaError) -> bool:
    """Return whether a single partition may have caused the refusal of a commit request."""
    return error.code() in _OF_ONE_PARTITION


def is_authentication(error: KafkaError) -> bool:
    """Return whether the broker refused our credentials."""
    return error.code() in _AUTHENTICATION


def is_permission(error: KafkaError) -> bool:
    """Return whether an ACL is missing."""
    return error.code() in _NOT_PERMITTED


def may_pass(error: KafkaError) -> bool:
    """Return whether joining the group later, with a new client, may succeed."""
    return is_permission(error) or error.code() == KafkaError.UNRELEASED_INSTANCE_ID


def is_unsupported(error: KafkaError) -> bool:
    """Return whether the cluster does not support this request, or not in this form."""
    return error.code() in {
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.UNSUPPORTED_ASSIGNOR,
    }


def commit_failure(error: KafkaError) -> CommitFailedError:
    """Return our error for a commit that was refused."""
    code = error.code()
    return CommitFailedError(
        text_of(error),
        retriable=code not in _LOST_OWNERSHIP,
        metadata_too_large=code == KafkaError.OFFSET_METADATA_TOO_LARGE,
    )


def is_purged(error: KafkaError) -> bool:
    """Return whether a message failed because its client was given up."""
    return error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


def publish_failure(error: KafkaError, topic: str) -> PublishFailedError:
    """Return our error for a copy that was not acked."""
    code = error.code()
    if is_fatal(error):
        why = f"the producer has given up: {text_of(error)}"
        if code in _NOT_PERMITTED:
            why += "; WRITE on the topic is missing: add an ACL"
        return PublishFailedError(f"copy to {topic}: {why}", gave_up=True, why=why)
    return PublishFailedError(
        f"copy to {topic}: {text_of(error)}",
        too_large=code in _TOO_LARGE,
        refused=code in _REFUSED,
        of_topic=code in _NO_TOPIC | _NOT_PERMITTED,
        why=text_of(error),
    )


def send_failure(error: KafkaError, message: Message | None) -> SendFailure:
    """Return an error in the form that the rules of sending use.

    ``message`` is None if the client did not accept the record.
    """
    return SendFailure(
        send_verdict(error),
        text_of(error),
        None if message is None else message.partition(),
        is_purged=is_purged(error),
        was_in_flight=error.code() == KafkaError._PURGE_INFLIGHT,
        is_expired=is_expiry(error),
        is_of_another=error.code() == KafkaError._INVALID_DIFFERENT_RECORD,
    )


def send_verdict(error: KafkaError) -> SendVerdict:
    """Return what a sender does with a record after this error."""
    code = error.code()
    if code in _NO_TOPIC:
        return "missing"
    if code in _NOT_PERMITTED:
        return "denied"
    if code in _TOO_LARGE:
        return "too_large"
    return "invalid" if code in _INVALID else "transient"


def timed_out() -> KafkaException:
    """Return the client's exception for a timeout."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT))


def is_fenced(error: KafkaError) -> bool:
    """Return whether another client has taken over the transactional id."""
    return error.code() in _FENCED or KafkaError(KafkaError._FENCED).str() in error.str()
