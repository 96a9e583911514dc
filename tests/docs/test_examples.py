"""Examples of the documentation are run: what stands in a block is what a reader gets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import PATIENCE_S, Commands
from tests.docs.pages import PAGES, ROOT, blocks, module_of
from window_consumer import App
from window_consumer.app.plan import make_plan

README = ROOT / "README.md"
HANDLERS = ROOT / "docs/handlers.md"
EXAMPLES = ROOT / "examples"

WITH_YAML = [page for page in PAGES if blocks(page, "yaml")]
WITH_TESTS = [ROOT / "docs/testing.md"]


ImportAsShop = Callable[[str], types.ModuleType]


@pytest.fixture
def import_as_shop(monkeypatch: pytest.MonkeyPatch) -> ImportAsShop:
    """Import source as the module ``shop``, until the end of the test."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")

    def import_(source: str) -> types.ModuleType:
        module = types.ModuleType("shop")
        monkeypatch.setitem(sys.modules, "shop", module)
        exec(compile(source, "shop.py", "exec"), vars(module))  # noqa: S102 - our own documentation
        return module

    return import_


def test_the_first_handler_stands_in_the_readme_as_it_is_in_the_examples() -> None:
    shown = {block.file: block.text for block in blocks(README, "python") + blocks(README, "yaml")}
    for name, text in shown.items():
        assert name is not None
        assert text == (EXAMPLES / name).read_text("utf-8"), name
    assert set(shown) == {"shop.py", "workers.yaml"}


def test_the_first_handler_runs_the_way_that_the_readme_says() -> None:
    with Commands(EXAMPLES) as commands:
        assert commands.run("check", "shop:app").code == 0
        broker = commands.start("broker", "--topic", "orders")
        broker.wait_for("127.0.0.1:")
        address = {"KAFKA_BOOTSTRAP": address_in(broker.said)}
        worker = commands.start("run", "shop:app", env=address)
        worker.wait_for("reads 4 partitions")
        send = [sys.executable, str(EXAMPLES / "send.py")]
        subprocess.run(send, env={**os.environ, **address}, check=True, timeout=PATIENCE_S)
        worker.wait_for("charged customer-", times=19)
        worker.wait_for("fatal, it leaves")
        ended = worker.stop()
        assert ended.code == 0
        assert "19 processed, 0 retried, 1 dead-lettered, 0 unfinished" in ended.said
        charged = re.findall(r"charged customer-1: (\d+)", ended.err)
        assert charged == ["10", "50", "90", "130", "170"]
        assert broker.stop().code == 0


def address_in(said: str) -> str:
    (address,) = [line for line in said.splitlines() if line.startswith("127.0.0.1:")]
    return address


def test_the_handlers_of_the_handlers_page_are_handlers(import_as_shop: ImportAsShop) -> None:
    module = import_as_shop(module_of(HANDLERS))
    apps = [value for value in vars(module).values() if isinstance(value, App)]
    assert [app.name for app in apps] == ["shop"]
    assert len(apps[0].handlers) > 1


@pytest.mark.parametrize("page", WITH_YAML, ids=[page.name for page in WITH_YAML])
def test_configurations_load_with_the_handlers_of_their_page(
    page: Path, import_as_shop: ImportAsShop, tmp_path: Path
) -> None:
    """A page without handlers of its own speaks of those of the handlers page."""
    source = module_of(page) or module_of(HANDLERS)
    if page == README:
        source = (EXAMPLES / "shop.py").read_text("utf-8")
    handlers = import_as_shop(source).app.handlers
    for number, block in enumerate(blocks(page, "yaml")):
        file = tmp_path / f"{number}.yaml"
        file.write_text(block.text)
        run = {name: spec for name, spec in handlers.items() if f"  {name}:\n" in _bare(block.text)}
        assert make_plan(config=file, handlers=run).workers


def _bare(yaml_text: str) -> str:
    return re.sub(r" +#.*", "", yaml_text)


@pytest.mark.parametrize("page", WITH_TESTS, ids=[page.name for page in WITH_TESTS])
def test_tests_that_the_documentation_shows_pass(page: Path, tmp_path: Path) -> None:
    for name in ("shop.py", "workers.yaml"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text("utf-8"))
    for number, block in enumerate(blocks(page, "python")):
        (tmp_path / (block.file or f"test_block_{number}.py")).write_text(block.text)
    ours = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={**ours, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
