"""The services in Go and Node.js of examples/push, behind a worker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import frozen

from tests.push.worker import pushing
from window_consumer import App
from window_consumer.testing import DEAD_LETTERED, DONE, TestApp

EXAMPLES = Path(__file__).parents[2] / "examples" / "push"
SECRET = "whsec_" + b64encode(os.urandom(32)).decode()

Built = Callable[[], list[str]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Return the command of the service in Go."""
    program = tmp_path_factory.mktemp("go") / "service"

    def build() -> list[str]:
        command = [tool("go"), "build", "-o", str(program), str(EXAMPLES / "main.go")]
        # Without C there is less to compile.
        plain = {"GO111MODULE": "off", "CGO_ENABLED": "0"}
        subprocess.run(command, check=True, env={**os.environ, **plain})
        return [str(program)]

    return build


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: tests/parts.py names its package")
    return found


@frozen
class Running:
    """A service that runs."""

    url: str
    process: subprocess.Popen[str]

    def charged(self) -> list[str]:
        """Stop it; return what it has charged."""
        self.process.terminate()
        out, _ = self.process.communicate()
        return sorted(re.findall(r"^charged (\S+) for", out, re.MULTILINE))


@contextmanager
def started(language: str, built: Built) -> Iterator[Running]:
    """Run the example in a language."""
    command = built() if language == "go" else [tool("node"), str(EXAMPLES / "service.mjs")]
    environment = {**os.environ, "HOOK_SECRET": SECRET, "PORT": "0"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        try:
            yield Running(url, process)
        finally:
            process.kill()


def worker_before(service: Running, secret: str = SECRET) -> TestApp:
    """Return the worker of examples/push, in memory."""
    overrides = (f"workers.orders.http.url={service.url}", "workers.orders.retry.attempts=1")
    os_environ = {"HOOK_SECRET": secret, "KAFKA_BOOTSTRAP": "127.0.0.1:1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in os_environ.items():
            patch.setenv(name, value)
        topics = {"orders": 4, "order-events": 1}
        file = EXAMPLES / "workers.yaml"
        return TestApp(App("push"), file, overrides=overrides, topics=topics)


@pytest.mark.parametrize("language", ["go", "node"])
def test_a_service_charges_each_order_once_and_tells_of_it(language: str, built: Built) -> None:
    with started(language, built) as service:
        with worker_before(service) as worker:
            orders = worker.send_many("orders", [{"amount": each} for each in (7, 8, 9.5)])
            twice = {"wc-id": "order-7"}
            again = [worker.send("orders", {"amount": 70}, headers=twice) for _ in range(2)]
            wrong = worker.send("orders", "no order", key="other")
            assert {each.outcome for each in (*orders, *again)} == {DONE}
            assert wrong.outcome is DEAD_LETTERED
            assert [each.topic for each in worker.produced] == ["order-events"] * 5
        assert service.charged() == ["7", "70", "8", "9.5"]


@pytest.mark.parametrize("language", ["go", "node"])
def test_a_service_refuses_what_is_signed_otherwise(language: str, built: Built) -> None:
    with started(language, built) as service:
        with pushing(service.url, retry={"attempts": 1}) as worker:
            worker.send("orders", {"amount": 7})
            (letter,) = worker.dead_letters
        assert re.search(r"\b401\b", letter.error_message or "")
        assert service.charged() == []
