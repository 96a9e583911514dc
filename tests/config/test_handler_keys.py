"""What decorators take is declared once, where the configuration's keys are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import window_consumer
from window_consumer import App
from window_consumer.config.handler_keys import OPTIONS_FILE, handler_keys, handler_options
from window_consumer.config.options import options
from window_consumer.config.sections.worker import WorkerConfig

DECLARED = """\
    colour: Literal["red", "green"] = field(
        default="red",
        metadata=about("The colour of the worker.", kind=kinds.choice("red", "green")),
    )
"""
USED = """
import json
import sys
from pathlib import Path

import window_consumer
from window_consumer import App
from window_consumer.config import config_page, json_schema
from window_consumer.config.handler_keys import handler_options

app = App("shop")

@app.handler("orders", group="shop", colour="green")
def charge(record): ...

@app.batch_handler("orders", group="books", colour="green")
def book(records): ...

def colours(*overrides):
    workers = app.plan("workers.yaml", overrides=overrides).workers
    return [worker.config.colour for worker in workers]

print(json.dumps({
    "package": window_consumer.__file__,
    "decorated": colours(),
    "configured": colours("workers.charge.colour=red"),
    "page": config_page(),
    "schema": json_schema()["$defs"]["worker"]["properties"]["colour"]["default"],
    "typed": handler_options(),
}))
"""


def test_the_types_of_what_decorators_take_are_those_of_the_keys() -> None:
    assert OPTIONS_FILE.read_text(encoding="utf-8") == handler_options(), (
        "stale: python -m window_consumer.config.handler_keys"
    )


def test_decorators_take_every_key_of_a_worker_but_those_that_name_it_and_its_records() -> None:
    taken = {key.name for key in handler_keys() if key.section is None}
    assert set(options(WorkerConfig)) - taken == {"enabled", "handler", "topics", "batch", "routes"}
    lifted = {(key.section, key.name, key.for_batches) for key in handler_keys() if key.section}
    assert lifted == {
        ("retry", "fatal", False),
        ("retry", "retryable", False),
        ("batch", "max_records", True),
        ("batch", "min_records", True),
        ("batch", "max_wait", True),
    }


def test_a_new_key_is_declared_once(tmp_path: Path) -> None:
    package = Path(window_consumer.__file__).parent
    copy = tmp_path / "window_consumer"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    schema = copy / "config" / "sections" / "worker.py"
    before = "    revoke_timeout: float = field("
    text = schema.read_text(encoding="utf-8")
    assert text.count(before) == 1
    schema.write_text(text.replace(before, DECLARED + before), encoding="utf-8")
    (tmp_path / "used.py").write_text(USED)
    kafka = "kafka: {bootstrap.servers: b:1}"
    (tmp_path / "workers.yaml").write_text(f"{kafka}\nworkers: {{charge: {{}}, book: {{}}}}\n")
    ended = subprocess.run(
        [sys.executable, "used.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert Path(found["package"]).parent == copy
    assert found["decorated"] == ["green", "green"]
    assert found["configured"] == ["red", "green"]
    assert "`workers.NAME.colour`" in found["page"]
    assert found["schema"] == "red"
    assert 'colour: Literal["red", "green"] | None' in found["typed"]


@pytest.mark.parametrize("decorator", ["handler", "batch_handler"])
@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("grup", "group"), ("fatl", "fatal"), ("commit_intervall", "commit_interval")],
)
def test_a_misspelt_key_is_refused_at_once_with_what_was_meant(
    decorator: str, misspelt: str, meant: str
) -> None:
    decorate = getattr(App("shop"), decorator)
    with pytest.raises(TypeError, match=rf"{decorator}\(\).*'{misspelt}'.* {meant}\?"):
        decorate("orders", **{misspelt: "x"})


@pytest.mark.parametrize("key", ["enabled", "topics", "routes", "batch", "max_records", "name_"])
def test_what_a_decorator_does_not_take_is_refused(key: str) -> None:
    keys: Any = {key: 1}
    with pytest.raises(TypeError, match=f"'{key}'"):
        App("shop").handler("orders", **keys)


def test_keys_of_sections_join_their_section_and_none_is_not_given() -> None:
    app = App("shop")

    @app.batch_handler(
        "orders",
        fatal=[KeyError],
        retry={"attempts": 5, "fatal": [ValueError]},
        max_wait="1s",
        retryable=None,
        group=None,
        min_records=None,
    )
    def store(records: list[Any]) -> None: ...

    assert app.handlers["store"].defaults == {
        "topics": ["orders"],
        "retry": {"attempts": 5, "fatal": [KeyError]},
        "batch": {"max_wait": "1s"},
    }
