"""The calls of SQS over a socket, as boto3 makes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from hashlib import md5
from itertools import count
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

from tests.logged import fields_of
from tests.sqs.endpoint import CREDENTIALS, TestEndpoint, bodies, code_of, endpoint
from tests.sqs.memory_queue import MemoryQueue
from window_consumer.model.errors import RunError
from window_consumer.model.log_events import LogEvent

ALL: dict[str, Any] = {
    "MaxNumberOfMessages": 10,
    "MessageSystemAttributeNames": ["All"],
    "MessageAttributeNames": ["All"],
}


@pytest.fixture(scope="module")
def served() -> Iterator[TestEndpoint]:
    queues = [MemoryQueue(f"queue-{number}") for number in range(100)]
    fifo = [MemoryQueue(f"fifo-{number}.fifo", fifo=True) for number in range(5)]
    with endpoint(*queues, *fifo, credentials=CREDENTIALS) as served:
        yield served


@pytest.fixture(scope="module")
def client(served: TestEndpoint) -> Any:
    return served.client()


@pytest.fixture(scope="module")
def unused() -> Iterator[int]:
    return count(2)


@pytest.fixture
def queue(served: TestEndpoint, unused: Iterator[int]) -> str:
    """The URL of a queue that no other test has."""
    return f"{served.url}/000000000000/queue-{next(unused)}"


def refusal(call: Any, **given: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**given)
    return code_of(refused.value)


def test_a_queue_has_its_url_and_is_listed(client: Any, served: TestEndpoint) -> None:
    url = f"{served.url}/000000000000/queue-1"
    assert client.get_queue_url(QueueName="queue-1")["QueueUrl"] == url
    assert client.create_queue(QueueName="queue-1")["QueueUrl"] == url
    listed = client.list_queues(QueueNamePrefix="fifo")["QueueUrls"]
    assert listed == [f"{served.url}/000000000000/fifo-{number}.fifo" for number in range(5)]


def test_a_long_list_of_queues_comes_in_pages(client: Any) -> None:
    paginator = client.get_paginator("list_queues")
    pages = paginator.paginate(QueueNamePrefix="fifo", PaginationConfig={"PageSize": 2})
    assert [len(page["QueueUrls"]) for page in pages] == [2, 2, 1]


@pytest.mark.parametrize("name", ["nowhere", "queue-1.fifo", "fifo-1"])
def test_no_queue_is_created(client: Any, name: str) -> None:
    missing = "AWS.SimpleQueueService.NonExistentQueue"
    assert refusal(client.create_queue, QueueName=name) == missing
    assert refusal(client.get_queue_url, QueueName=name) == missing
    assert refusal(client.receive_message, QueueUrl=f"http://x/1/{name}") == missing
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.get_queue_url(QueueName=name)


def test_a_message_arrives_with_its_attributes(client: Any, queue: str) -> None:
    attributes = {
        "city": {"DataType": "String", "StringValue": "Zürich"},
        "count": {"DataType": "Number.int", "StringValue": "12"},
        "photo": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        "word": {"DataType": "Binary", "BinaryValue": b"text"},
    }
    sent = client.send_message(
        QueueUrl=queue, MessageBody="a body 🎈", MessageAttributes=attributes, MessageGroupId="k"
    )
    (received,) = client.receive_message(QueueUrl=queue, **ALL)["Messages"]
    assert received["Body"] == "a body 🎈"
    assert received["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert received["MD5OfBody"] == md5("a body 🎈".encode(), usedforsecurity=False).hexdigest()
    assert received["MessageAttributes"] == attributes
    assert received["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert received["MessageId"] == sent["MessageId"]
    assert received["Attributes"]["ApproximateReceiveCount"] == "1"
    assert received["Attributes"]["MessageGroupId"] == "k"
    assert "SequenceNumber" not in received["Attributes"]


def test_a_client_gets_the_attributes_it_asks_for(client: Any, queue: str) -> None:
    names = ["color", "shop.name", "shop.city"]
    given = {each: {"DataType": "String", "StringValue": each} for each in names}
    client.send_message(QueueUrl=queue, MessageBody="x", MessageAttributes=given)
    found = []
    for wanted in ([], ["color"], ["shop.*"], ["All"], [".*"], ["none"]):
        (message,) = client.receive_message(
            QueueUrl=queue,
            VisibilityTimeout=0,
            MessageAttributeNames=wanted,
            AttributeNames=["SentTimestamp"],
        )["Messages"]
        assert list(message["Attributes"]) == ["SentTimestamp"]
        found.append(sorted(message.get("MessageAttributes", {})))
    assert found == [[], ["color"], names[2:0:-1], sorted(names), sorted(names), []]


@pytest.mark.parametrize("value", [b"\xff\x00", b"\x0b", b"\xed\xa0\x80", "\ufffe".encode()])
def test_a_value_that_is_no_text_travels_in_base64(
    client: Any, served: TestEndpoint, queue: str, value: bytes
) -> None:
    served.queues[queue.rpartition("/")[2]].put(value, b"\xff")
    (first,) = client.receive_message(QueueUrl=queue, AttributeNames=["All"])["Messages"]
    assert first["MessageAttributes"]["wc-encoding"]["StringValue"] == "base64"
    client.send_message(
        QueueUrl=queue, MessageBody=first["Body"], MessageAttributes=first["MessageAttributes"]
    )
    (again,) = client.receive_message(QueueUrl=queue)["Messages"]
    assert again["Body"] == first["Body"]
    assert again["MessageAttributes"] == first["MessageAttributes"]


def test_a_tombstone_is_told_from_an_empty_value(
    client: Any, served: TestEndpoint, queue: str
) -> None:
    stored = served.queues[queue.rpartition("/")[2]]
    stored.put(b"")
    stored.put(None)
    empty, none = client.receive_message(QueueUrl=queue, MaxNumberOfMessages=2)["Messages"]
    assert (empty["Body"], "MessageAttributes" in empty) == ("", False)
    assert (none["Body"], none["MessageAttributes"]["wc-encoding"]["StringValue"]) == ("", "null")


def test_a_batch_is_sent_received_and_deleted(client: Any, queue: str) -> None:
    entries = [{"Id": f"n-{n}", "MessageBody": f"body {n}"} for n in range(9)]
    sent = client.send_message_batch(
        QueueUrl=queue, Entries=[*entries, {"Id": "bad", "MessageBody": "refused"}]
    )
    assert [each["Id"] for each in sent["Successful"]] == [each["Id"] for each in entries]
    ((bad, sender),) = [(each["Code"], each["SenderFault"]) for each in sent["Failed"]]
    assert (bad, sender) == ("InvalidParameterValue", True)
    messages = client.receive_message(QueueUrl=queue, **ALL)["Messages"]
    assert bodies(messages) == [each["MessageBody"] for each in entries]
    handles = [each["ReceiptHandle"] for each in messages]
    deleted = client.delete_message_batch(
        QueueUrl=queue,
        Entries=[
            *({"Id": str(n), "ReceiptHandle": each} for n, each in enumerate(handles)),
            {"Id": "stranger", "ReceiptHandle": "of another replica"},
        ],
    )
    assert [each["Id"] for each in deleted["Successful"]] == [str(n) for n in range(9)]
    assert [each["Code"] for each in deleted["Failed"]] == ["ReceiptHandleIsInvalid"]
    figures = client.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    assert figures["ApproximateNumberOfMessages"] == "0"
    assert figures["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_a_lease_is_renewed_given_back_and_expires(client: Any, queue: str) -> None:
    client.send_message(QueueUrl=queue, MessageBody="x")
    (first,) = client.receive_message(QueueUrl=queue)["Messages"]
    assert "Messages" not in client.receive_message(QueueUrl=queue)
    change = {"Id": "a", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 0}
    changed = client.change_message_visibility_batch(QueueUrl=queue, Entries=[change])
    assert changed["Successful"] == [{"Id": "a"}]
    ended = refusal(client.change_message_visibility, **{"QueueUrl": queue, **_but_id(change)})
    assert ended == "AWS.SimpleQueueService.MessageNotInflight"
    (second,) = client.receive_message(QueueUrl=queue, VisibilityTimeout=43_200)["Messages"]
    client.change_message_visibility(
        QueueUrl=queue, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=1
    )
    (third,) = client.receive_message(
        QueueUrl=queue, WaitTimeSeconds=20, AttributeNames=["ApproximateReceiveCount"]
    )["Messages"]
    assert third["Attributes"] == {"ApproximateReceiveCount": "3"}
    client.delete_message(QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"])
    client.delete_message(QueueUrl=queue, ReceiptHandle=third["ReceiptHandle"])


def _but_id(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "Id"}


def test_a_handle_of_another_replica_is_refused_with_its_address(client: Any, queue: str) -> None:
    call: dict[str, Any] = {"QueueUrl": queue, "ReceiptHandle": "of another"}
    with pytest.raises(client.exceptions.ReceiptHandleIsInvalid) as refused:
        client.delete_message(**call)
    assert "http://other:9324" in refused.value.response["Error"]["Message"]
    code = refusal(client.change_message_visibility, VisibilityTimeout=1, **call)
    assert code == "ReceiptHandleIsInvalid"


def test_a_client_that_waits_gets_the_next_message(client: Any, queue: str) -> None:
    received: list[dict[str, Any]] = []

    def wait() -> None:
        answer = client.receive_message(QueueUrl=queue, WaitTimeSeconds=20)
        received.extend(answer.get("Messages", []))

    thread = threading.Thread(target=wait)
    thread.start()
    client.send_message(QueueUrl=queue, MessageBody="at last")
    thread.join(60)
    assert bodies(received) == ["at last"]


def test_a_client_that_left_while_it_waited_has_leased_nothing(
    client: Any, served: TestEndpoint, queue: str
) -> None:
    stored = served.queues[queue.rpartition("/")[2]]
    quick = Config(read_timeout=1, retries={"total_max_attempts": 1})
    impatient = served.client(config=quick)
    with pytest.raises(ReadTimeoutError):
        impatient.receive_message(QueueUrl=queue, WaitTimeSeconds=20)
    deadline = time.monotonic() + 60
    while stored.receiving:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    client.send_message(QueueUrl=queue, MessageBody="x")
    assert bodies(client.receive_message(QueueUrl=queue)["Messages"]) == ["x"]


def test_a_delay_is_the_queues_to_keep(client: Any, served: TestEndpoint, queue: str) -> None:
    client.send_message(QueueUrl=queue, MessageBody="x", DelaySeconds=900)
    client.send_message(QueueUrl=queue, MessageBody="x")
    assert served.queues[queue.rpartition("/")[2]].delays == [900, 0]


def test_what_kafka_does_not_take_now_may_be_sent_again(
    client: Any, served: TestEndpoint, queue: str
) -> None:
    served.queues[queue.rpartition("/")[2]].refuses = RunError("no broker answers")
    with pytest.raises(ClientError) as refused:
        client.send_message(QueueUrl=queue, MessageBody="x")
    assert code_of(refused.value) == "ServiceUnavailable"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503


def test_a_fifo_queue_leases_one_message_of_a_group(client: Any, served: TestEndpoint) -> None:
    url = f"{served.url}/000000000000/fifo-1.fifo"
    for body, group in (("1", "a"), ("2", "a"), ("3", "b")):
        sent = client.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=f"d{body}"
        )
        assert sent["SequenceNumber"] == f"{int(body) - 1:020d}"
    served.queues["fifo-1.fifo"].put(b"4")
    first, other, alone = client.receive_message(QueueUrl=url, **ALL)["Messages"]
    assert bodies([first, other, alone]) == ["1", "3", "4"]
    assert first["Attributes"]["MessageGroupId"] == "a"
    assert first["Attributes"]["MessageDeduplicationId"] == "d1" == first["MessageId"]
    assert alone["Attributes"]["MessageGroupId"] == "topic-0-3"
    client.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert bodies(client.receive_message(QueueUrl=url)["Messages"]) == ["2"]


def test_a_fifo_queue_says_that_it_is_one(client: Any, served: TestEndpoint) -> None:
    url = f"{served.url}/000000000000/fifo-2.fifo"
    assert refusal(client.send_message, QueueUrl=url, MessageBody="x") == "MissingParameter"
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (found["FifoQueue"], found["VisibilityTimeout"]) == ("true", "30")
    assert found["ApproximateNumberOfMessagesDelayed"] == "7"
    assert found["QueueArn"].rpartition(":")[2] == "fifo-2.fifo"
    some = client.get_queue_attributes(QueueUrl=url, AttributeNames=["FifoQueue", "Policy"])
    assert some["Attributes"] == {"FifoQueue": "true"}


def test_attributes_may_be_set_to_what_they_are(client: Any, queue: str) -> None:
    def set_to(**attributes: str) -> None:
        client.set_queue_attributes(QueueUrl=queue, Attributes=attributes)

    set_to(VisibilityTimeout="30", ReceiveMessageWaitTimeSeconds="0")
    assert refusal(set_to, VisibilityTimeout="31") == "InvalidAttributeValue"
    assert refusal(set_to, RedrivePolicy="{}") == "InvalidAttributeValue"
    assert refusal(set_to, Colour="red") == "InvalidAttributeName"
    asked = {"QueueUrl": queue, "AttributeNames": ["Colour"]}
    assert refusal(client.get_queue_attributes, **asked) == "InvalidAttributeName"


def test_a_queue_that_exists_is_created_as_it_is(
    client: Any, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = queue.rpartition("/")[2]
    attributes = {"VisibilityTimeout": "60", "DelaySeconds": "0", "MessageRetentionPeriod": "60"}
    for _ in range(2):
        assert client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"] == queue
    assert fields_of(caplog, LogEvent.SQS_ATTRIBUTES_IGNORED)["queue"] == name
    fifo = {"QueueName": name, "Attributes": {"FifoQueue": "true"}}
    assert refusal(client.create_queue, **fifo) == "InvalidParameterValue"
    client.create_queue(QueueName="fifo-3.fifo", Attributes={"FifoQueue": "true"})


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("purge_queue", {}),
        ("delete_queue", {}),
        ("tag_queue", {"Tags": {"a": "b"}}),
        ("list_dead_letter_source_queues", {}),
    ],
)
def test_other_calls_are_refused_with_a_reason(
    client: Any, queue: str, call: str, given: dict[str, Any]
) -> None:
    refused = refusal(getattr(client, call), QueueUrl=queue, **given)
    assert refused == "AWS.SimpleQueueService.UnsupportedOperation"


@pytest.mark.parametrize(
    ("call", "given", "code"),
    [
        ("receive_message", {"MaxNumberOfMessages": 0}, "InvalidParameterValue"),
        ("receive_message", {"MaxNumberOfMessages": 11}, "InvalidParameterValue"),
        ("receive_message", {"WaitTimeSeconds": 21}, "InvalidParameterValue"),
        ("receive_message", {"VisibilityTimeout": 43_201}, "InvalidParameterValue"),
        ("send_message", {"MessageBody": ""}, "MissingParameter"),
        ("send_message", {"MessageBody": "\x00"}, "InvalidMessageContents"),
        ("send_message", {"MessageBody": "x", "DelaySeconds": 901}, "InvalidParameterValue"),
        ("send_message", {"MessageBody": "x" * 1_048_577}, "InvalidParameterValue"),
        ("send_message", {"MessageBody": "x", "MessageGroupId": "é"}, "InvalidParameterValue"),
        ("send_message_batch", {"Entries": []}, "AWS.SimpleQueueService.EmptyBatchRequest"),
        (
            "send_message_batch",
            {"Entries": [{"Id": "a", "MessageBody": "x"}] * 2},
            "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
        ),
        (
            "send_message_batch",
            {"Entries": [{"Id": str(n), "MessageBody": "x"} for n in range(11)]},
            "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
        ),
        (
            "send_message_batch",
            {"Entries": [{"Id": "a b", "MessageBody": "x"}]},
            "AWS.SimpleQueueService.InvalidBatchEntryId",
        ),
        (
            "send_message_batch",
            {"Entries": [{"Id": str(n), "MessageBody": "x" * 600_000} for n in range(2)]},
            "AWS.SimpleQueueService.BatchRequestTooLong",
        ),
    ],
)
def test_each_limit_has_its_error(
    client: Any, queue: str, call: str, given: dict[str, Any], code: str
) -> None:
    assert refusal(getattr(client, call), QueueUrl=queue, **given) == code


def test_the_largest_message_arrives(client: Any, queue: str) -> None:
    body = "é" * (1_048_576 // 2)
    client.send_message(QueueUrl=queue, MessageBody=body)
    assert client.receive_message(QueueUrl=queue)["Messages"][0]["Body"] == body


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("wc-id", {"DataType": "String", "StringValue": "x"}),
        ("sqs-attribute-types", {"DataType": "String", "StringValue": "x"}),
        ("AWS.x", {"DataType": "String", "StringValue": "x"}),
        ("a b", {"DataType": "String", "StringValue": "x"}),
        ("x", {"DataType": "Bool", "StringValue": "x"}),
        ("x", {"DataType": "String", "StringValue": ""}),
        ("x", {"DataType": "Number", "StringValue": "many"}),
        ("x", {"DataType": "Binary", "StringValue": "x"}),
        ("wc-encoding", {"DataType": "String", "StringValue": "gzip"}),
    ],
)
def test_an_attribute_that_cannot_be_is_refused(
    client: Any, queue: str, name: str, attribute: dict[str, str]
) -> None:
    given = {"QueueUrl": queue, "MessageBody": "x", "MessageAttributes": {name: attribute}}
    assert refusal(client.send_message, **given) == "InvalidParameterValue"
