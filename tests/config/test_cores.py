"""How many cores there are to use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from window_consumer.config.cores import usable_cores


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)


def group(directory: Path, name: str, files: dict[str, str], membership: str) -> int:
    """Return the number of cores with such a control group."""
    (directory / "groups" / name).mkdir(parents=True)
    for file, text in files.items():
        (directory / "groups" / name / file).write_text(text)
    (directory / "membership").write_text(membership)
    return usable_cores(directory / "membership", directory / "groups")


V1 = "4:memory:/job\n3:cpu,cpuacct:/job/inner\n"


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("name", "files", "membership", "cores"),
    [
        ("", {"cpu.max": "150000 100000\n"}, "0::/\n", 2),
        ("", {"cpu.max": "50000 100000\n"}, "0::/\n", 1),
        ("", {"cpu.max": "max 100000\n"}, "0::/\n", 8),
        ("", {"cpu.max": "1600000 100000\n"}, "0::/\n", 8),
        ("", {"cpu.max": "300000 100000\n"}, "0::/pods/shop/inner\n", 3),
        ("pods/shop", {"cpu.max": "300000 100000\n"}, "0::/pods/shop/inner\n", 3),
        ("cpu/job", {"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"}, V1, 2),
        ("cpu", {"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"}, V1, 2),
        ("cpu", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, V1, 8),
        ("", {}, "", 8),
        ("", {}, "unheard of\n", 8),
    ],
)
def test_the_time_that_a_control_group_is_given_counts(
    tmp_path: Path, name: str, files: dict[str, str], membership: str, cores: int
) -> None:
    assert group(tmp_path, name, files, membership) == cores


def test_only_cores_count_that_the_process_may_run_on(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert usable_cores(nowhere, nowhere) == len(os.sched_getaffinity(0))
