"""What ``check`` works out of handlers with once: how long ids are kept, and the table's size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
import yaml

from window_consumer import App, Record
from window_consumer.app.limits import ONCE_ROW_BYTES, bounds_of
from window_consumer.database import Once
from window_consumer.plan.app_plan import AppPlan

FORTNIGHT_S = 14 * 86_400.0


def planned(directory: Path, keep: str | None = None, **worker: Any) -> AppPlan:
    app = App("shop")
    given: dict[str, Any] = {} if keep is None else {"keep": keep}

    @app.handler("orders", group="shop", once=Once(sa.create_engine("sqlite://"), **given))
    def place(_order: Record) -> None:
        """Do nothing."""

    file = directory / "workers.yaml"
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    file.write_text(yaml.safe_dump({"kafka": kafka, "workers": {"place": worker}}))
    return app.plan(file)


def test_check_warns_of_nothing_by_default(tmp_path: Path) -> None:
    """The default of keep fits the default ladder and the default retention of dead letters."""
    for retry in ({}, {"levels": ["10s", "1m", "10m", "1h"]}):
        plan = planned(tmp_path, retry=retry)
        retention_s = plan.config.topics.dlq_retention
        assert retention_s == FORTNIGHT_S
        assert bounds_of(plan.workers[0], dlq_retention_s=retention_s).warnings == ()


def test_a_warning_writes_long_durations_as_people_do(tmp_path: Path) -> None:
    (worker,) = planned(tmp_path, "1h").workers
    (warning,) = bounds_of(worker, dlq_retention_s=FORTNIGHT_S).warnings
    assert "(14d)" in warning


def test_check_warns_of_a_short_keep_and_works_out_the_size(tmp_path: Path) -> None:
    (worker,) = planned(tmp_path, "1h").workers
    bounds = bounds_of(worker, dlq_retention_s=7200.0, rate=100.0)
    assert any("once.keep 1h" in warning for warning in bounds.warnings)
    assert bounds.once_table_bytes == 3600 * 100 * ONCE_ROW_BYTES
    (calm,) = planned(tmp_path, "9d").workers
    assert not bounds_of(calm, dlq_retention_s=7200.0).warnings
