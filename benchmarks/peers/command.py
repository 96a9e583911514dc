"""``python -m benchmarks peers``: runs the peers, saves the results, draws table and chart."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from benchmarks import machine
from benchmarks.broker import kafka_at
from benchmarks.children import CHECKOUT
from benchmarks.peers import chart, table
from benchmarks.peers.comparison import Comparison
from benchmarks.peers.measuring import compare
from benchmarks.peers.roster import PEERS, Peer
from benchmarks.peers.workloads import WORKLOADS, PeerWorkload
from benchmarks.topics import Topics
from window_consumer.config.problems import did_you_mean

RESULTS = Path(__file__).parent / "results.json"
PAGE = CHECKOUT / "docs" / "lab" / "peers.md"
CHART = CHECKOUT / "docs" / "images" / "peers.svg"

_Kind = TypeVar("_Kind")


@click.command("peers")
@click.option("--only", multiple=True, metavar="NAME", help="Only these peers; can be repeated.")
@click.option(
    "--workloads", multiple=True, metavar="NAME", help="Only these workloads; can be repeated."
)
@click.option(
    "--runs", type=click.IntRange(1), default=1, show_default=True, help="How often each runs."
)
@click.option("--kafka", metavar="HOST:PORT", help="A Kafka to use. [default: one is started]")
@click.option("--render", is_flag=True, help="Run nothing: draw what was measured before.")
@click.option("--add", is_flag=True, help="Keep the rows that are not measured again.")
@click.option(
    "--scale",
    type=click.FloatRange(0.0001, 100),
    default=1.0,
    help="So many times the records, to try things out.",
)
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    default=RESULTS,
    help="Where what was measured is kept. With another file than the usual one, table and chart"
    " are written beside it, and not into docs.",
)
@click.option("--list", "listed", is_flag=True, help="List peers and workloads.")
def peers_command(
    only: Sequence[str],
    workloads: Sequence[str],
    results: Path,
    *,
    listed: bool,
    render: bool,
    **how: Any,
) -> int:
    """Compare with other consumers, each in its own environment; takes about 20 minutes.

    Writes the tables in docs/lab/peers.md and the chart in docs/images. NAMEs may also be separated
    by commas. Lists peers that cannot be installed, with the reason.
    """
    if listed:
        click.echo(_list())
        return 0
    chosen = _chosen(only, PEERS, "peer"), _chosen(workloads, WORKLOADS, "workload")
    if not results.parent.is_dir():
        raise click.UsageError(f"--results {results}: there is no directory {results.parent}")
    if render:
        found = Comparison.load(results)
    else:
        before = Comparison.load(results) if how.pop("add") and results.is_file() else Comparison()
        for measured in _measure(*chosen, **how):
            # Saved at once, to survive an interruption.
            found = measured.with_rows_of(before)
            found.save(results)
    _write(found, results)
    return 0


def _measure(
    peers: Sequence[Peer],
    workloads: Sequence[PeerWorkload],
    *,
    runs: int,
    kafka: str | None,
    scale: float,
) -> Iterator[Comparison]:
    began = time.monotonic()
    with kafka_at(kafka, _say) as (bootstrap, version):
        place = {
            **machine.describe(version),
            "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
            "runs": "one run each" if runs == 1 else f"medians of {runs} runs",
        }
        scaled = [workload.scaled(scale) for workload in workloads]
        yield from compare(peers, scaled, Topics(bootstrap), runs, _say, place)
    _say(f"took {time.monotonic() - began:.0f} s")


def _write(found: Comparison, results: Path) -> None:
    """Write table and chart: into docs, or next to results that are kept elsewhere."""
    if results.resolve() == RESULTS:
        place = os.path.relpath(CHART, PAGE.parent)
        PAGE.write_text(
            table.put_into(PAGE.read_text("utf-8"), table.section(found, place)), "utf-8"
        )
        CHART.write_text(chart.draw(found), "utf-8")
        return
    picture = results.with_suffix(".svg")
    results.with_suffix(".md").write_text(f"{table.section(found, picture.name)}\n", "utf-8")
    picture.write_text(chart.draw(found), "utf-8")


def _chosen(names: Sequence[str], there: Mapping[str, _Kind], kind: str) -> Sequence[_Kind]:
    """Return those that are named, in the usual order, or all. Raises UsageError."""
    named = [name for given in names for name in given.split(",") if name]
    for name in named:
        if name not in there:
            hint = did_you_mean(name, there)
            raise click.UsageError(
                f"there is no {kind} {name!r}{'; ' if hint else ''}{hint}\nThere are:"
                f" {', '.join(there)}"
            )
    return [each for name, each in there.items() if name in named or not named]


def _list() -> str:
    wide = max(map(len, [*PEERS, *WORKLOADS]))
    lines = [f"{name:<{wide}}  {peer.title}; order: {peer.order}" for name, peer in PEERS.items()]
    lines += [""]
    lines += [f"{name:<{wide}}  {workload.what}" for name, workload in WORKLOADS.items()]
    return "\n".join(lines)


def _say(text: str) -> None:
    click.echo(text, err=True)
