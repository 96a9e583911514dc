from __future__ import annotations

import base64
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from tests import reading
from tests.logged import fields_of, lines_of
from window_consumer import App, Fatal, Record
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.oauth import OAuthTokens, uses_tokens
from window_consumer.kafka.settings import Kind
from window_consumer.kafka.settings.check import refused_by_client
from window_consumer.model.errors import AuthenticationError, ConfigError, NotPermittedError
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

Token = tuple[str, float]

DEADLINE_S = 60.0
NOWHERE = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
}
LOG = ClientLog(logging.getLogger("window_consumer.client"))


def unsigned(user: str, lifetime_s: float = 600.0) -> Token:
    """Return a token that a test broker believes."""
    expiry = time.time() + lifetime_s
    parts = [{"alg": "none"}, {"sub": user, "iat": expiry - lifetime_s - 1, "exp": expiry}]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*texts, b""]).decode(), expiry


class Function:
    """An application's token function: answers, or raises, in the given order; the last stays."""

    def __init__(self, *answers: Callable[[], Any]):
        self._answers = list(answers)
        self.configs: list[str] = []
        self.third_call = threading.Event()

    def __call__(self, config: str) -> Any:
        self.configs.append(config)
        if len(self.configs) >= 3:
            self.third_call.set()
        return (self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])()


def broken() -> Token:
    raise ConnectionError("away")


def app_of(function: Function) -> tuple[App, threading.Event]:
    """Return an application whose handler refuses each record, and what it sets then."""
    app = App("shop")
    handled = threading.Event()
    app.oauth_token(function)

    @app.handler("filled in by the configuration", group="filled in")
    def charge(record: Record) -> None:
        handled.set()
        raise Fatal(f"refused: {record.text()}")

    return app, handled


def configured(directory: Path, kafka: Mapping[str, Any], topic: str, group: str) -> Path:
    path = directory / "workers.yaml"
    worker = {"topics": [topic], "group": group}
    path.write_text(yaml.safe_dump({"kafka": dict(kafka), "workers": {"charge": worker}}))
    return path


def first_value(client: Mapping[str, Any], topic: str) -> bytes | None:
    """Wait for the first record of a topic."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := reading.read_all(client, topic)):
        assert time.monotonic() < deadline, f"nothing in {topic}"
    value: bytes | None = found[0].value()
    return value


# ---- on a real Kafka


def test_consumer_producer_and_admin_log_in_with_the_functions_tokens(
    kafka: RealKafka,
    make_topic: Callable[..., str],
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic, group = make_topic("orders"), unique_name("group")
    function = Function(lambda: unsigned("admin"))
    app, handled = app_of(function)
    settings = {**kafka.oauth_settings(), "sasl.oauthbearer.config": "scope=orders"}
    plain = {"bootstrap.servers": kafka.bootstrap, "log_level": 0}
    producer = Producer(plain)
    producer.produce(topic, b"1")
    assert producer.flush(DEADLINE_S) == 0
    with app.start(configured(tmp_path, settings, topic, group)):
        assert handled.wait(DEADLINE_S)
        assert first_value(plain, f"{group}.{topic}.dlq") == b"1"
    assert set(function.configs) == {"scope=orders"}


def test_a_user_without_rights_is_refused_although_its_token_is_good(
    kafka: RealKafka, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic("orders")
    app, _ = app_of(Function(lambda: unsigned("bob")))
    config = configured(tmp_path, kafka.oauth_settings(), topic, "shop")
    with pytest.raises(NotPermittedError, match=rf"\b{topic}\b"):
        app.start(config, start_timeout=DEADLINE_S)


def test_a_token_that_the_broker_refuses_ends_the_start(
    kafka: RealKafka, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    app, _ = app_of(Function(lambda: ("not a token", time.time() + 600)))
    config = configured(tmp_path, kafka.oauth_settings(), make_topic("orders"), "shop")
    with pytest.raises(AuthenticationError, match="refused us"):
        app.start(config, start_timeout=DEADLINE_S)


def test_a_function_that_fails_for_a_while_at_the_start_is_asked_again(
    kafka: RealKafka,
    make_topic: Callable[..., str],
    unique_name: Callable[[str], str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, _ = app_of(Function(broken, broken, lambda: unsigned("admin")))
    config = configured(tmp_path, kafka.oauth_settings(), make_topic("orders"), unique_name("g"))
    with caplog.at_level(logging.WARNING, "window_consumer"), app.start(config):
        pass
    worker, why, _ = lines_of(caplog, LogEvent.TOKEN_AWAITED)[0].args or ()
    assert worker == "charge"
    assert "ConnectionError" in str(why)


@pytest.mark.slow
def test_a_function_that_fails_later_is_asked_again_and_the_last_token_used_meanwhile(
    kafka: RealKafka, make_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic("orders")
    function = Function(lambda: unsigned("admin", 10.0), broken, lambda: unsigned("admin"))
    with caplog.at_level(logging.WARNING, "window_consumer"):
        cluster = Cluster(kafka.oauth_settings(), LOG, OAuthTokens(function, LOG))
        cluster.wait_until_there(DEADLINE_S, lambda _reason, _waited: None)
        assert function.third_call.wait(DEADLINE_S)
    assert "away" in fields_of(caplog, LogEvent.TOKEN_REFUSED)["message"]
    assert topic in cluster.topic_names()


# ---- at the start


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (broken, "ConnectionError: "),
        (lambda: None, "TypeError: .*NoneType"),
        (lambda: "token", r"TypeError: .*\bstr\b"),
        (lambda: ("token", 1_000.0), "ValueError: .* expired"),
        (lambda: ("token", "soon"), "ValueError: .*'soon'"),
    ],
)
def test_a_start_that_gets_no_token_says_why_when_its_time_is_over(
    answer: Callable[[], Any], says: str, tmp_path: Path
) -> None:
    app, _ = app_of(Function(answer))
    config = configured(tmp_path, NOWHERE, "orders", "shop")
    with pytest.raises(AuthenticationError, match=rf"charge: @app\.oauth_token: .*{says}"):
        app.start(config, start_timeout=0)


def test_a_secret_in_what_the_function_raises_is_masked(tmp_path: Path) -> None:
    def telling() -> Token:
        msg = "wrong password: hunter2-hunter2"
        raise ValueError(msg)

    app, _ = app_of(Function(telling))
    secret = {**NOWHERE, "sasl.oauthbearer.client.secret": "hunter2-hunter2"}
    config = configured(tmp_path, secret, "orders", "shop")
    with pytest.raises(AuthenticationError, match=r"wrong password: \*\*\*"):
        app.start(config, start_timeout=0)


def test_a_configuration_with_tokens_needs_somebody_who_supplies_them(tmp_path: Path) -> None:
    app = App("shop")

    @app.handler("orders", group="shop")
    def charge(record: Record) -> None:
        raise Fatal(record.text())

    config = configured(tmp_path, NOWHERE, "orders", "shop")
    with pytest.raises(ConfigError, match=r"workers\.yaml:\d+.*@app\.oauth_token"):
        app.start(config, start_timeout=0)


# ---- which clients ask


@pytest.mark.parametrize("kind", ["consumer", "producer", "admin"])
def test_a_configuration_with_tokens_passes_the_trial(kind: Kind) -> None:
    group = {"group.id": "shop"} if kind == "consumer" else {}
    assert refused_by_client(kind, {**NOWHERE, **group}) is None


@pytest.mark.parametrize(
    ("changed", "uses"),
    [
        ({}, True),
        ({"sasl.mechanism": "oauthbearer", "security.protocol": "sasl_ssl"}, True),
        ({"sasl.mechanism": "PLAIN"}, False),
        ({"security.protocol": "PLAINTEXT"}, False),
        ({"sasl.oauthbearer.method": "oidc"}, False),
        ({"sasl.oauthbearer.method": "default"}, True),
    ],
)
def test_only_clients_that_log_in_with_tokens_ask_for_them(
    changed: dict[str, str],
    uses: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert uses_tokens({**NOWHERE, **changed}) is uses


def test_the_mechanism_has_two_names() -> None:
    assert uses_tokens({"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER"})
    assert not uses_tokens({})


def test_clients_that_log_in_otherwise_are_made_and_do_not_ask(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("orders", 1)
    embedded.create_topic("shop.orders.dlq", 1)
    embedded.produce("orders", b"1")
    function = Function(broken)
    app, handled = app_of(function)
    settings = {"bootstrap.servers": embedded.bootstrap, "consumer": {"fetch.wait.max.ms": 10}}
    with app.start(configured(tmp_path, settings, "orders", "shop")):
        assert handled.wait(DEADLINE_S)
        assert first_value({"bootstrap.servers": embedded.bootstrap}, "shop.orders.dlq") == b"1"
    assert function.configs == []


# ---- tokens for several clients


def test_a_good_token_is_handed_out_again_while_the_function_fails() -> None:
    token = unsigned("admin")
    tokens = OAuthTokens(Function(lambda: token, broken), LOG)
    assert tokens("scope") == token
    assert tokens("scope") == token


def test_tokens_of_another_configuration_or_about_to_expire_are_not_handed_out_again() -> None:
    tokens = OAuthTokens(Function(lambda: unsigned("admin", 0.9), broken), LOG)
    tokens("scope")
    for config in ("scope", "another"):
        with pytest.raises(ConnectionError):
            tokens(config)


@pytest.mark.parametrize(
    ("token", "expiry"),
    [
        ("t", math.nan),
        ("t", math.inf),
        ("t", 1.9e12),
        ("", 1.9e9),
        ("t\u00e9", 1.9e9),
        (b"t", 1.9e9),
    ],
)
def test_a_token_that_a_client_would_drop_or_never_renew_is_refused(
    token: Any, expiry: float
) -> None:
    tokens = OAuthTokens(lambda _config: (token, expiry), LOG)
    assert tokens.trouble("") is not None
    with pytest.raises((TypeError, ValueError)):
        tokens("")
