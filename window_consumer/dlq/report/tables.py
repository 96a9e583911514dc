"""Tables of the page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from window_consumer.dlq.report import charts, wording
from window_consumer.dlq.report.markup import (
    Markup,
    tag,
)
from window_consumer.dlq.spark.findings import (
    Keys,
    Share,
)

Cell = str | Markup

_NOBODY: Collection[int] = frozenset()


def table(
    titles: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    numbers: Collection[int] = _NOBODY,
    times: Collection[int] = _NOBODY,
    names: Collection[int] = _NOBODY,
) -> Markup:
    """Return a table; which columns have numbers, times and long names is told by their places."""

    def kind_of(column: int) -> str | None:
        kinds = {"number": numbers, "time": times, "name": names}
        return next((kind for kind, columns in kinds.items() if column in columns), None)

    head = tag(
        "tr",
        *(tag("th", title, scope="col", class_=kind_of(at)) for at, title in enumerate(titles)),
    )
    body = [
        tag("tr", *(tag("td", cell, class_=kind_of(at)) for at, cell in enumerate(row)))
        for row in rows
    ]
    inner = tag("table", tag("thead", head), tag("tbody", *body))
    return tag("div", inner, class_="scroll")


def shares_table(
    title: str,
    shares: Sequence[Share],
    whole: int,
    name_of: Callable[[Share], str] = wording.share_name,
) -> Markup | None:
    """Return the most frequent values of one side, with bars; None where there is none."""
    if not shares:
        return None
    return _bars(title, [(name_of(each), each.count) for each in shares], whole)


def keys_table(keys: Keys, most: int) -> Markup | None:
    """Return the most frequent keys, with bars; None where there is none."""
    return _bars("Most frequent keys", keys.top[:most], keys.count) if keys.top else None


def _bars(title: str, rows: Sequence[tuple[str, int]], whole: int) -> Markup:
    body = [
        tag(
            "tr",
            tag("td", name, class_="name"),
            tag("td", charts.meter(count, whole), class_="bar"),
            tag("td", f"{count:,}", class_="number"),
            tag("td", wording.percent(count, whole), class_="number"),
        )
        for name, count in rows
    ]
    return tag("div", tag("table", tag("caption", title), tag("tbody", *body)))
