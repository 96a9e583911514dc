"""An endpoint with queues in memory, and clients of Amazon's that call it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from attrs import field, frozen
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.sqs.memory_queue import MemoryQueue
from window_consumer.config.sections.listening import ListenAddress, TlsConfig
from window_consumer.sqs.endpoint import EndpointConfig, EndpointFigures
from window_consumer.sqs.server import serving

ACCESS_KEY, SECRET = "shop", "a-secret-of-the-shop"
CREDENTIALS = {ACCESS_KEY: SECRET, "other": "another-secret"}


@frozen
class Answered:
    """An answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@frozen
class TestEndpoint:
    """An endpoint that listens on this machine."""

    __test__ = False

    port: int
    queues: Mapping[str, MemoryQueue]
    figures: EndpointFigures
    scheme: str = field(default="http")

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def client(self, access_key: str = ACCESS_KEY, secret: str = SECRET, **options: Any) -> Any:
        """Return a client of boto3 that repeats nothing."""
        once = Config(retries={"total_max_attempts": 1})
        return boto3.client(
            "sqs",
            endpoint_url=self.url,
            region_name="eu-west-1",
            aws_access_key_id=access_key,
            aws_secret_access_key=secret,
            **{"config": once, **options},
        )

    def ask(
        self,
        action: str,
        body: bytes | Mapping[str, Any] = b"",
        *,
        method: str = "POST",
        path: str = "/",
        **headers: str,
    ) -> Answered:
        """Call without a signature; ``x_y="z"`` is the header ``x-y``."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if action:
            named["x-amz-target"] = action if "." in action else f"AmazonSQS.{action}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, raw, named)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answered(answer.status, found, answer.read())
        finally:
            connection.close()


@contextmanager
def endpoint(
    *queues: MemoryQueue,
    credentials: Mapping[str, str] | None = None,
    advertise: str | None = None,
    tls: TlsConfig | None = None,
) -> Iterator[TestEndpoint]:
    """Serve queues on a free port of this machine."""
    config = EndpointConfig(
        address=ListenAddress("127.0.0.1", 0),
        credentials=credentials or {},
        advertise=advertise,
        tls=tls or TlsConfig(),
    )
    figures = EndpointFigures()
    with serving(queues, config, Path(), figures) as port:
        named = {each.name: each for each in queues}
        yield TestEndpoint(port, named, figures, "http" if tls is None else "https")


def code_of(error: ClientError) -> str:
    """Return the code of an error that a client raised."""
    return str(error.response["Error"]["Code"])


def bodies(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the bodies of received messages."""
    return [each["Body"] for each in messages]
