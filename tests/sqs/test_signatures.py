"""Signatures: who may call, and what a client hears otherwise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from time import time
from typing import Any

import pytest
from attrs import evolve
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.logged import lines_of
from tests.sqs.endpoint import ACCESS_KEY, CREDENTIALS, SECRET, TestEndpoint, code_of, endpoint
from tests.sqs.memory_queue import MemoryQueue
from window_consumer.model.log_events import LogEvent
from window_consumer.sqs.errors import SqsError, SqsErrorKind
from window_consumer.sqs.signature import MAX_SKEW_S, RequestHead, SignatureCheck

URL = "http://queues.internal:9324/a%20path/?b=2&a=1"
BODY = b'{"QueueUrl": "x"}'


@pytest.fixture(scope="module")
def served() -> Iterator[TestEndpoint]:
    with endpoint(MemoryQueue("orders"), credentials=CREDENTIALS) as served:
        yield served


def signed(
    body: bytes = BODY, secret: str = SECRET, service: str = "sqs", **headers: str
) -> RequestHead:
    """Return the head of a request that botocore has signed."""
    given = {
        "host": "queues.internal:9324",
        "x-amz-target": "AmazonSQS.ListQueues",
        "content-type": "application/x-amz-json-1.0",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    request = AWSRequest("POST", URL, given, body)
    SigV4Auth(Credentials(ACCESS_KEY, secret), service, "eu-west-1").add_auth(request)
    found = {name.lower(): value for name, value in request.headers.items()}
    return RequestHead(method="POST", url=URL, headers=found)


def with_headers(head: RequestHead, **headers: str) -> RequestHead:
    changed = {name.replace("_", "-"): value for name, value in headers.items()}
    return evolve(head, headers={**head.headers, **changed})


def check(head: RequestHead, body: bytes = BODY, now: Callable[[], float] = time) -> None:
    signatures = SignatureCheck(CREDENTIALS, now)
    signatures.check(signatures.claim_of(head), head, body)


def refusal(head: RequestHead, body: bytes = BODY, late_s: float = 0) -> SqsErrorKind:
    with pytest.raises(SqsError) as refused:
        check(head, body, lambda: time() + late_s)
    assert SECRET not in str(refused.value)
    return refused.value.kind


def test_what_botocore_signs_is_taken() -> None:
    check(signed())
    check(signed(x_amz_security_token=ACCESS_KEY))
    check(with_headers(signed(), user_agent="added by a proxy"))


def test_what_was_changed_on_the_way_is_refused() -> None:
    head = signed()
    wrong = SqsErrorKind.WRONG_SIGNATURE
    assert refusal(head, BODY + b" ") is wrong
    assert refusal(with_headers(head, x_amz_target="AmazonSQS.DeleteMessage")) is wrong
    assert refusal(with_headers(head, host="elsewhere")) is wrong
    assert refusal(evolve(head, method="GET")) is wrong
    assert refusal(evolve(head, url=URL + "&c=3")) is wrong
    assert refusal(signed(secret=CREDENTIALS["other"])) is wrong


def test_a_sum_of_another_body_is_refused() -> None:
    head = signed(x_amz_content_sha256="UNSIGNED-PAYLOAD")
    assert refusal(head) is SqsErrorKind.WRONG_SIGNATURE


@pytest.mark.parametrize("late_s", [MAX_SKEW_S + 5, -MAX_SKEW_S - 5])
def test_a_request_of_another_time_is_refused(late_s: float) -> None:
    assert refusal(signed(), late_s=late_s) is SqsErrorKind.WRONG_SIGNATURE
    check(signed(), now=lambda: time() + late_s * 0.9)


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({"authorization": ""}, SqsErrorKind.UNSIGNED),
        ({"authorization": "Bearer x"}, SqsErrorKind.INCOMPLETE_SIGNATURE),
        ({"authorization": "AWS4-HMAC-SHA256 nothing"}, SqsErrorKind.INCOMPLETE_SIGNATURE),
        ({"x_amz_date": "today"}, SqsErrorKind.INCOMPLETE_SIGNATURE),
    ],
)
def test_a_signature_that_says_too_little_is_refused(
    headers: Mapping[str, str], kind: SqsErrorKind
) -> None:
    assert refusal(with_headers(signed(), **headers)) is kind


@pytest.mark.parametrize("left_out", ["host", "x-amz-date", "x-amz-target"])
def test_what_says_what_to_do_has_to_be_signed(left_out: str) -> None:
    head = signed()
    covered = head.headers["authorization"].replace(f"{left_out};", "")
    covered = covered.replace(f";{left_out},", ",")
    assert covered != head.headers["authorization"]
    assert refusal(with_headers(head, authorization=covered)) is SqsErrorKind.INCOMPLETE_SIGNATURE


def test_a_signature_for_another_service_is_refused() -> None:
    assert refusal(signed(service="s3")) is SqsErrorKind.INCOMPLETE_SIGNATURE


def test_a_client_hears_why_it_is_refused(
    served: TestEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    def code(client: Any) -> str:
        with pytest.raises(ClientError) as refused:
            client.list_queues()
        return code_of(refused.value)

    before = served.figures.refused_signatures
    with caplog.at_level(logging.DEBUG):
        assert code(served.client("nobody")) == "InvalidClientTokenId"
        assert code(served.client(secret=ACCESS_KEY)) == "SignatureDoesNotMatch"
        unsigned = served.ask("ListQueues")
    assert unsigned.status == 403
    assert unsigned.headers["x-amzn-query-error"] == "MissingAuthenticationToken;Sender"
    assert served.figures.refused_signatures == before + 3
    (line,) = lines_of(caplog, LogEvent.SQS_SIGNATURE_REFUSED)
    assert vars(line)["code"] == "InvalidClientTokenId"
    assert not any(SECRET in each.getMessage() for each in caplog.records)
    assert SECRET not in repr(SignatureCheck(CREDENTIALS).claim_of(signed()))
    served.client().list_queues()
