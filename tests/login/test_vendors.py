"""The vendors' libraries, with their services on loopback as far as they let themselves be led."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.login.token_server import Answer, TokenRequest, TokenServer, serving
from window_consumer.kafka.login.azure import AzureLogin
from window_consumer.kafka.login.gcp import GcpLogin
from window_consumer.kafka.login.msk_iam import MskIamLogin

EMAIL = "shop@project.iam.gserviceaccount.com"


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


# ---- Amazon


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """AWS's environment: keys, and no region."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.usefixtures("aws")
def test_a_token_for_msk_is_a_signed_address_of_its_region() -> None:
    signed, expiry = MskIamLogin(region="eu-central-1").token_function()("")
    url = urlsplit(decoded(signed).decode())
    query = parse_qs(url.query)
    assert url.hostname == "kafka.eu-central-1.amazonaws.com"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert 600 < expiry - time.time() <= 900


@pytest.mark.parametrize(
    ("brokers", "environ", "region"),
    [
        ("b-1.shop.abc123.c2.kafka.us-east-1.amazonaws.com:9098", "", "us-east-1"),
        ("boot-x1.c1.kafka-serverless.eu-west-1.amazonaws.com:9098", "", "eu-west-1"),
        ("b-1.s.abc.kafka.cn-north-1.amazonaws.com.cn:9098,b-2:9098", "", "cn-north-1"),
        ("b-1.shop.abc123.c2.kafka.us-east-1.amazonaws.com", "eu-west-1", "us-east-1"),
        ("proxy:9098", "eu-west-1", "eu-west-1"),
        ("proxy:9098", "", ""),
    ],
)
def test_the_region_is_that_of_the_brokers_or_of_the_environment(
    aws: pytest.MonkeyPatch, brokers: str, environ: str, region: str
) -> None:
    aws.setenv("AWS_REGION", environ)
    login = MskIamLogin().completed(brokers)
    assert isinstance(login, MskIamLogin)
    assert login.region == region
    assert bool(list(login.obstacles())) is not bool(region)


def test_a_region_that_is_written_wins(aws: pytest.MonkeyPatch) -> None:
    aws.setenv("AWS_REGION", "eu-west-1")
    login = MskIamLogin(region="eu-north-1")
    assert login.completed("b-1.a.kafka.us-east-1.amazonaws.com:9098") is login


# ---- Google


@pytest.fixture(scope="module")
def metadata_server() -> Iterator[TokenServer]:
    """Google's metadata server, as on a machine of theirs. The library reads its address once."""

    def answer(request: TokenRequest) -> Answer:
        if request.path.endswith("/token"):
            return 200, {"access_token": "ya29.opaque", "expires_in": 3599, "token_type": "Bearer"}
        if "service-accounts" in request.path:
            return 200, {"email": EMAIL, "aliases": ["default"], "scopes": []}
        if request.path.endswith("project-id"):
            return 200, b"project"
        return 200, b"googleapis.com" if "universe" in request.path else b""

    with serving(answer) as server, pytest.MonkeyPatch.context() as environment:
        for name in ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"):
            environment.setenv(name, server.address)
        environment.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
        environment.setenv("CLOUDSDK_CONFIG", "/nowhere")
        environment.setenv("GOOGLE_CLOUD_PROJECT", "project")
        yield server


def parts_of(token: str) -> tuple[Any, Any, str]:
    header, claims, access = token.split(".")
    return json.loads(decoded(header)), json.loads(decoded(claims)), decoded(access).decode()


@pytest.mark.usefixtures("metadata_server")
def test_a_token_for_google_wraps_the_access_token_of_the_machines_account() -> None:
    token, expiry = GcpLogin().token_function()("")
    header, claims, access = parts_of(token)
    assert header["alg"] == "GOOG_OAUTH2_TOKEN"
    assert (claims["sub"], claims["iss"], claims["scope"]) == (EMAIL, "Google", "kafka")
    assert access == "ya29.opaque"
    assert claims["exp"] == expiry
    assert 3000 < expiry - time.time() <= 3600


def test_each_call_gets_a_new_token_in_the_name_that_is_written(
    metadata_server: TokenServer,
) -> None:
    metadata_server.requests.clear()
    function = GcpLogin(principal="bob@example").token_function()
    for _ in range(2):
        assert parts_of(function("")[0])[1]["sub"] == "bob@example"
    tokens = [each for each in metadata_server.requests if each.path.endswith("/token")]
    assert len(tokens) == 2


# ---- Azure


@pytest.fixture
def managed_identity(monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServer]:
    """The managed identity of App Service."""

    def answer(_: TokenRequest) -> Answer:
        expires_on = str(int(time.time()) + 3600)
        return 200, {"access_token": "eyJ.opaque", "expires_on": expires_on, "resource": "r"}

    with serving(answer) as server:
        for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("IDENTITY_ENDPOINT", server.url)
        monkeypatch.setenv("IDENTITY_HEADER", "a header")
        yield server


BROKER = "shop.servicebus.windows.net:9093"


def test_a_token_for_azure_is_one_for_the_namespace_of_the_brokers(
    managed_identity: TokenServer,
) -> None:
    text, expiry = AzureLogin().completed(BROKER).token_function()("")
    assert text == "eyJ.opaque"
    assert 3000 < expiry - time.time() <= 3600
    assert managed_identity.requests[0].query["resource"] == "https://shop.servicebus.windows.net"


def test_a_user_assigned_identity_is_named_by_its_client_id(managed_identity: TokenServer) -> None:
    AzureLogin(client_id="id-1").completed(BROKER).token_function()("")
    assert managed_identity.requests[0].query["client_id"] == "id-1"


@pytest.mark.parametrize(
    ("brokers", "scope"),
    [
        (BROKER, "https://shop.servicebus.windows.net/.default"),
        ("Shop.ServiceBus.usgovcloudapi.net", "https://shop.servicebus.usgovcloudapi.net/.default"),
        ("proxy:9093", ""),
    ],
)
def test_the_scope_is_the_namespace_or_has_to_be_written(brokers: str, scope: str) -> None:
    login = AzureLogin().completed(brokers)
    assert isinstance(login, AzureLogin)
    assert login.scope == scope
    assert bool(list(login.obstacles())) is not bool(scope)
