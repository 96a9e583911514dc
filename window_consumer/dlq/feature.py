"""Dead letters as a feature: commands, and a page."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from window_consumer.admin.config import AdminConfig
from window_consumer.plan.feature import Feature, PageContext

if TYPE_CHECKING:
    from window_consumer.dlq.page import DeadLetterPages


class DlqFeature(Feature):
    """Dead letters."""

    name = "dlq"
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"dlq": "window_consumer.dlq.cli:dlq_group"}
    )

    def pages(self, context: PageContext) -> DeadLetterPages | None:
        """Return the page of dead letters; without a worker there is no cluster to query."""
        if not context.config.workers:
            return None
        from window_consumer.dlq.page import DeadLetterPages  # noqa: PLC0415 - an optional extra
        from window_consumer.dlq.page_answers import DeadLetterAnswers  # noqa: PLC0415 - as above

        values = context.config.section(AdminConfig).values
        return DeadLetterPages(context, DeadLetterAnswers(context, values=values))
