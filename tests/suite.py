"""The whole suite, as ``make test`` runs it: ``python -m tests.suite [consumer|spark]``.

``--what`` only prints what ``make test`` runs.

A test that fails is run three more times alone. If it passes each time the suite goes on and names
it at the end under ``unstable``: fix it before anything else. More than two such tests fail the
suite, and so does each failing test of the rules, whose result depends on no machine.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from attrs import Factory, define

from tests import suite_plugin

ROOT = Path(__file__).parents[1]

RERUNS = 3
MOST_UNSTABLE = 2
NEVER_UNSTABLE = ("tests/engine/", "tests/model/", "tests/simulation/")
"""Their tests have no threads, brokers or clocks: a failure there is a bug."""

WHAT = """\
make test runs everything:
  tests    without a broker, with the embedded one and with Apache Kafka (Java, Maven);
           with Spark and its connectors, PostgreSQL, Chromium, promtool, Go, Node.js, zsh and fish;
           with faust and Spring Kafka, whose groups a worker takes over
  checks   ruff, ruff format, mypy --strict, import-linter
It fetches what is missing where it may, names what it may not fetch, and skips those tests.
Less: make test-consumer (no Spark), make test-spark (only Spark), make lint (only the checks).
"""

_PYTEST_FAILED = 1

PLUGIN = ("-p", "tests.suite_plugin")
PAIRS = (*PLUGIN, "-m", "calm", "-n", "2", *suite_plugin.files_marked(ROOT, "calm"))
ALONE = (*PLUGIN, "-m", "alone", *suite_plugin.files_marked(ROOT, "alone"))
"""They read no other files: that takes ten seconds, in which nothing else runs."""
STAGES = {
    "consumer": ((*PLUGIN, "-m", "not (alone or calm or spark)", "-n", "4"), PAIRS, ALONE),
    "spark": ((*PLUGIN, "-m", "spark", "-n", "2", "tests/backfill", "tests/pipeline"),),
    # Together: while tests of the consumer wait, Spark computes. Two cores are idle for a third of
    # the time with four processes.
    "all": ((*PLUGIN, "-m", "not (alone or calm)", "-n", "6"), PAIRS, ALONE),
}


@define
class Suite:
    """Runs stages of pytest in a directory, and knows which tests were unstable."""

    directory: Path = ROOT
    unstable: list[str] = Factory(list)

    def run(self, stages: Sequence[Sequence[str]]) -> int:
        """Run stages until one fails; return the exit code."""
        code = 0
        for stage in stages:
            began, before_s = time.monotonic(), _processor_s()
            code = self._stage(stage)
            used_s = _processor_s() - before_s
            print(f"{time.monotonic() - began:.0f} s, {used_s:.0f} s of processor time", flush=True)
            if code:
                break
        if self.unstable:
            print("unstable: failed once, and passed alone three times")
            for test in self.unstable:
                print(f"  {test}")
        return code

    def _stage(self, arguments: Sequence[str]) -> int:
        with tempfile.TemporaryDirectory(prefix="wc-suite-") as cache:
            code = self._pytest([*arguments, "-o", f"cache_dir={cache}"])
            if code != _PYTEST_FAILED:
                return code
            failed = _failed(Path(cache))
        if why := self._why_final(failed):
            print(f"not run again: {why}")
            return code
        for test in failed:
            for again in range(1, RERUNS + 1):
                print(f"\n{test} failed: alone, time {again} of {RERUNS}", flush=True)
                if self._pytest([test, "-p", "no:cacheprovider"]):
                    return code
            self.unstable.append(test)
        return 0

    def _why_final(self, failed: Sequence[str]) -> str:
        """Return why failures are final; empty if their tests shall run again."""
        if not failed:
            return "pytest named no test"
        if files := [test for test in failed if "::" not in test]:
            return f"not a test: {', '.join(files)}"
        if rules := [test for test in failed if test.startswith(NEVER_UNSTABLE)]:
            return f"the rules depend on no machine: {', '.join(rules)}"
        if len(failed) + len(self.unstable) > MOST_UNSTABLE:
            return f"more than {MOST_UNSTABLE} tests failed"
        return ""

    def _pytest(self, arguments: Sequence[str]) -> int:
        command = [sys.executable, "-m", "pytest", *arguments]
        return subprocess.run(command, cwd=self.directory, check=False).returncode


def _processor_s() -> float:
    """Return the processor time of ended processes, and of what they started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _failed(cache: Path) -> list[str]:
    """Return the tests, or files, that failed in a run with this cache."""
    path = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def main() -> int:
    """Run the stages that are named, all by default."""
    if sys.argv[1:] == ["--what"]:
        print(WHAT)
        return 0
    began = time.monotonic()
    names = sys.argv[1:] or ["all"]
    if unknown := [name for name in names if name not in STAGES]:
        print(f"{unknown[0]}: expected one of {', '.join(STAGES)}", file=sys.stderr)
        return 2
    code = Suite().run([stage for name in names for stage in STAGES[name]])
    print(f"{', '.join(names)}: {'failed' if code else 'passed'}, {time.monotonic() - began:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
