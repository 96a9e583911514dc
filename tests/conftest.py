"""Brokers and names for tests.

A test that requests ``kafka`` or ``connectors`` gets the mark of that name.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import shared_kafka, topics
from tests.commands import Commands
from tests.golden_texts import Golden, golden_of
from tests.shared_kafka import NEVER_FENCED
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.errors import WindowConsumerError
from window_consumer.spark import jars, java
from window_consumer.testing.real_kafka import KafkaUnavailableError, RealKafka
from window_consumer.testing.real_postgres import PostgresUnavailableError, RealPostgres

MakeTopic = Callable[..., str]
WITH_SPARK = {"backfill", "pipeline"}
"""Folders whose tests need Spark; they run apart from the others."""
ConsumerOf = Callable[..., AbstractContextManager[Consumer]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that rewrites golden texts."""
    parser.addoption("--golden", action="store_true", help="write golden texts anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    """``golden(text)`` compares what a user reads with ``golden/<test file>.txt``."""
    texts = golden_of(request)
    yield texts
    texts.finish()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a real Kafka, shared or their own, and tests that need Spark."""
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if "kafka" in item.fixturenames or starts_its_own(item):
            item.add_marker(pytest.mark.kafka)
        if "connectors" in item.fixturenames:
            item.add_marker(pytest.mark.connectors)
        if WITH_SPARK.intersection(item.path.relative_to(item.config.rootpath).parts):
            item.add_marker(pytest.mark.spark)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print new seeds for planted bugs that their recorded seed no longer shows."""
    reports = terminalreporter.getreports("passed")
    seeds = [
        value
        for report in reports
        for name, value in report.user_properties
        if name == "first_seeds.json"
    ]
    if seeds:
        terminalreporter.section("to record in tests/simulation/first_seeds.json")
        for each in sorted(map(str, seeds)):
            terminalreporter.line(each)


def starts_its_own(item: pytest.Function) -> bool:
    """Return whether the code of a test, or of its fixtures but ``kafka``, names RealKafka."""
    fixtures = item._fixtureinfo.name2fixturedefs
    makers = [each.func for name in fixtures.keys() - {"kafka"} for each in fixtures[name]]
    return any(RealKafka.__name__ in maker.__code__.co_names for maker in (item.function, *makers))


MAY_BE_SKIPPED = {"this machine has no IPv6", "gives files away, which root alone may"}
"""What CI may lack, because tests/parts.py cannot install it."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped test into a failure in CI."""
    return run_in_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a skipped file into a failure in CI."""
    return run_in_ci((yield))


Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def run_in_ci(report: Report) -> Report:
    """Turn a skip in CI into a failure, except for the allowed reasons."""
    if os.environ.get("CI") and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason not in MAY_BE_SKIPPED:
            report.outcome = "failed"
            report.longrepr = f"CI has to run every test, and this one is skipped: {reason}"
    return report


@pytest.fixture(scope="session")
def kafka(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[RealKafka]:
    """The real Kafka of a run: leave it running, and use unique names."""
    shared = getattr(request.config, "workerinput", {}).get(shared_kafka.PLACE)
    try:
        if shared is None:
            started = RealKafka.start(tmp_path_factory.mktemp("kafka"), NEVER_FENCED)
        else:
            started = shared_kafka.attach(Path(shared))
    except KafkaUnavailableError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI has to have a real Kafka: {error}")
        pytest.skip(f"no real Kafka: {error}")
    with started:
        yield started


@contextmanager
def directory_of_postgres() -> Iterator[Path]:
    """Yield a directory for a server that runs as another user.

    Not pytest's: each run of pytest closes the directory of all runs to other users.
    """
    with TemporaryDirectory(prefix="wc-postgres-") as directory:
        yield Path(directory)


@pytest.fixture
def postgres_directory() -> Iterator[Path]:
    """A directory for a server of the test's own."""
    with directory_of_postgres() as directory:
        yield directory


@pytest.fixture(scope="session")
def postgres() -> Iterator[RealPostgres]:
    """The PostgreSQL of a test process: leave it running, and create separate databases."""
    with directory_of_postgres() as directory:
        try:
            started = RealPostgres.start(directory)
        except PostgresUnavailableError as error:
            if os.environ.get("CI"):
                pytest.fail(f"CI has to have PostgreSQL: {error}")
            pytest.skip(f"no PostgreSQL: {error}")
        with started:
            yield started


@pytest.fixture
def database(postgres: RealPostgres) -> str:
    """The URL of a new, empty database in PostgreSQL."""
    return postgres.create_database(f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="session")
def connectors() -> list[Path]:
    """Spark's connectors, fetched if missing, for tests and the commands that they start."""
    try:
        java.check()
        jars.fetch(jars.default_directory())
        return jars.ready(jars.default_directory())
    except WindowConsumerError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI has to have Spark's connectors: {error}")
        pytest.skip(f"no connectors for Spark: {error}")


@pytest.fixture
def embedded() -> Iterator[EmbeddedBroker]:
    """An embedded broker for this test, without topics."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    """The command line in a separate directory; commands still running at the end are killed."""
    with Commands(tmp_path) as commands:
        yield commands


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """Names for topics and groups that no other test has."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def make_topic(kafka: RealKafka, unique_name: Callable[[str], str]) -> MakeTopic:
    """``make_topic("orders", 4, {"cleanup.policy": "compact"})`` returns the new topic's name."""

    def make(prefix: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = unique_name(prefix)
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        topics.make(admin, topic)
        return name

    return make


@pytest.fixture
def consumer_of() -> ConsumerOf:
    """``with consumer_of(settings, **more) as consumer``: the client's own, in group "tests"."""

    @contextmanager
    def consumer_of(settings: Mapping[str, Any], **more: Any) -> Iterator[Consumer]:
        group = {"group.id": "tests", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"log_level": 0, **group, **settings, **more})
        try:
            yield consumer
        finally:
            consumer.close()

    return consumer_of
