"""The same promises with a real registry: Apicurio, by its API of Confluent's registry.

Its download has 142 MB and its start takes 10 s of CPU, so it is not part of the suite: run it by
its name after changes here, or with a new confluent-kafka:

    python -m pytest tests/schema_registry/with_apicurio.py

It needs Java 17 and Maven. REGISTRY_URL names a registry that runs already, of any maker.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tarfile
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.schema_registry.orders import AVRO, FORMATS, unframed, with_id, written
from tests.schema_registry.worker import CLASSES, app_with, reading
from tests.waiting import wait_until
from window_consumer.testing import DEAD_LETTERED, DONE

VERSION = "2.6.13.Final"  # 3.x needs Java 21
ARTIFACT = f"apicurio-registry-app-{VERSION}"
UNKNOWN = 987_654
START_S = 600


@attrs.frozen
class RunningRegistry:
    """Where a registry answers."""

    url: str


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    given = os.environ.get("REGISTRY_URL")
    if given:
        yield RunningRegistry(given)
        return
    home, port = tmp_path_factory.mktemp("apicurio"), free_port()
    command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
    command += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    command += ["-jar", str(fetched(home) / f"{ARTIFACT}-runner.jar")]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with (home / "log").open("w") as log:
        running = subprocess.Popen(command, cwd=home, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: answers(running, url, home / "log"), START_S, "Apicurio answers")
        yield RunningRegistry(url)
    finally:
        running.kill()
        running.wait()


def fetched(home: Path) -> Path:
    """Return the folder with Apicurio's jars; Maven keeps its archive."""
    artifact = f"-Dartifact=io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
    copy = ["mvn", "-B", "-q", "dependency:copy", artifact, f"-DoutputDirectory={home}"]
    subprocess.run(copy, check=True)
    with tarfile.open(home / f"{ARTIFACT}-all.tar.gz") as archive:
        archive.extractall(home, filter="data")
    return home


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(running: subprocess.Popen[bytes], url: str, log: Path) -> bool:
    assert running.poll() is None, log.read_text()[-3000:]
    try:
        with urllib.request.urlopen(f"{url}/subjects", timeout=30) as answer:  # noqa: S310 - http
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.parametrize("form", FORMATS)
def test_values_are_read_and_unknown_schemas_are_dead_letters(
    form: str, registry: RunningRegistry
) -> None:
    got: list[Any] = []

    def charge(order: Any) -> None:
        got.append((type(order), order.id, order.customer))

    with reading(app_with(charge, CLASSES[form]), registry, form) as app:
        value = written(registry.url, form, topic=f"{form}-{uuid.uuid4()}")
        sent = app.send_many("orders", [value, with_id(value, UNKNOWN), unframed(form), value])
        assert [each.outcome for each in sent] == [DONE, DEAD_LETTERED, DEAD_LETTERED, DONE]
        assert [each.reason for each in app.dead_letters] == ["DECODE"] * 2
    assert got == [(CLASSES[form], 7, "ada")] * 2


def test_both_versions_of_a_schema_are_read(registry: RunningRegistry) -> None:
    got: list[Any] = []

    def charge(order: Any) -> None:
        got.append((order["id"], order.get("coupon")))

    topic = f"evolving-{uuid.uuid4()}"
    coupon = {"name": "coupon", "type": "string", "default": "none"}
    later = {**AVRO, "fields": [*AVRO["fields"], coupon]}
    with reading(app_with(charge, dict[str, Any]), registry, "avro") as app:
        values = [
            written(registry.url, "avro", topic=topic, id=1),
            written(registry.url, "avro", topic=topic, schema=later, id=2, coupon="spring"),
        ]
        assert values[0][:5] != values[1][:5]
        assert {each.outcome for each in app.send_many("orders", values, key="k")} == {DONE}
    assert got == [(1, None), (2, "spring")]


def test_a_schema_of_another_format_and_a_wrong_path_are_outages(registry: RunningRegistry) -> None:
    def charge(order: Any) -> None: ...

    value = written(registry.url, "avro", topic=f"avro-{uuid.uuid4()}")
    wrong = attrs.evolve(registry, url=f"{registry.url}/nowhere")
    for form, where in (("json", registry), ("avro", wrong)):
        app = app_with(charge, dict[str, Any])
        with reading(app, where, form, retry={"attempts": 2, "backoff": "10ms..50ms"}) as worker:
            worker.send_many("orders", [value] * 40)
            worker.advance("2s")
            assert len(worker.dead_letters) <= 5
