"""Starts the live window beside the workers, only if configured: its packages are optional."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from window_consumer.config.sections.listening import certificate_problems
from window_consumer.model.errors import ConfigError, UsageError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.runtime.replica import ReplicaIdentity

if TYPE_CHECKING:
    from window_consumer.admin.answers import Pages
    from window_consumer.admin.board import WorkersBoard

_MISSING = (
    "admin.listen needs the extra web, which is not installed: pip install 'window-consumer[web]'"
)


def check_certificate(plan: AppPlan) -> None:
    """Check the certificate and key, if any; raise ConfigError if they are unusable."""
    problems = []
    for key, why in certificate_problems(plan.config.admin, Path(plan.file).parent):
        path = ("admin", "tls", *filter(None, [key]))
        problems.append(f"{plan.where(*path)}: {'.'.join(path)}: {why}")
    if problems:
        raise ConfigError("\n".join(problems))


def admin_board(
    plan: AppPlan,
    copy: ReplicaIdentity | None,
    beside: ExitStack,
    trace_pages: Callable[[AppPlan], Pages],
) -> WorkersBoard | None:
    """Serve the configured address until ``beside`` closes; return None if there is none.

    A replica is queried by its parent. Raises UsageError if the extra is missing, or the address is
    unavailable.
    """
    if plan.config.admin.address is None or (copy is not None and copy.admin_socket is None):
        return None
    try:
        from window_consumer.admin import server  # noqa: PLC0415 - an optional extra
        from window_consumer.admin.board import WorkersBoard  # noqa: PLC0415 - as above
    except ImportError as error:
        raise UsageError(_MISSING) from error
    check_certificate(plan)
    admin, rules = plan.config.admin, plan.config.mask_rules
    board = WorkersBoard("" if copy is None else copy.number, plan.mask, rules)
    trace = None if copy is not None else trace_pages(plan)
    if copy is not None and copy.admin_socket is not None:
        beside.enter_context(server.serving_on(board, copy.admin_socket, values=admin.values))
    else:
        beside.enter_context(server.serving(board, admin, Path(plan.file).parent, trace))
    return board


@contextmanager
def admin_of_copies(
    plan: AppPlan, sockets: Mapping[str, Path], trace_pages: Callable[[AppPlan], Pages]
) -> Iterator[None]:
    """Serve the configured address for all replicas; ``sockets`` are theirs, by number.

    Raises UsageError like ``admin_board``.
    """
    if plan.config.admin.address is None:
        yield
        return
    try:
        from window_consumer.admin import server  # noqa: PLC0415 - an optional extra
        from window_consumer.admin.replicas import ReplicasBoard  # noqa: PLC0415 - as above
    except ImportError as error:
        raise UsageError(_MISSING) from error
    check_certificate(plan)
    board = ReplicasBoard(sockets, len(plan.workers))
    with server.serving(board, plan.config.admin, Path(plan.file).parent, trace_pages(plan)):
        yield
