"""The admin address as a feature, served only if configured: its packages are optional."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, ClassVar

from window_consumer.admin.config import AdminConfig, conflicts
from window_consumer.admin.groups import GroupStatuses
from window_consumer.config.options import Section
from window_consumer.config.sections.listening import certificate_problems
from window_consumer.model.errors import ConfigError, UsageError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AppStart, Feature, PageContext, Pages
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.runtime.replica import ReplicaSockets
from window_consumer.runtime.running import Running

if TYPE_CHECKING:
    from window_consumer.admin.board import WorkersBoard
    from window_consumer.admin.group_page import GroupPages

_MISSING = (
    "admin.listen needs the extra web, which is not installed: pip install 'window-consumer[web]'"
)


class RunningAdmin(RunningFeature):
    """The board that the address shows."""

    def __init__(self, board: WorkersBoard):
        self._board = board

    def attach(self, running: Running) -> None:
        """Show these workers."""
        self._board.attach(running)


class AdminFeature(Feature):
    """The admin address, its page and the commands that query it."""

    name = "admin"
    section = Section(
        "admin",
        AdminConfig,
        "Where people watch the live window and pause workers.",
        conflicts,
        works_alone=lambda admin: admin.pipeline is not None,
    )
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "console": "window_consumer.admin.commands.console:console_command",
            "top": "window_consumer.admin.commands.top:top_command",
            "status": "window_consumer.admin.commands.status:status_command",
            "doctor": "window_consumer.admin.commands.doctor:doctor_command",
            "skip": "window_consumer.admin.commands.intervene:skip_command",
            "dead-letter": "window_consumer.admin.commands.intervene:dead_letter_command",
            "pause": "window_consumer.admin.commands.pause:pause_command",
            "resume": "window_consumer.admin.commands.pause:resume_command",
            "concurrency": "window_consumer.admin.commands.concurrency:concurrency_command",
            "breaker": "window_consumer.admin.commands.breaker:breaker_command",
        }
    )

    def pages(self, context: PageContext) -> GroupPages | None:
        """Return the page of the groups."""
        from window_consumer.admin.group_page import GroupPages  # noqa: PLC0415 - an optional extra

        return GroupPages(GroupStatuses(context).all)

    def refuse(self, plan: AppPlan) -> None:
        """Check the certificate and key, if any; raise ConfigError if they are unusable."""
        problems = []
        admin = plan.config.section(AdminConfig)
        for key, why in certificate_problems(admin.tls, Path(plan.file).parent):
            path = ("admin", "tls", *filter(None, [key]))
            problems.append(f"{plan.where(*path)}: {'.'.join(path)}: {why}")
        if problems:
            raise ConfigError("\n".join(problems))

    @contextmanager
    def starting(self, start: AppStart) -> Iterator[RunningFeature | None]:
        """Serve the configured address.

        A replica is queried by its parent. Raises UsageError if the extra is missing, or the
        address is unavailable.
        """
        plan, replica = start.plan, start.replica
        socket = None if replica is None else replica.admin_socket
        admin = plan.config.section(AdminConfig)
        if admin.address is None or (replica is not None and socket is None):
            yield None
            return
        server = server_module()
        from window_consumer.admin.board import WorkersBoard  # noqa: PLC0415 - an optional extra

        self.refuse(plan)
        number = "" if replica is None else replica.number
        board = WorkersBoard(number, plan.mask, plan.config.mask_rules)
        if socket is not None:
            serving = server.serving_on(board, socket, values=admin.values)
        else:
            serving = server.serving(board, admin, Path(plan.file).parent, start.pages())
        with serving:
            yield RunningAdmin(board)

    def asks_replicas(self, plan: AppPlan) -> bool:
        """Return whether there is an address to show the replicas at."""
        return plan.config.section(AdminConfig).address is not None

    @contextmanager
    def beside_replicas(
        self,
        plan: AppPlan,
        sockets: Mapping[str, ReplicaSockets],
        pages: Callable[[], Mapping[str, Pages]],
    ) -> Iterator[None]:
        """Serve the configured address for all replicas. Raises UsageError like ``starting``."""
        admin = plan.config.section(AdminConfig)
        if admin.address is None:
            yield
            return
        server = server_module()
        from window_consumer.admin.replicas import ReplicasBoard  # noqa: PLC0415 - an optional extra

        self.refuse(plan)
        board = ReplicasBoard({n: each.admin for n, each in sockets.items()}, len(plan.workers))
        with server.serving(board, admin, Path(plan.file).parent, pages()):
            yield


def server_module() -> ModuleType:
    """Return ``admin.server``; raises UsageError if the extra is missing."""
    try:
        from window_consumer.admin import server  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise UsageError(_MISSING) from error
    return server
