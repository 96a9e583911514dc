"""``schema``: what editors and the reference page are made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.commands import Commands

REPOSITORY = Path(__file__).parents[2]
REFERENCE = REPOSITORY / "docs" / "config.md"
PUBLISHED = REPOSITORY / "docs" / "schema.json"

EXAMPLE = """
kafka:
  bootstrap.servers: ${KAFKA_BOOTSTRAP:-127.0.0.1:9092}
workers:
  charge:
    handler: charge
    topics: [orders]
    group: shop-charge
    ordering: key
    concurrency: 64
    memory: 256MiB
    window: {cells: 32, cell_records: 500}
    commit_interval: 500ms
    revoke_timeout: 10s
    stop_timeout: 20s
    retry:
      attempts: 3
      backoff: 200ms..5s
      fatal: [shop.InvalidOrder]
      when_spent: dead_letter
      on_oversize: hold
      on_failure: overtake
    on_no_offset: earliest
    on_out_of_range: fail
topics: {create: true}
"""


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Commands(tmp_path_factory.mktemp("schema")) as commands:
        ended = commands.run("schema")
    assert (ended.code, ended.err) == (0, "")
    return ended.json


def errors_of(schema: Any, text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema)
    return [error.message for error in validator.iter_errors(yaml.safe_load(text))]


def test_it_is_a_json_schema(schema: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


def test_it_takes_the_documented_example(schema: Any) -> None:
    assert errors_of(schema, EXAMPLE) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("concurrency: 64", "concurency: 64"),
        ("topics: {create: true}", "topic: {create: true}"),
        ("attempts: 3", "atempts: 3"),
        ("cells: 32", "cell: 32"),
    ],
)
def test_it_refuses_an_unknown_key(schema: Any, right: str, wrong: str) -> None:
    (error,) = errors_of(schema, EXAMPLE.replace(right, wrong))
    assert wrong.partition(":")[0] in error


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("ordering: key", "ordering: keys"),
        ("concurrency: 64", "concurrency: 0"),
        ("commit_interval: 500ms", "commit_interval: soon"),
        ("memory: 256MiB", "memory: much"),
        ("group: shop-charge", "group: 7"),
        ("topics: [orders]", "topics: orders"),
    ],
)
def test_it_refuses_a_wrong_value(schema: Any, right: str, wrong: str) -> None:
    assert len(errors_of(schema, EXAMPLE.replace(right, wrong))) == 1


def test_what_it_takes_a_check_takes_too(commands: Commands) -> None:
    commands.application(
        "from window_consumer import App\n"
        "app = App('shop')\n"
        "class InvalidOrder(Exception): ...\n"
        "@app.handler('orders')\n"
        "def charge(order): ...\n"
    )
    commands.configure(EXAMPLE)
    assert commands.run("check", "shop:app").code == 0


def test_the_reference_page_is_what_the_command_prints(commands: Commands) -> None:
    ended = commands.run("schema", "--markdown")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == REFERENCE.read_text()


def test_the_published_schema_is_what_the_command_prints(schema: Any) -> None:
    assert json.loads(PUBLISHED.read_text()) == schema
