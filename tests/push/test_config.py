"""The section ``http``: what it refuses, and what it hides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel import FEATURES
from window_consumer import App
from window_consumer.config import LoadedConfig, Mask, load
from window_consumer.model.errors import ConfigError
from window_consumer.plan.loading import load_app_if_named

WORKER = """\
kafka: {bootstrap.servers: 'broker:9092'}
workers:
  orders:
    topics: [orders]
    group: shop
"""
URL = "https://orders.internal/events"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - that of the specification's example


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        file = tmp_path / "workers.yaml"
        file.write_text(WORKER + text)
        return file

    return write


@pytest.fixture
def loaded(file_of: Callable[[str], Path]) -> Callable[[str], LoadedConfig]:
    return lambda text: load(file_of(text), sections=FEATURES.sections)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{}", "url"),
        ("", "url"),
        ("{timeout: 10s}", "url"),
        ("{url: orders.internal}", "url"),
        ("{url: 'ftp://orders.internal'}", "url"),
        ("{url: 'https://'}", "url"),
        ("{url: 'https://host:99999/'}", "url"),
        ("{url: 'https://host/ events'}", "url"),
        ("{url: 'https://host/größe'}", "url"),
        ("{url: 'https://host/#top'}", "url"),
        ("{url: 'https://name:hunter22@host/'}", "url"),
        (f"{{url: '{URL}', timeout: 0s}}", "timeout"),
        (f"{{url: '{URL}', timeuot: 1s}}", "timeuot"),
        (f"{{url: '{URL}', skip_status: 204}}", "skip_status"),
        (f"{{url: '{URL}', skip_status: [99]}}", "skip_status[0]"),
        (f"{{url: '{URL}', fatal_status: [200]}}", "fatal_status[0]"),
        (f"{{url: '{URL}', skip_status: [400]}}", "skip_status[0]"),
        (f"{{url: '{URL}', headers: {{Host: a}}}}", "headers.Host"),
        (f"{{url: '{URL}', headers: {{wc-topic: a}}}}", "headers.wc-topic"),
        (f"{{url: '{URL}', headers: {{'a b': a}}}}", "headers.a b"),
        (f"{{url: '{URL}', headers: {{A: 7}}}}", "headers.A"),
        (f'{{url: "{URL}", headers: {{A: "a\\nB: c"}}}}', "headers.A"),
        (f"{{url: '{URL}', headers: [a]}}", "headers"),
        (f"{{url: '{URL}', proxy: 'socks5://host'}}", "proxy"),
        (f"{{url: '{URL}', format: xml}}", "format"),
        (f"{{url: '{URL}', sign: {{secret: hunter22}}}}", "sign.secret"),
        (f"{{url: '{URL}', sign: {{previous_secret: {SECRET}}}}}", "sign.secret"),
        (f"{{url: '{URL}', sign: {{secert: hunter22}}}}", "sign.secert"),
        (f"{{url: '{URL}', may_produce: ['a b']}}", "may_produce[0]"),
    ],
)
def test_what_is_wrong_is_named(text: str, key: str, loaded: Callable[[str], LoadedConfig]) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(f"    http: {text}\n")
    assert [each.key for each in caught.value.wrong] == [f"workers.orders.http.{key}"]
    assert "hunter22" not in str(caught.value)


def test_the_timeout_takes_the_place_of_stall(loaded: Callable[[str], LoadedConfig]) -> None:
    http = f"    http: {{url: '{URL}', timeout: 50s}}\n"
    assert loaded(http).config.workers["orders"].stall.after > 50
    with pytest.raises(ConfigError) as caught:
        loaded(f"{http}    stall: {{after: 30s}}\n")
    assert [each.key for each in caught.value.wrong] == ["workers.orders.stall"]


def test_values_of_headers_are_secrets(loaded: Callable[[str], LoadedConfig]) -> None:
    headers = "{Authorization: 'Bearer abcdefghij', X-Key: k}"
    found = loaded(f"    http: {{url: '{URL}', headers: {headers}}}\n")
    assert Mask(found.secrets)("Bearer abcdefghij/abcdefghij") == "***/***"


def test_the_secret_of_signatures_is_one(loaded: Callable[[str], LoadedConfig]) -> None:
    found = loaded(f"    http: {{url: '{URL}', sign: {{secret: {SECRET}}}}}\n")
    assert Mask(found.secrets)(SECRET) == "***"


def test_the_topics_of_answers_may_be_written(file_of: Callable[[str], Path]) -> None:
    file = file_of(f"    http: {{url: '{URL}', may_produce: [events]}}\n")
    rights = FEATURES.rights(load(file, sections=FEATURES.sections).config)
    assert [(each.name, each.operations) for each in rights] == [("events", ("WRITE", "DESCRIBE"))]


@pytest.mark.parametrize(("batch", "is_batch"), [("", False), ("    batch: {}\n", True)])
def test_the_section_batch_asks_for_batches(
    batch: str, file_of: Callable[[str], Path], *, is_batch: bool
) -> None:
    file = file_of(f"    http: {{url: '{URL}'}}\n{batch}")
    plan = load_app_if_named(None, file, FEATURES).plan(file)
    assert plan.workers[0].is_batch is is_batch


def test_no_application_is_needed(file_of: Callable[[str], Path]) -> None:
    file = file_of(f"    http: {{url: '{URL}'}}\n")
    plan = load_app_if_named(None, file, FEATURES).plan(file, for_cluster=True)
    (worker,) = plan.workers
    assert (worker.name, worker.is_async, worker.handler_names) == ("orders", True, "orders")


def test_without_http_the_application_is_asked_for(file_of: Callable[[str], Path]) -> None:
    file = file_of("")
    with pytest.raises(ConfigError, match="MODULE:APP"):
        load_app_if_named(None, file, FEATURES).plan(file)


def test_two_handlers_are_refused(file_of: Callable[[str], Path]) -> None:
    app = App("shop")

    @app.handler(name="orders")
    def charge(_: object) -> None:
        """Do nothing."""

    file = file_of(f"    http: {{url: '{URL}'}}\n")
    with pytest.raises(ConfigError) as caught:
        app.plan(file)
    assert "workers.orders.http" in str(caught.value)


def test_statuses_of_outages_are_warned_about(file_of: Callable[[str], Path]) -> None:
    text = f"    http: {{url: '{URL}', fatal_status: [400, 404, 503]}}\n"
    file = file_of(text)
    plan = load_app_if_named(None, file, FEATURES).plan(file)
    warnings = [each for each in FEATURES.warnings(plan) if "http.fatal_status" in each]
    assert len(warnings) == 2
