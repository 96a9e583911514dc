from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.commands import Commands
from tests.golden_texts import Golden
from window_consumer.cli.check_command import check_command


def test_a_sound_configuration_is_fine_and_its_bounds_are_reported(
    window_consumer: Run, golden: Golden
) -> None:
    ended = window_consumer("check", "shop:app")
    assert (ended.code, ended.err) == (0, "")
    assert "workers.yaml: fine" in ended.out
    golden(ended.out)
    assert "called 3 times" in ended.out
    assert "16000 / X records/s" in ended.out


def test_the_bounds_as_json(window_consumer: Run) -> None:
    ended = window_consumer("check", "shop:app", "-c", "workers.yaml", "--json")
    bounds = ended.json["workers"]["charge"]
    assert ended.json["ok"] is True
    assert bounds["window_records"] == 32 * 500
    assert bounds["max_bytes"] == 256 * 2**20
    assert bounds["metadata_fits"] is True
    assert bounds["rerun_running"] == 16
    assert bounds["planned_takeover_s"] == pytest.approx(45 + 5 + 10)
    assert bounds["stop_s"] == pytest.approx(20 + 5)
    assert [wait["longest_s"] for wait in bounds["retry_waits"]] == [0.2, 0.4]


def test_a_window_that_does_not_fit_into_a_commit_is_warned_of(
    window_consumer: Run, golden: Golden
) -> None:
    ended = window_consumer("check", "shop:app", "--set", "workers.charge.window.cells=64")
    assert ended.code == 0
    golden(ended.out)


@pytest.mark.parametrize(
    ("override", "warning"),
    [
        ("workers.charge.retry.when_spent=drop", "loses records that keep failing"),
        ("workers.charge.stall.after=10m", "its partition does at most 27 records/s"),
        ("workers.charge.stop_timeout=1m", "terminationGracePeriodSeconds is at least 67"),
        ("workers.charge.kafka.group.instance.id=a", "does not leave at its stop"),
        ("workers.charge.kafka.fetch.wait.max.ms=10", "more than twice as often"),
        ("workers.charge.kafka.queued.max.messages.kbytes=900000", "may exceed memory"),
        ("workers.charge.kafka.producer.message.timeout.ms=29999", "kafka.message.timeout.ms"),
        ("workers.charge.kafka.producer.delivery.timeout.ms=5000", "kafka.delivery.timeout.ms"),
        ("workers.charge.kafka.retries=3", "kafka.retries"),
    ],
)
def test_settings_with_a_catch_are_warned_of(
    window_consumer: Run, override: str, warning: str
) -> None:
    ended = window_consumer("check", "shop:app", "--set", override)
    assert ended.code == 0
    assert warning in ended.out


def test_set_wins_over_the_file_and_only_chooses_workers(
    window_consumer: Run, project: Path
) -> None:
    with (project / "workers.yaml").open("a") as file:
        file.write("  again: {handler: charge, topics: [others], group: g2, enabled: false}\n")
    ended = window_consumer(
        "check", "shop:app", "--json", "--only", "again", "--set", "workers.again.concurrency=8"
    )
    assert list(ended.json["workers"]) == ["again"]
    assert ended.json["workers"]["again"]["concurrency"] == 8


MISTAKES = [
    ("workers: [", "workers.yaml:1"),
    ("", "workers.yaml"),
    ("workers: {charge: {group: g, concurency: 3}}", "concurrency"),
    ("workers: {charge: {group: g, concurrency: many}}", "workers.charge.concurrency"),
    ("workers: {charge: {}}", "group"),
    ("workers: {charge: {group: g, ordering: key}}", "overtake"),
    ("workers: {charge: {group: '${NO_SUCH_VARIABLE}'}}", "NO_SUCH_VARIABLE"),
    ("workers: {charge: {group: g}, bill: {group: h, topics: [t]}}", "no handler 'bill'"),
    ("workers: {other: {handler: charge, group: g, retry: {fatal: [shop.No]}}}", "shop.No"),
    ("workers: {charge: {group: g, retry: {levels: [10s, 1s]}}}", "levels"),
    ("kafka: {enable.auto.commit: true}\nworkers: {charge: {group: g}}", "may not be set"),
    ("kafka: {acks: 1}\nworkers: {charge: {group: g}}", "acks must be -1 or all"),
    ("kafka: {fetch.wait.max.sm: 1}\nworkers: {charge: {group: g}}", "No such configuration"),
    ("kafka: {session.timeout.ms: 1000}\nworkers: {charge: {group: g}}", "classic"),
    ("workers: {charge: {group: g}}", "workers.yaml:1: kafka.bootstrap.servers: is missing"),
    ("kafka: {bootstrap.servers: ' '}\nworkers: {charge: {group: g}}", "is missing"),
    ("kafka: {bootstrap.servers: 'a:1,b:c'}\nworkers: {charge: {group: g}}", "'b:c' is not an"),
    ("kafka: {bootstrap.server: h:1}\nworkers: {charge: {group: g}}", "mean bootstrap.servers?"),
    ("kafka: {consumer: {bootstrap.servers: h}}\nworkers: {charge: {group: g}}", "the producer"),
    (
        "kafka:\n  bootstrap.servers: h:1\n  max.poll.records: 5\nworkers: {charge: {group: g}}",
        "workers.yaml:3: kafka: max.poll.records is a property of the Java client",
    ),
    ("workers: {charge: {group: g, revoke_timeout: 3m}}", "revoke_timeout"),
    (
        "workers: {charge: {group: g}, two: {handler: charge, topics: [orders], group: g}}",
        "of the same group",
    ),
]


@pytest.mark.parametrize(("text", "reported"), MISTAKES, ids=[reported for _, reported in MISTAKES])
@pytest.mark.parametrize("how", ["check", "run"])
def test_a_mistake_in_the_file_ends_with_2_and_says_where(
    window_consumer: Run, project: Path, how: str, text: str, reported: str
) -> None:
    (project / "workers.yaml").write_text(text)
    ended = window_consumer(how, "shop:app")
    assert (ended.code, ended.out) == (2, "")
    assert reported in ended.err
    assert "workers.yaml" in ended.err


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("@app.handler\ndef one(record): ...", "without parentheses"),
        ("class Shop:\n    @app.handler('a')\n    def one(self, record): ...", "is a method"),
        ("@app.middleware\ndef one(record): ...", "is called with (record, call_next)"),
        ("@app.lifespan\ndef one(): open(__file__)", "has no yield"),
    ],
)
@pytest.mark.parametrize("how", ["check", "run"])
def test_a_mistake_in_a_decorated_function_ends_with_2_and_says_where(
    window_consumer: Run, project: Path, how: str, text: str, reported: str
) -> None:
    with (project / "shop.py").open("a") as file:
        file.write(f"\n\n{text}\n")
    ended = window_consumer(how, "shop:app")
    assert (ended.code, ended.out) == (2, "")
    assert reported in ended.err
    assert f"{project / 'shop.py'}:1" in ended.err


def test_a_property_that_librdkafka_refuses_is_named_with_its_line(
    window_consumer: Run, project: Path
) -> None:
    (project / "workers.yaml").write_text(
        "kafka:\n  bootstrap.servers: h:1\n  fetch.wait.max.ms: never\n"
        "workers:\n  charge: {group: g}\n"
    )
    ended = window_consumer("check", "shop:app")
    assert ended.code == 2
    assert "workers.yaml:3" in ended.err
    assert "fetch.wait.max.ms" in ended.err


def test_a_file_that_is_not_there_is_reported_where_it_is_configured(
    window_consumer: Run, project: Path, golden: Golden
) -> None:
    (project / "workers.yaml").write_text(
        "kafka:\n  bootstrap.servers: h:1\n  security.protocol: ssl\n"
        "  ssl.ca.location: /nowhere/ca.pem\n"
        "  consumer: {ssl.certificate.location: mine.pem}\n"
        "workers:\n  charge:\n    group: g\n    kafka: {ssl.key.location: /}\n"
    )
    ended = window_consumer("check", "shop:app")
    assert ended.code == 2
    golden("\n".join(sorted(ended.err.removeprefix("error: ").splitlines())), project=project)
    (project / "workers.yaml").write_text(
        "kafka:\n  bootstrap.servers: h:1\n  security.protocol: ssl\n"
        "  ssl.ca.location: probe\n  ssl.certificate.location: workers.yaml\n"
        "workers:\n  charge: {group: g}\n"
    )
    ended = window_consumer("check", "shop:app")
    assert "workers.yaml:5: kafka: " in ended.err
    golden(ended.err)


def test_a_file_for_the_collector_that_is_not_there_is_warned_of(
    window_consumer: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem")
    ended = window_consumer("check", "shop:app")
    assert ended.code == 0
    said = "OpenTelemetry: OTEL_EXPORTER_OTLP_CERTIFICATE: /nowhere/ca.pem does not exist"
    assert f"  warning: {said}" in ended.out
    (warning,) = window_consumer("check", "shop:app", "--json").json["process"]["warnings"]
    assert warning.startswith(said)


def test_a_handler_that_no_worker_runs_is_an_error_unless_its_worker_is_disabled(
    window_consumer: Run, project: Path, golden: Golden
) -> None:
    with (project / "shop.py").open("a") as file:
        file.write("\n@app.handler('refunds')\ndef refund(record: Record) -> None: ...\n")
    ended = window_consumer("check", "shop:app")
    assert ended.code == 2
    golden(ended.err)
    assert "enabled: false" in ended.err
    with (project / "workers.yaml").open("a") as file:
        file.write("  refund: {group: g, enabled: false}\n")
    assert window_consumer("check", "shop:app").code == 0


@pytest.mark.parametrize(
    ("source", "spec", "reported"),
    [
        ("", "nowhere:app", "no module 'nowhere'"),
        ("", "shop.py", "MODULE:APP"),
        ("", "shop:application", "no App named 'application'; it has app"),
        ("import nowhere", "shop:app", "cannot be imported"),
        ("1 / 0", "shop:app", "shop.py:"),
        ("import os; os.environ['NO_SUCH_TOKEN']", "shop:app", "shop.py:"),
        ("def", "shop:app", "SyntaxError"),
        ("raise SystemExit(5)", "shop:app", "SystemExit"),
    ],
)
def test_an_application_that_cannot_be_loaded(
    window_consumer: Run, project: Path, source: str, spec: str, reported: str
) -> None:
    with (project / "shop.py").open("a") as file:
        file.write(f"\n{source}\n")
    ended = window_consumer("check", spec)
    assert ended.code == 2
    assert reported in ended.err


def test_secrets_never_show(window_consumer: Run, project: Path) -> None:
    (project / "password").write_text("hunter2\n")
    (project / "workers.yaml").write_text(
        "kafka:\n  sasl.password: ${file:password}\n  security.protocol: sasl_plaintext\n"
        "  sasl.mechanism: hunter2\nworkers:\n  charge: {group: hunter2, ordering: hunter2}\n"
    )
    ended = window_consumer("check", "shop:app")
    assert ended.code == 2
    assert "hunter2" not in ended.err + ended.out
    assert "***" in ended.err


def test_the_schema_is_a_json_schema(window_consumer: Run) -> None:
    schema = window_consumer("schema").json
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "workers" in schema["properties"]


def test_wrong_usage_ends_with_2(window_consumer: Run) -> None:
    assert window_consumer("no-such-command").code == 2
    assert window_consumer("run").code == 2
    assert window_consumer("check", "shop:app", "--start-timeout", "5").code == 2
    assert window_consumer("check", "shop:app", "-c", "missing.yaml").code == 2


def test_help_and_version_end_with_0(window_consumer: Run) -> None:
    assert "run" in window_consumer("--help").out
    assert "window-consumer, version" in window_consumer("--version").out


def test_a_person_waits_half_a_minute_unless_configured_otherwise(commands: Commands) -> None:
    (option,) = [each for each in check_command.params if each.name == "start_timeout"]
    assert option.default == 30.0
    commands.application(
        "from window_consumer import App\napp = App('shop')\n"
        "@app.handler('orders', group='shop')\ndef place(order): ...\n"
    )
    commands.configure({"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "workers": {"place": {}}})
    assert commands.run("check", "shop:app", "--connect", "--start-timeout", "1s").code == 1
