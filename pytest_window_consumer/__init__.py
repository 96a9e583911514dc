"""The pytest plugin: the fixture ``wc_app``, an application under test without Kafka.

A package of its own, because pytest imports its plugins at every start: importing window_consumer
(and Kafka's client with it) is left to the tests that ask for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from window_consumer.testing import TestApp

MARKER = "window_consumer"
APP = "window_consumer_app"
CONFIG = "window_consumer_config"
OVERRIDES = "window_consumer_overrides"

_OPTIONS = frozenset({"config", "only", "overrides", "topics", "partitions"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the keys of pytest's configuration."""
    parser.addini(APP, "The application of the fixture wc_app, as in shop:app.")
    parser.addini(CONFIG, "Its configuration, beside pytest's own file.", default="workers.yaml")
    parser.addini(
        OVERRIDES, "Overrides such as workers.charge.concurrency=1, one a line.", type="linelist"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f'{MARKER}("shop:app", config="workers.yaml", only=[...], overrides=[...], topics={{...}},'
        " partitions=4): what the fixture wc_app runs.",
    )


@pytest.fixture
def wc_application(request: pytest.FixtureRequest) -> Any:
    """The application that ``wc_app`` runs, an App or a text like ``shop:app``; to be overridden.

    By default that of the nearest marker, else that of pytest's configuration.
    """
    for marker in request.node.iter_markers(MARKER):
        if marker.args:
            return marker.args[0]
    named = request.config.getini(APP)
    if not named:
        pytest.fail(
            f"wc_app does not know what to run: mark the test with"
            f' @pytest.mark.{MARKER}("shop:app"), write {APP} = shop:app into pytest\'s'
            " configuration, or override the fixture wc_application",
            pytrace=False,
        )
    return named


@pytest.fixture
def wc_config(request: pytest.FixtureRequest) -> Any:
    """The configuration that ``wc_app`` runs with: a file, or a mapping; to be overridden.

    By default that of the nearest marker (beside the test's file), else that of pytest's
    configuration (beside pytest's own file).
    """
    marked = _marked(request).get("config")
    if marked is None:
        beside = request.config.inipath
        directory = request.config.rootpath if beside is None else beside.parent
        return directory / request.config.getini(CONFIG)
    if isinstance(marked, str | Path):
        return request.path.parent / marked
    return marked


@pytest.fixture
def wc_app(
    request: pytest.FixtureRequest, wc_application: Any, wc_config: Any
) -> Iterator[TestApp]:
    """A running ``window_consumer.testing.TestApp`` of its own for each test."""
    # Only on request, see above.
    from window_consumer.testing import TestApp  # noqa: PLC0415 - see above

    marked = _marked(request)
    options = {key: marked[key] for key in ("only", "topics", "partitions") if key in marked}
    overrides = [*request.config.getini(OVERRIDES), *marked.get("overrides", ())]
    with TestApp(wc_application, wc_config, overrides=overrides, **options) as app:
        yield app


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the markers' settings; for the same setting the nearer one wins."""
    marked: dict[str, Any] = {}
    for marker in request.node.iter_markers(MARKER):
        unknown = ", ".join(sorted(marker.kwargs.keys() - _OPTIONS))
        if unknown or len(marker.args) > 1:
            pytest.fail(
                f"@pytest.mark.{MARKER} takes the application and {', '.join(sorted(_OPTIONS))}"
                f" by name; got {unknown or marker.args[1:]}",
                pytrace=False,
            )
        marked = {**marker.kwargs, **marked}
    return marked
