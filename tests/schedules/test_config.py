"""The section ``schedules``: what it refuses, and where it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kernel import FEATURES
from window_consumer import App
from window_consumer.config import load
from window_consumer.config.json_schema import json_schema
from window_consumer.model.errors import ConfigError
from window_consumer.schedules.config import ScheduleConfig

NIGHTLY = {"cron": "0 2 * * *", "to": "reports"}

app = App("shop")


def load_file(folder: Path, *overrides: str, **sections: Any) -> Any:
    file = folder / "workers.yaml"
    file.write_text(yaml.safe_dump({"delay": {"to": ["orders"]}, **sections}, sort_keys=False))
    return load(file, {}, overrides, sections=FEATURES.sections).config.named(ScheduleConfig)


def keys_of(error: pytest.ExceptionInfo[ConfigError]) -> list[str]:
    return [each.key for each in error.value.wrong]


def test_a_schedule_has_what_the_file_says(tmp_path: Path) -> None:
    given = {
        **NIGHTLY,
        "timezone": "Europe/Berlin",
        "key": "nightly",
        "value": '{"kind": "nightly"}',
        "headers": {"source": "cron"},
        "missed": "all",
    }
    found = load_file(tmp_path, schedules={"nightly-report": given, "other": NIGHTLY})
    assert list(found) == ["nightly-report", "other"]
    assert found["nightly-report"].headers == (("source", "cron"),)
    assert found["nightly-report"].value == '{"kind": "nightly"}'
    assert found["other"].missed == "last"


def test_a_schedule_can_be_set_on_the_command_line(tmp_path: Path) -> None:
    found = load_file(tmp_path, "schedules.job.cron=5 * * * *", schedules={"job": NIGHTLY})
    assert found["job"].cron == "5 * * * *"


def test_a_delay_service_with_a_wrong_key_is_not_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_file(
            tmp_path,
            delay={"to": ["orders"], "precision": "exactly"},
            schedules={"nightly-report": NIGHTLY},
        )
    assert keys_of(error) == ["delay.precision"]


@pytest.mark.parametrize(
    ("schedule", "key"),
    [
        ({"cron": "61 2 * * *"}, "cron"),
        ({"cron": "@daily"}, "cron"),
        ({"cron": 5}, "cron"),
        ({"timezone": "Europe/Nowhere"}, "timezone"),
        ({"to": "no topic"}, "to"),
        ({"to": None}, "to"),
        ({"to": "wc.delay.5s"}, "to"),
        ({"to": "wc.delay"}, "to"),
        ({"to": "shop.orders.dlq"}, "to"),
        ({"to": "shop.orders.retry.10s"}, "to"),
        ({"value": {"kind": "nightly"}}, "value"),
        ({"key": 5}, "key"),
        ({"missed": "every"}, "missed"),
        ({"headers": {"wc-id": "5"}}, "headers.wc-id"),
        ({"headers": ["a"]}, "headers"),
        ({"crom": "5 * * * *"}, "crom"),
    ],
)
def test_a_wrong_key_is_named(schedule: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_file(tmp_path, schedules={"job": {**NIGHTLY, **schedule}})
    assert keys_of(error) == [f"schedules.job.{key}"]


@pytest.mark.parametrize("missing", ["cron", "to"])
def test_what_is_required_is_missed(missing: str, tmp_path: Path) -> None:
    given = {key: value for key, value in NIGHTLY.items() if key != missing}
    with pytest.raises(ConfigError) as error:
        load_file(tmp_path, schedules={"job": given})
    assert keys_of(error) == [f"schedules.job.{missing}"]


@pytest.mark.parametrize("name", ["a.b", "a b", "a/b", ""])
def test_a_name_that_ids_could_not_hold_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load_file(tmp_path, schedules={name: NIGHTLY})


def test_a_list_of_schedules_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_file(tmp_path, schedules=[NIGHTLY])
    assert keys_of(error) == ["schedules"]


def test_schedules_need_a_delay_service(tmp_path: Path) -> None:
    workers = {"delay": {"topics": ["orders"], "group": "shop"}}
    with pytest.raises(ConfigError) as error:
        load_file(tmp_path, schedules={"job": NIGHTLY}, delay=None, workers=workers)
    assert keys_of(error) == ["schedules"]


def test_editors_know_its_keys() -> None:
    schema = json_schema(FEATURES.sections)["properties"]["schedules"]
    assert "cron" in schema["additionalProperties"]["properties"]
