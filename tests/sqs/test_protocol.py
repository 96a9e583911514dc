"""Requests that no client of today sends: the older protocol, and what is none."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree as ET

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.loaders import Loader

from tests.admin.certificates import make_certificate
from tests.sqs.endpoint import CREDENTIALS, TestEndpoint, code_of, endpoint
from tests.sqs.memory_queue import MemoryQueue
from tests.waiting import wait_until
from window_consumer.config.sections.listening import TlsConfig
from window_consumer.sqs.endpoint import MOST_BODY_BYTES

FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def served() -> Iterator[TestEndpoint]:
    with endpoint(MemoryQueue("orders"), advertise="https://queues.example.com/") as served:
        yield served


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_the_query_protocol_gets_an_error_in_its_own_form(
    served: TestEndpoint, method: str
) -> None:
    answer = served.ask("", b"Action=ListQueues", method=method, content_type=FORM)
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (400, "text/xml")
    namespace = "{http://queue.amazonaws.com/doc/2012-11-05/}"
    code = ET.fromstring(answer.body).find(f"{namespace}Error/{namespace}Code")  # noqa: S314 - our own
    assert code is not None
    assert code.text == "AWS.SimpleQueueService.UnsupportedOperation"


@pytest.mark.parametrize(
    ("action", "body", "shape", "code"),
    [
        ("ListQueues", b"[1]", "SerializationException", "MalformedInput"),
        ("ListQueues", b"{", "SerializationException", "MalformedInput"),
        ("ListQueues", b"\xff", "SerializationException", "MalformedInput"),
        ("ListQueues", b"[" * 100_000, "SerializationException", "MalformedInput"),
        ("GetQueueUrl", b"", "MissingRequiredParameterException", "MissingParameter"),
        ("GetQueueUrl", b'{"QueueName": 1}', "SerializationException", "MalformedInput"),
        ("Dance", b"{}", "UnknownOperationException", "InvalidAction"),
    ],
)
def test_what_is_no_call_is_refused(
    served: TestEndpoint, action: str, body: bytes, shape: str, code: str
) -> None:
    answer = served.ask(action, body)
    assert answer.status == 400
    assert answer.json["__type"] == f"com.amazonaws.sqs#{shape}"
    assert answer.headers["x-amzn-query-error"] == f"{code};Sender"
    assert answer.headers["x-amzn-requestid"]


def test_another_service_and_another_method_are_refused(served: TestEndpoint) -> None:
    for answer in (
        served.ask("DynamoDB_20120810.ListTables"),
        served.ask("ListQueues", method="GET"),
    ):
        assert answer.json["__type"].rpartition("#")[2] == "UnsupportedOperation"


def test_unknown_members_and_nulls_are_ignored(served: TestEndpoint) -> None:
    call = {"QueueName": "orders", "QueueOwnerAWSAccountId": None, "Colour": {"a": [1]}}
    answer = served.ask("GetQueueUrl", call)
    assert answer.json == {"QueueUrl": "https://queues.example.com/000000000000/orders"}


def test_a_huge_body_is_refused(served: TestEndpoint) -> None:
    answer = served.ask("SendMessage", b"", content_length=str(MOST_BODY_BYTES + 1))
    assert answer.status == 413


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9324", 200),
        ("10.0.0.1", 200),
        ("queues.example.com", 200),
        ("evil.example.com", 421),
        ("[::1]:9324", 200),
        ("[", 421),
    ],
)
def test_without_credentials_other_names_are_refused(
    served: TestEndpoint, host: str, status: int
) -> None:
    assert served.ask("ListQueues", host=host).status == status


def test_the_endpoint_has_a_certificate(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    tls = TlsConfig(certificate=str(certificate), key=str(key))
    with endpoint(MemoryQueue("orders"), tls=tls, credentials=CREDENTIALS) as served:
        client = served.client(verify=str(certificate))
        assert client.list_queues()["QueueUrls"] == [f"{served.url}/000000000000/orders"]


def test_an_older_client_gets_an_error_that_it_can_read(
    served: TestEndpoint, tmp_path: Path
) -> None:
    loader = Loader()
    model = loader.load_service_model("sqs", "service-2")
    folder = tmp_path / "sqs" / model["metadata"]["apiVersion"]
    folder.mkdir(parents=True)
    old = model["metadata"] | {"protocol": "query", "protocols": ["query"]}
    (folder / "service-2.json").write_text(json.dumps({**model, "metadata": old}))
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="x")  # noqa: S106 - of nobody
    session._loader.search_paths.insert(0, str(tmp_path))
    client = session.client("sqs", endpoint_url=served.url)
    assert client.meta.service_model.protocol == "query"
    with pytest.raises(ClientError) as refused:
        client.list_queues()
    assert code_of(refused.value) == "AWS.SimpleQueueService.UnsupportedOperation"


def test_clients_that_wait_have_no_thread_and_cost_nothing_once_they_are_gone() -> None:
    body = b'{"QueueUrl": "http://x/0/orders", "WaitTimeSeconds": 20}'
    target = b"x-amz-target: AmazonSQS.ReceiveMessage"
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\n%b\r\ncontent-length: %d\r\n\r\n"
    queue = MemoryQueue("orders")
    with endpoint(queue) as served:
        threads = threading.active_count()
        with ExitStack() as stack:
            for _ in range(300):
                address = ("127.0.0.1", served.port)
                client = stack.enter_context(socket.create_connection(address, timeout=60))
                client.sendall(head % (target, len(body)) + body)
            wait_until(lambda: queue.receiving == served.figures.waiting == 300, 60, "300 clients")
            assert threading.active_count() == threads
        wait_until(lambda: queue.receiving == served.figures.waiting == 0, 10, "that all are gone")
