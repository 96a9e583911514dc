"""What a container has to give a process, and what it gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_texts import Golden
from window_consumer.app.limits.process import ProcessBounds, container_limit

GIB = 2**30


def group(root: Path, path: str, name: str, text: str) -> None:
    directory = root / path
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(f"{text}\n")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "own"


def test_a_container_with_a_namespace_of_its_own_has_its_limit_at_the_root(
    tmp_path: Path, own: Path
) -> None:
    own.write_text("0::/\n")
    group(tmp_path, "", "memory.max", str(GIB))
    assert container_limit(tmp_path, own) == GIB


def test_the_nearest_limit_on_the_way_up_counts(tmp_path: Path, own: Path) -> None:
    own.write_text("0::/kubepods/pod7/main\n")
    group(tmp_path, "kubepods/pod7/main", "memory.max", "max")
    group(tmp_path, "kubepods/pod7", "memory.max", str(GIB))
    group(tmp_path, "kubepods", "memory.max", str(8 * GIB))
    assert container_limit(tmp_path, own) == GIB


def test_control_groups_of_version_1_are_read(tmp_path: Path, own: Path) -> None:
    own.write_text("9:cpu:/other\n8:memory:/docker/7\n")
    group(tmp_path, "memory/docker/7", "memory.limit_in_bytes", str(GIB))
    group(tmp_path, "memory", "memory.limit_in_bytes", "9223372036854771712")
    assert container_limit(tmp_path, own) == GIB


@pytest.mark.parametrize("text", ["max", "9223372036854771712", "", "much"])
def test_without_a_limit_there_is_none(tmp_path: Path, own: Path, text: str) -> None:
    group(tmp_path, "", "memory.max", text)
    assert container_limit(tmp_path, own) is None


def test_what_does_not_fit_is_warned_of(golden: Golden) -> None:
    assert list(ProcessBounds(27, GIB, None).warnings) == []
    assert list(ProcessBounds(27, GIB, GIB).warnings) == []
    (warning,) = ProcessBounds(27, GIB + 1, GIB).warnings
    golden(warning)
