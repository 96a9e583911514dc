"""Examples of the documentation are run: what stands in a block is what a reader gets."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.admin.certificates import make_certificate
from tests.commands import DEADLINE_S, Commands
from tests.docs.pages import PAGES, ROOT, blocks, module_of
from tests.waiting import wait_until
from window_consumer.model.log_events import LogEvent
from window_consumer.spark.wire import load_pipeline
from window_consumer.testing import TestApp

README = ROOT / "README.md"
WITH_HANDLERS = [
    ROOT / "docs" / name
    for name in (
        "broadcast.md",
        "delay.md",
        "handlers.md",
        "new-failures.md",
        "routing.md",
        "schedules.md",
        "schema-registry.md",
    )
]
WITHOUT_CONFIGURATION = [
    ROOT / "docs" / name
    for name in (
        "batches.md",
        "coroutines.md",
        "embedding.md",
        "processes.md",
        "results.md",
        "typed-messages.md",
    )
]
EXAMPLES = ROOT / "examples"

SHOP = (
    (EXAMPLES / "shop.py").read_text("utf-8")
    + """

class InvalidOrder(Exception):
    '''Pages without handlers of their own speak of this one.'''
"""
)

FRAMEWORK_PAGES = [ROOT / "docs" / name for name in ("django.md", "fastapi.md", "flask.md")]
"""Pages with parts of applications, which tests/docs/test_frameworks.py runs."""
FOLLOWED = [*(ROOT / "docs/tutorial").glob("*.md")]
"""Pages that tests/docs/test_tutorial.py follows from beginning to end."""
TESTED_ELSEWHERE = {*FRAMEWORK_PAGES, *FOLLOWED}
WITH_YAML = [page for page in PAGES if blocks(page, "yaml") and page not in TESTED_ELSEWHERE]
WITHOUT_APPLICATION = [ROOT / "docs/push.md", ROOT / "docs/sqs.md"]
WITH_FILES = {
    ROOT / "docs/celery.md": "handlers:app",
    ROOT / "docs/migration.md": "handlers:app",
    ROOT / "docs/faststream.md": "worker:app",
}
"""Pages whose blocks are files, and where their application is."""
LOGIN = ROOT / "docs/login.md"
"""Its blocks are sections `kafka`, for any worker."""
WITH_TESTS = [ROOT / "docs/testing.md"]

PLUGIN = ("-p", "pytest_window_consumer")
"""As its entry point would load it, whatever is installed."""


def test_the_first_handler_stands_in_the_readme_as_it_is_in_the_examples() -> None:
    shown = {block.file: block.text for block in blocks(README, "python") + blocks(README, "yaml")}
    for name, text in shown.items():
        assert name is not None
        assert text == (EXAMPLES / name).read_text("utf-8"), name
    assert set(shown) == {"shop.py", "workers.yaml"}


def test_the_first_handler_runs_the_way_that_the_readme_says() -> None:
    with Commands(EXAMPLES) as commands:
        assert commands.run("check", "shop:app").code == 0
        worker = commands.start("run", "shop:app", "--embedded")
        worker.wait_for("reads 4 partitions")
        address = {"KAFKA_BOOTSTRAP": address_in(worker.said)}
        send = [sys.executable, str(EXAMPLES / "send.py")]
        subprocess.run(send, env={**os.environ, **address}, check=True, timeout=DEADLINE_S)
        worker.wait_for("charged customer-", times=19)
        worker.wait_for_event(LogEvent.CALL_FAILED)

        def listed() -> dict[str, Any]:
            return dict(commands.run("dlq", "list", "--json", env=address).json["topics"])

        wait_until(lambda: any(each["total"] for each in listed().values()), DEADLINE_S, "a copy")
        (letters,) = listed().values()
        assert (letters["total"], letters["open"], letters["reasons"]) == (1, 1, {"FATAL": 1})
        ended = worker.stop()
        assert ended.code == 0
        assert "19 processed, 0 retried, 1 dead-lettered, 0 unfinished" in ended.said
        charged = re.findall(r"charged customer-1: (\d+)", ended.err)
        assert charged == ["10", "50", "90", "130", "170"]


def address_in(said: str) -> str:
    """Return where the embedded broker listens, as the command prints it."""
    (address,) = re.findall(r"^(?:.*? )?(127\.0\.0\.1:\d+)$", said, re.MULTILINE)
    return str(address)


@pytest.mark.parametrize("page", WITH_YAML, ids=[page.name for page in WITH_YAML])
def test_configurations_stand_their_check_with_the_handlers_of_their_page(
    page: Path, tmp_path: Path
) -> None:
    with Commands(tmp_path) as commands:
        commands.application(module_of(page) if page in WITH_HANDLERS else SHOP)
        if page in WITH_FILES:
            for block in blocks(page, "python"):
                (tmp_path / str(block.file)).write_text(block.text)
        for block in blocks(page, "yaml"):
            if block.file == "pipeline.yaml":
                (tmp_path / block.file).write_text(block.text)
                load_pipeline(tmp_path / block.file, {"KAFKA_BOOTSTRAP": "127.0.0.1:1"})
                continue
            commands.configure(_whole(block.text, tmp_path) if page == LOGIN else block.text)
            if "tls/tls.crt" in block.text:
                tls = tmp_path / "tls"
                tls.mkdir()
                make_certificate(tls / "tls.crt", tls / "tls.key")
            named = WITH_FILES.get(page, "shop:app")
            application = () if page in WITHOUT_APPLICATION else (named,)
            environment = {"KAFKA_BOOTSTRAP": "127.0.0.1:1", "TENANT": "acme", "SQS_SECRET": "x"}
            ended = commands.run("check", *application, env=environment)
            assert ended.code == 0, ended.said


def _whole(section: str, directory: Path) -> str:
    """Return a configuration with a worker, whose files are the test's own."""
    certificate, key = directory / "mine.pem", directory / "mine.key"
    make_certificate(certificate, key)
    for path in re.findall(r"/(?:etc|run)/[\w/.-]+", section):
        mine = {".pem": certificate, ".key": key}.get(Path(path).suffix, directory / "secret")
        section = section.replace(path, str(mine))
    (directory / "secret").write_text("secret")
    return f"{section}workers: {{charge: {{group: shop, retry: {{on_failure: overtake}}}}}}\n"


@pytest.mark.parametrize(
    "page", WITHOUT_CONFIGURATION, ids=[page.name for page in WITHOUT_CONFIGURATION]
)
def test_handlers_stand_a_check_with_a_configuration_that_only_names_them(
    page: Path, tmp_path: Path
) -> None:
    module = ModuleType("page")
    exec(module_of(page), module.__dict__)  # noqa: S102 - the page's own example
    workers = {name: {"ordering": "unordered"} for name in module.app.handlers}
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    with Commands(tmp_path) as commands:
        commands.application(module_of(page))
        commands.configure(json.dumps({"kafka": kafka, "workers": workers}))
        ended = commands.run("check", "shop:app")
        assert ended.code == 0, ended.said


@pytest.mark.parametrize("page", WITH_TESTS, ids=[page.name for page in WITH_TESTS])
def test_tests_that_the_documentation_shows_pass(page: Path, tmp_path: Path) -> None:
    for name in ("shop.py", "workers.yaml"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text("utf-8"))
    for block in blocks(page, "ini"):
        (tmp_path / "pytest.ini").write_text(block.text)
    for number, block in enumerate(blocks(page, "python")):
        (tmp_path / (block.file or f"test_block_{number}.py")).write_text(block.text)
    ours = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN, "."],
        cwd=tmp_path,
        env={
            **ours,
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=5 * DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_batch_example_has_a_row_for_each_record_that_was_put_back(tmp_path: Path) -> None:
    """Copies in the entry topic lie where other records lay in the source topic."""
    file = tmp_path / "clicks.db"
    page = ModuleType("page")
    exec(  # noqa: S102 - the page's own example
        module_of(ROOT / "docs/batches.md").replace(":memory:", str(file)), page.__dict__
    )
    others = {name: {"enabled": False} for name in page.app.handlers}
    workers = {"workers": {**others, "store": {"retry": {"attempts": 1}}}}
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("CREATE TABLE clicks (id TEXT PRIMARY KEY, value BLOB)")
        with TestApp(page.app, workers, topics={"clicks": 1}) as wc_app:
            wc_app.send_many("clicks", [b"1", b"2", b"3"])
            wc_app.advance("1s")
            database.execute("ALTER TABLE clicks RENAME TO away")
            wc_app.send_many("clicks", [b"4", b"5", b"6", b"7", b"8"])
            wc_app.advance("1s")
            database.execute("ALTER TABLE away RENAME TO clicks")
            assert len(wc_app.dead_letters) == 5
            wc_app.redrive()
            wc_app.advance("1s")  # longer than max_wait
        rows = database.execute("SELECT id, value FROM clicks ORDER BY value").fetchall()
    assert rows == [(f"clicks/0/{number}", b"%d" % (number + 1)) for number in range(8)]
