"""Effects in a database as a feature: the outbox relay and the needs of ``once``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from window_consumer.config import Config
from window_consumer.config.options import Section
from window_consumer.database import require_sqlalchemy
from window_consumer.database.once.config import SECTION
from window_consumer.database.outbox.config import OutboxConfig, conflicts
from window_consumer.database.outbox.diagnosis import RELAY_FAILED, diagnose_outbox, relay_failures
from window_consumer.database.outbox.metrics import METRICS, OutboxFigures
from window_consumer.engine.guards.pause_rule import PauseRule
from window_consumer.kafka.client_log import ClientLog
from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.diagnosis import Diagnosis
from window_consumer.plan.feature import AclRule, AppStart, CheckFindings, Feature
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.plan.topics.prepared_worker import Prepared, PreparedWorker

if TYPE_CHECKING:
    from window_consumer.database.outbox.startup import RelayThread

# SQLAlchemy is optional: it is imported only if a database is configured.


class RunningDatabase(RunningFeature):
    """The relay of an application, if it has one."""

    def __init__(self, plan: AppPlan, away: Mapping[str, str]):
        """``away`` says why databases of ``once`` are away at the start, by worker."""
        self._config = plan.config
        self._away = away
        self._relay: RelayThread | None = None

    @contextmanager
    def beside(self, prepared: Prepared) -> Iterator[None]:
        """Run the relay.

        Raises UsageError for a database that cannot be used or lacks the table.
        """
        outbox = self._config.section(OutboxConfig)
        if outbox.database is None or not outbox.relay:
            yield
            return
        require_sqlalchemy("outbox")
        from window_consumer.database.outbox.startup import start_relay  # noqa: PLC0415 - see above

        self._relay = start_relay(self._config, prepared.workers[0].log, prepared.oauth_token)
        try:
            yield
        finally:
            self._relay.stop()

    def pause_rules_of(self, worker: PreparedWorker) -> Sequence[PauseRule]:
        """Return the rules that show an outage of the database of ``once``; they pause nothing."""
        if not has_once([worker.plan]):
            return ()
        from window_consumer.database.once.outage_rule import DatabaseOutageRule  # noqa: PLC0415 - see above

        name = worker.plan.config.name
        return [DatabaseOutageRule(name, self._away.get(name))]

    def figures(self) -> OutboxFigures | None:
        """Return the relay's counts."""
        return None if self._relay is None else self._relay.figures()

    def failure(self) -> str | None:
        """Return why the relay does not run."""
        figures = self.figures()
        failure = None if figures is None else figures.failure
        return None if failure is None else f"{RELAY_FAILED}{failure}"


class DatabaseFeature(Feature):
    """``once`` and the outbox."""

    name = "database"
    section = Section(
        "outbox",
        OutboxConfig,
        "The table whose committed rows become records, and how they are relayed.",
        conflicts,
        # The outbox of a program without workers is relayed by a command.
        works_alone=lambda outbox: outbox.database is not None,
    )
    worker_section = SECTION
    findings_key = "databases"
    metrics = METRICS
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "once": "window_consumer.database.commands.once_group:once_group",
            "outbox": "window_consumer.database.cli:outbox_group",
        }
    )

    def warnings(self, plan: AppPlan) -> Iterable[str]:
        """Return the warnings about databases of ``once``, without connecting."""
        if not has_once(plan.workers):
            return []
        from window_consumer.database.once.startup import once_workers, pool_warning, writer_warning  # noqa: PLC0415 - see above

        found = [
            warning_of(each)
            for each in once_workers(plan.config, plan.workers)
            for warning_of in (pool_warning, writer_warning)
        ]
        return dict.fromkeys(warning for warning in found if warning is not None)

    def findings(self, plan: AppPlan, timeout_s: float | None) -> Sequence[CheckFindings]:
        """Check the databases of ``once`` and the outbox, see ``databases_of``.

        Also check that the cluster has the transactions that the relay needs. Raises ConfigError.
        """
        outbox = plan.config.section(OutboxConfig)
        if not has_once(plan.workers) and outbox.database is None:
            return ()
        require_sqlalchemy("outbox")
        from window_consumer.database.findings import databases_of  # noqa: PLC0415 - see above
        from window_consumer.database.once.startup import once_workers  # noqa: PLC0415 - see above
        from window_consumer.database.outbox.startup import check_transactions  # noqa: PLC0415 - see above

        if outbox.database is not None and outbox.relay:
            check_transactions(plan.config, ClientLog(LOGGER.getChild("client"), plan.mask), None)
        return databases_of(plan.config, once_workers(plan.config, plan.workers), timeout_s)

    def rights(self, config: Config) -> Iterator[AclRule]:
        """Yield the relay's needs beyond WRITE on its rows' topics, which only rows name."""
        outbox = config.section(OutboxConfig)
        if outbox.database is not None:
            name, operations = f"wc-outbox-{outbox.table}-", ("WRITE", "DESCRIBE")
            yield AclRule("transactional-id", name, operations, "the outbox relay", is_prefix=True)

    @contextmanager
    def starting(self, start: AppStart) -> Iterator[RunningFeature]:
        """Check the databases of workers with ``once``, and run their cleaner.

        Raises UsageError for missing tables, for wrong columns, and for an outbox whose number of
        shards differs from the configuration.
        """
        plan = start.plan
        away: Mapping[str, str] = {}
        with ExitStack() as beside:
            if has_once(plan.workers):
                from window_consumer.database.once.startup import once_beside, once_workers  # noqa: PLC0415 - see above

                away = once_beside(once_workers(plan.config, plan.workers), beside)
            yield RunningDatabase(plan, away)

    def diagnose(self, config: Config, readiness: Callable[[], Sequence[str]]) -> Diagnosis:
        """Return the causes that hold up the rows of the outbox. Raises UsageError."""
        outbox = config.section(OutboxConfig)
        if outbox.database is None:
            return Diagnosis(())
        require_sqlalchemy("outbox")
        from window_consumer.database.outbox.startup import backlog_of  # noqa: PLC0415 - see above

        return diagnose_outbox(backlog_of(outbox), relay_failures(readiness()))


def has_once(workers: Sequence[PlannedWorker]) -> bool:
    """Return whether a worker has a handler with ``once``."""
    return any(route.handler.once for worker in workers for route in worker.routes)
