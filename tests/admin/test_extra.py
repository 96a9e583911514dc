"""What is said where the extra is not installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

from window_consumer.admin.config import AdminConfig
from window_consumer.config import Config

ROOT = Path(__file__).parents[2]


def plan(listen: str | None) -> Any:
    admin = AdminConfig(listen=listen)
    return SimpleNamespace(config=Config(workers={}, features={AdminConfig: admin}), workers=())


def starting(listen: str | None) -> Any:
    return SimpleNamespace(plan=plan(listen), replica=None, pages=dict)


def without_the_extra(script: str) -> None:
    """Run a script that asserts by itself, in a process that cannot import the extra."""
    hidden = "import sys\nsys.modules['starlette'] = sys.modules['uvicorn'] = None\n"
    ended = subprocess.run(
        [sys.executable, "-c", hidden + dedent(script)],
        cwd=ROOT,
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr


def test_where_the_extra_is_missing_its_name_is_said() -> None:
    without_the_extra("""
        import pytest
        from tests.admin.test_extra import plan, starting
        from window_consumer.admin.feature import AdminFeature
        from window_consumer.model.errors import UsageError
        from window_consumer.runtime.replica import sockets_of

        raised = pytest.raises(UsageError, match=r"window-consumer\\[web\\]")
        with raised, AdminFeature().starting(starting("127.0.0.1:0")):
            pass
        sockets = {"1": sockets_of("there", "1")}
        with raised, AdminFeature().beside_replicas(plan("127.0.0.1:0"), sockets, dict):
            pass
        """)


def test_where_nothing_is_to_listen_the_extra_is_not_needed() -> None:
    without_the_extra("""
        from tests.admin.test_extra import plan, starting
        from window_consumer.admin.feature import AdminFeature

        with AdminFeature().beside_replicas(plan(None), {}, dict):
            pass
        with AdminFeature().starting(starting(None)) as running:
            assert running is None
        """)


def test_the_extra_takes_no_version_with_a_known_advisory_and_none_that_nobody_has_tried() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extra = {}
    for text in wanted["project"]["optional-dependencies"]["web"]:
        name = re.match(r"[a-z]+", text)
        assert name is not None
        extra[name[0]] = text.removeprefix(name[0])
    assert extra == {"starlette": ">=1.5.1", "uvicorn": ">=0.30,<0.55"}
    installed = [int(each) for each in metadata.version("uvicorn").split(".")[:2]]
    assert [0, 30] <= installed < [0, 55]
