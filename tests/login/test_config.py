"""``kafka.login`` in the file: its forms, whose login applies, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from attrs import frozen

from tests.golden_texts import Golden
from window_consumer import Producer
from window_consumer.app.features import FEATURES
from window_consumer.config import LoadedConfig, effective_kafka, load
from window_consumer.config.sections.kafka_properties import Client
from window_consumer.kafka.login.login import Login
from window_consumer.kafka.login.msk_iam import MskIamLogin
from window_consumer.kafka.login.oidc import OidcLogin
from window_consumer.kafka.login.tokens import LoginTokens
from window_consumer.kafka.settings import refusals
from window_consumer.model.errors import ConfigError, UsageError

HIDDEN = "hunter2-hunter2"
OIDC = {
    "kind": "oidc",
    "token_url": "https://sso.example/token",
    "client_id": "shop",
    "client_secret": HIDDEN,
}
MSK = {"kind": "msk-iam", "region": "eu-central-1"}


class Files:
    """Loads workers.yaml of a directory."""

    def __init__(self, directory: Path):
        self.file = directory / "workers.yaml"

    def load(self, kafka: Any, *sets: str, worker: Any = None) -> LoadedConfig:
        charge = {"topics": ["orders"], "group": "shop", "ordering": "unordered"}
        charge |= {"kafka": worker} if worker is not None else {}
        config = {"kafka": {"bootstrap.servers": "h:1", **kafka}, "workers": {"charge": charge}}
        self.file.write_text(yaml.safe_dump(config, sort_keys=False))
        return load(self.file, {}, sets, {}, sections=FEATURES.sections)

    def refused(self, kafka: Any, *sets: str, worker: Any = None) -> str:
        with pytest.raises(ConfigError) as caught:
            self.load(kafka, *sets, worker=worker)
        return str(caught.value).replace(f"{self.file.parent}/", "")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return Files(tmp_path)


def properties_of(loaded: LoadedConfig, client: Client = "consumer") -> dict[str, Any]:
    return effective_kafka(loaded.config, loaded.config.workers["charge"], client)


def login_of(loaded: LoadedConfig, client: Client = "consumer") -> Login | None:
    tokens = properties_of(loaded, client).get("oauth_cb")
    assert tokens is None or isinstance(tokens, LoginTokens)
    return None if tokens is None else tokens.login


@pytest.mark.parametrize("client", ["consumer", "producer", "admin"])
def test_one_line_sets_mechanism_protocol_and_tokens_of_each_client(
    files: Files, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    found = properties_of(files.load({"login": "msk-iam"}), client)
    assert found["security.protocol"] == "SASL_SSL"
    assert found["sasl.mechanism"] == "OAUTHBEARER"
    assert found["oauth_cb"].login == MskIamLogin(region="eu-west-1")
    assert list(refusals(found, client)) == []


def test_a_mapping_has_the_details(files: Files) -> None:
    extensions = {"logicalCluster": "lkc-1"}
    login = {**OIDC, "scope": "kafka", "extensions": extensions}
    keys: dict[str, Any] = {key: value for key, value in login.items() if key != "kind"}
    expected = OidcLogin(**{**keys, "extensions": (("logicalCluster", "lkc-1"),)})
    assert login_of(files.load({"login": login})) == expected


def test_a_worker_may_log_in_otherwise_or_not_at_all(files: Files) -> None:
    own = files.load({"login": OIDC}, worker={"login": MSK})
    assert login_of(own) == MskIamLogin(region="eu-central-1")
    without = files.load({"login": OIDC}, worker={"login": "none"})
    assert "sasl.mechanism" not in properties_of(without)
    passwords = {"sasl.mechanism": "PLAIN", "sasl.username": "bob", "sasl.password": "x"}
    also = files.load({"login": OIDC}, worker={"login": "none", **passwords})
    assert login_of(also) is None


def test_set_reaches_a_login_and_its_keys(files: Files) -> None:
    loaded = files.load({"login": OIDC}, "kafka.login.scope=orders", "kafka.login.client_id=other")
    login = login_of(loaded)
    assert isinstance(login, OidcLogin)
    assert (login.scope, login.client_id) == ("orders", "other")
    replaced = login_of(files.load({"login": "gcp"}, "kafka.login={kind: msk-iam, region: eu-1}"))
    assert replaced == MskIamLogin(region="eu-1")


def test_tests_may_go_without_encryption(files: Files) -> None:
    found = properties_of(files.load({"login": MSK, "security.protocol": "SASL_PLAINTEXT"}))
    assert found["security.protocol"] == "SASL_PLAINTEXT"


def test_the_secret_is_masked_and_the_token_endpoint_is_not(files: Files) -> None:
    loaded = files.load({"login": OIDC})
    assert HIDDEN in loaded.secrets
    assert "https://sso.example/token" not in loaded.secrets
    assert HIDDEN not in repr(loaded.config)


@pytest.mark.parametrize(
    "login",
    [
        "oidc",
        "msk",
        "msk-iam",
        "azure",
        5,
        [],
        {"token_url": "https://sso.example/token"},
        {"kind": "okta"},
        {"kind": "gcp", "region": "eu"},
        {**OIDC, "client_secret": 12345},
        {**OIDC, "client_secret": None},
        {**OIDC, "client_id": " "},
        {**OIDC, "client_secrets": HIDDEN},
        {"kind": "oidc", "token_url": "https://sso.example/token"},
        {**OIDC, "token_url": "sso.example/token"},
        {**OIDC, "token_url": "file:///etc/passwd"},
        {**OIDC, "ca_file": "/nowhere/ca.pem"},
        {**OIDC, "extensions": "lkc-1"},
        {**OIDC, "extensions": {"logical-cluster": "lkc-1"}},
        {**OIDC, "extensions": {"logicalCluster": 5}},
        {**MSK, "profile": "shop", "role_arn": "arn:aws:iam::1:role/shop"},
    ],
)
def test_a_login_that_cannot_work_is_refused_with_its_line(
    files: Files, golden: Golden, login: object
) -> None:
    message = files.refused({"login": login})
    assert HIDDEN not in message
    golden(message)


@pytest.mark.parametrize(
    "properties",
    [
        {"sasl.mechanism": "PLAIN"},
        {"sasl.mechanisms": "OAUTHBEARER"},
        {"sasl.username": "bob", "sasl.password": HIDDEN},
        {"sasl.oauthbearer.method": "oidc"},
        {"enable.sasl.oauthbearer.unsecure.jwt": True},
        {"security.protocol": "SSL"},
        {"consumer": {"sasl.mechanism": "PLAIN"}},
    ],
)
def test_properties_that_contradict_a_login_are_refused_with_both_lines(
    files: Files, golden: Golden, properties: dict[str, Any]
) -> None:
    message = files.refused({"login": MSK, **properties})
    assert HIDDEN not in message
    golden(message)


def test_a_worker_with_a_password_below_a_login_is_told_how(files: Files, golden: Golden) -> None:
    golden(files.refused({"login": MSK}, worker={"sasl.mechanism": "PLAIN"}))


def test_a_producer_takes_a_login_too(golden: Golden) -> None:
    with golden.raises(UsageError):
        Producer({"bootstrap.servers": "h:1", "login": "oidc"})
    with golden.raises(UsageError):
        Producer({"bootstrap.servers": "h:1", "login": MSK, "sasl.mechanism": "PLAIN"})


@frozen
class FarawayLogin(Login):
    """One whose library is not installed."""

    kind: ClassVar[str] = "faraway"
    extra: ClassVar[str] = "far"
    library: ClassVar[str] = "no_such_library.auth"


def test_a_library_that_is_not_installed_is_named_with_the_command(golden: Golden) -> None:
    ((key, wrong),) = FarawayLogin().obstacles()
    assert key == ""
    golden(wrong)
