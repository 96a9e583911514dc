"""A program that uses Celery: a sender of tasks, and the worker that runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from attrs import define, field

from tests.sqs.endpoint import ACCESS_KEY, SECRET

DEADLINE_S = 120.0

ROOT = Path(__file__).parents[2]

_SEND = """
from tests.sqs.tasks import charge, mail
for number in range(12):
    charge.delay(number)
for number in range(4):
    for person in ("ann", "bob"):
        mail.apply_async((person, number), MessageGroupId=person)
"""

_OPTIONS = ("--pool", "solo", "--queues", "orders,mails.fifo", "--loglevel", "INFO")


@define
class CeleryProgram:
    """Sends 12 tasks to `orders` and 4 for each of two persons to `mails.fifo`, and runs them."""

    url: str
    directory: Path
    predefined: bool = field(kw_only=True, default=False)
    _said: str = field(init=False, default="")

    @property
    def _environment(self) -> dict[str, str]:
        broker = f"sqs://{ACCESS_KEY}:{quote(SECRET)}@{urlsplit(self.url).netloc}//"
        chosen = {"PREDEFINED": "yes"} if self.predefined else {}
        given = {"PYTHONPATH": str(ROOT), "ENDPOINT": self.url, "BROKER": broker}
        return {**os.environ, **given, **chosen, "DONE": str(self.directory / "done")}

    def send_tasks(self) -> None:
        command = [sys.executable, "-c", _SEND]
        subprocess.run(command, env=self._environment, check=True, timeout=DEADLINE_S)

    @contextmanager
    def working(self) -> Iterator[subprocess.Popen[str]]:
        """Run the worker within the context."""
        with subprocess.Popen(
            [sys.executable, "-m", "celery", "--app", "tests.sqs.tasks", "worker", *_OPTIONS],
            env=self._environment,
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as worker:
            try:
                yield worker
            finally:
                worker.terminate()
                self._said, _ = worker.communicate(timeout=DEADLINE_S)

    def check_all_done(self) -> None:
        """Check that each task ran once, and those of a person in order."""
        done = self.directory / "done"
        lines = done.read_text("utf-8").splitlines() if done.exists() else []
        mails = {name: [f"mail {name} {number}" for number in range(4)] for name in ("ann", "bob")}
        expected = [*(f"charge {number}" for number in range(12)), *mails["ann"], *mails["bob"]]
        assert sorted(lines) == sorted(expected), self._said
        for name, wanted in mails.items():
            assert [line for line in lines if line.startswith(f"mail {name}")] == wanted
