"""A feature costs one file: what it may have works without any other change."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import yaml

from tests.commands import kafka_of
from tests.golden_texts import Golden
from window_consumer import App, ConfigError, Record
from window_consumer.app.features import FEATURES
from window_consumer.cli.main import command_line, main
from window_consumer.kafka.embedded import EmbeddedBroker

WITH_TALLY = FEATURES.plus("tests.architecture.small_feature:TallyFeature")
WAIT_S = 30.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def ask(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def configured(directory: Path, tally: dict[str, Any], **more: Any) -> Path:
    file = directory / "workers.yaml"
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    workers = {"charge": {"group": "shop"}}
    settings = {"kafka": kafka, "workers": workers, "tally": tally, **more}
    file.write_text(yaml.safe_dump(settings))
    return file


def an_app() -> App:
    app = App("shop", features=WITH_TALLY)

    @app.handler("orders")
    def charge(_order: Record) -> None: ...

    return app


@pytest.fixture
def ports(embedded: EmbeddedBroker, tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Run an application with the feature; return the ports of its admin and health addresses."""
    embedded.create_topic("orders", 1)
    for text in (b"one", b"two", b"", b"three"):
        embedded.produce("orders", text, partition=0)
    admin, health = free_port(), free_port()
    addresses = {
        "admin": {"listen": f"127.0.0.1:{admin}"},
        "health": {"listen": f"127.0.0.1:{health}"},
    }
    tally = {"enabled": True, "most": 2}
    file = configured(tmp_path, tally, kafka=kafka_of(embedded), **addresses)
    with an_app().start(file, start_timeout=WAIT_S):
        until = monotonic() + WAIT_S
        while '"done":4' not in ask(admin, "/tally")[1] and monotonic() < until:
            sleep(0.02)
        yield admin, health


def test_its_observer_layer_rule_page_metric_and_probe_work_in_a_running_application(
    ports: tuple[int, int], golden: Golden
) -> None:
    admin, health = ports
    status, text = ask(admin, "/tally")
    assert (status, json.loads(text)) == (200, {"calls": 3, "done": 4})
    assert "window_consumer_tally_calls_total 3" in ask(health, "/metrics")[1].splitlines()
    status, text = ask(health, "/readyz")
    assert status == 503
    golden(text.splitlines()[-1])


def test_its_section_is_read_checked_and_described(tmp_path: Path, golden: Golden) -> None:
    app = an_app()
    plan = app.plan(configured(tmp_path, {"most": 1, "enabled": True}))
    assert list(app.features.warnings(plan))[-1].startswith("tally.most")
    for tally, key in (({"moost": 1}, "tally.moost"), ({"most": 0}, "tally.most")):
        with pytest.raises(ConfigError, match=key):
            app.plan(configured(tmp_path, tally))
    with golden.raises(ConfigError):
        app.plan(configured(tmp_path, {"most": 1}))


def test_its_command_is_among_the_others_and_reads_its_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = command_line(WITH_TALLY)
    with pytest.raises(SystemExit) as ended:
        main(["tally", "-c", str(configured(tmp_path, {"most": 7}))], commands)
    assert (ended.value.code, capsys.readouterr().out) == (0, "7\n")
    with pytest.raises(SystemExit):
        main(["schema"], commands)
    schema = json.loads(capsys.readouterr().out)
    assert schema["properties"]["tally"]["properties"]["most"]["default"] == 1000
    with pytest.raises(SystemExit):
        main(["metrics"], commands)
    assert "window_consumer_tally_calls_total" in capsys.readouterr().out


def test_without_the_feature_its_section_is_unknown(tmp_path: Path) -> None:
    app = App("shop")

    @app.handler("orders")
    def charge(_order: Record) -> None: ...

    with pytest.raises(ConfigError, match="tally: unknown key"):
        app.plan(configured(tmp_path, {}))
