"""The fixture ``wc_app``, as pytest gives it to the tests of a user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.commands import DEADLINE_S
from tests.docs.pages import ROOT

SHOP = """
from window_consumer import App, Fatal, Record

app = App("shop")


@app.handler("orders", group="shop")
def charge(order: Record) -> None:
    if order.json()["amount"] <= 0:
        raise Fatal("nothing to charge")
"""

WORKERS = "workers: {charge: {}}"

IS_DONE = """
from window_consumer.testing import DONE


def test_charge(wc_app):
    assert wc_app.send("orders", {"amount": AMOUNT}).outcome is DONE
"""


OPTIONS = (
    *("-p", "pytest_window_consumer", "-p", "no:cacheprovider"),
    *("-W", "error", "--strict-markers"),
)


class Pytest:
    """Runs pytest in a directory, as a user does; only the plugin under test is loaded."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.write("shop.py", SHOP)
        self.write("workers.yaml", WORKERS)

    def write(self, name: str, text: str) -> None:
        file = self.directory / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        ours = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        paths = f"{self.directory}{os.pathsep}{ROOT}"
        return subprocess.run(
            [sys.executable, "-m", "pytest", *OPTIONS, *arguments],
            cwd=self.directory,
            env={**ours, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def outcomes(self) -> dict[str, int]:
        """Run all tests and return how many passed, failed and were wrong before they began."""
        done = self.run()
        assert done.returncode in {0, 1}, done.stdout + done.stderr
        last = done.stdout.splitlines()[-1]
        return {
            what: int(count)
            for count, what in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])
        }

    def fails(self) -> str:
        done = self.run()
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def users(tmp_path: Path) -> Pytest:
    return Pytest(tmp_path)


def is_done(amount: int, before: str = "") -> str:
    head, body = IS_DONE.replace("AMOUNT", str(amount)).split("\n\n\n")
    return f"{head}\n\n\n{before}{body}"


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"window_consumer": "pytest_window_consumer"}
    assert not [each for each in project["dependencies"] if "pytest" in each]


def test_the_plugin_alone_does_not_import_the_framework() -> None:
    code = "import sys, pytest_window_consumer; sys.exit('window_consumer' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_the_application_of_the_ini_file_runs(users: Pytest) -> None:
    users.write("pytest.ini", "[pytest]\nwindow_consumer_app = shop:app\n")
    users.write("tests/test_shop.py", is_done(5))
    assert users.outcomes() == {"passed": 1}


def test_the_ini_file_names_configuration_and_overrides(users: Pytest) -> None:
    users.write(
        "pytest.ini",
        """[pytest]
window_consumer_app = shop:app
window_consumer_config = deploy/kafka.yaml
window_consumer_overrides =
    workers.charge.concurrency=3
""",
    )
    users.write("deploy/kafka.yaml", "workers: {charge: {memory: 8MiB}}")
    users.write(
        "test_shop.py",
        """
def test_config(wc_app):
    config = wc_app.plan.workers[0].config
    assert (config.concurrency, config.memory) == (3, 8 * 1024**2)
""",
    )
    assert users.outcomes() == {"passed": 1}


def test_a_marker_says_what_runs_and_the_nearer_one_wins(users: Pytest) -> None:
    users.write("other.yaml", "workers: {charge: {concurrency: 2}}")
    users.write(
        "test_shop.py",
        """
import pytest

pytestmark = pytest.mark.window_consumer("shop:app", config="other.yaml", topics={"orders": 3})


@pytest.mark.window_consumer(overrides=["workers.charge.memory=8MiB"], topics={"orders": 7})
def test_config(wc_app):
    config = wc_app.plan.workers[0].config
    assert (config.concurrency, config.memory) == (2, 8 * 1024**2)
    assert wc_app.broker.topics.partitions("orders") == 7
""",
    )
    assert users.outcomes() == {"passed": 1}


def test_fixtures_of_the_users_say_what_runs(users: Pytest) -> None:
    users.write(
        "conftest.py",
        """
import pytest
import shop


@pytest.fixture
def wc_application():
    return shop.app


@pytest.fixture
def wc_config():
    return {"workers": {"charge": {"retry": {"when_spent": "drop"}}}}
""",
    )
    users.write(
        "test_shop.py",
        """
from window_consumer.testing import DROPPED


def test_charge(wc_app):
    assert wc_app.send("orders", {"amount": 0}).outcome is DROPPED
""",
    )
    assert users.outcomes() == {"passed": 1}


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        (is_done(0), "DEAD_LETTERED after 1 call; the last raised Fatal: nothing to charge at"),
        (is_done(1).replace("orders", "order"), "'order'"),
    ],
    ids=["a handler that raises", "an unknown topic"],
)
def test_what_is_wrong_fails_the_users_test_and_is_reported(
    users: Pytest, source: str, reported: str
) -> None:
    users.write("pytest.ini", "[pytest]\nwindow_consumer_app = shop:app\n")
    users.write("test_shop.py", source)
    assert reported in users.fails()


def test_a_test_that_does_not_say_what_to_run_is_refused_with_how(users: Pytest) -> None:
    users.write("test_shop.py", is_done(1))
    run = users.run()
    assert "window_consumer_app = shop:app" in run.stdout
    assert run.returncode == 1


@pytest.mark.parametrize(
    ("marker", "reported"),
    [
        ('"shop:ap"', "'ap'; it has app"),
        ('"shop:app", config="nowhere.yaml"', "nowhere.yaml"),
        ('"shop:app", confg="x"', "confg"),
    ],
)
def test_a_marker_that_is_wrong_is_reported(users: Pytest, marker: str, reported: str) -> None:
    mark = f"@pytest.mark.window_consumer({marker})\n"
    users.write("test_shop.py", "import pytest\n" + is_done(1, mark))
    assert reported in users.fails()


def test_each_test_has_an_application_of_its_own(users: Pytest) -> None:
    users.write("pytest.ini", "[pytest]\nwindow_consumer_app = shop:app\n")
    users.write("test_a.py", is_done(1) + "    assert len(wc_app.records) == 1\n")
    users.write("test_b.py", is_done(1) + "    assert len(wc_app.records) == 1\n")
    assert users.outcomes() == {"passed": 2}
