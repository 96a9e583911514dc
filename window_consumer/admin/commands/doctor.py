"""``window-consumer doctor``: report the likely cause of lag, with its figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path

import click

from window_consumer.admin.cli import authority_option, token_option
from window_consumer.admin.client import Access, AdminAddress, AskError, fetch
from window_consumer.admin.config import AdminConfig
from window_consumer.admin.doctor.collection import Examination, Process
from window_consumer.cli import options
from window_consumer.cli.logs import set_up
from window_consumer.cli.options import DURATION, workers_named
from window_consumer.cli.output import FAILED, FOUND, OK, application_output, exits, explain
from window_consumer.config import Config, LoadedConfig, Mask, WorkerConfig, effective_kafka
from window_consumer.config.sections.listening import ListenAddress
from window_consumer.kafka import settings
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.oauth import OauthToken
from window_consumer.model.errors import RunError, UsageError
from window_consumer.model.redaction import printable
from window_consumer.plan.clients import Clients
from window_consumer.plan.diagnosis import Diagnosis
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.loading import load_app, load_without_handlers

_SHORTEST_S = 2.0
_OF_DEV = "/api/dev"
_THIS_MACHINE = {"127.0.0.1", "localhost", "::1"}
_KAFKA_KEYS = ("bootstrap.servers", "security.protocol")
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - a configuration may contain it


@click.command("doctor")
@options.config
@options.optional_application
@click.option(
    "--worker",
    "-w",
    "names",
    multiple=True,
    metavar="WORKER",
    shell_complete=workers_named,
    help="Only this worker; may be repeated.",
)
@click.option(
    "--url",
    "urls",
    multiple=True,
    metavar="URL",
    help="The admin address of a process; may be repeated. [default: from the configuration]",
)
@token_option
@authority_option
@click.option(
    "--for",
    "for_s",
    type=DURATION,
    default=10.0,
    metavar="DURATION",
    help="How long to observe. [default: 10s]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@options.overrides
@options.features
@click.option(
    "--start-timeout",
    type=DURATION,
    default=10.0,
    metavar="DURATION",
    help="Continue without the cluster if no broker responds for this long. [default: 10s]",
)
@exits(
    {
        OK: "nothing is wrong",
        FAILED: "neither the cluster nor a worker answered",
        FOUND: "a cause was found",
    }
)
def doctor_command(  # noqa: PLR0913 - an argument for each option
    *,
    config: Path,
    application: str | None,
    names: tuple[str, ...],
    urls: tuple[str, ...],
    token: str | None,
    authority: Path | None,
    for_s: float,
    as_json: bool,
    overrides: tuple[str, ...],
    start_timeout: float,
    features: FeatureList,
) -> int:
    """Name the likely cause of lag, with the figures that support it.

    Asks the cluster, and running workers at admin.listen or health.listen. Changes nothing.
    """
    formatter = set_up("text", "warning")
    if for_s < _SHORTEST_S:
        raise UsageError(f"--for: at least {_SHORTEST_S:g}s, because rates need some time")
    with application_output():
        app = None if application is None else load_app(application)
    given = Access(token, authority)
    overrides = (*_kafka_of_dev(urls, given), *overrides)
    loaded = load_without_handlers(config, app, overrides, features)
    formatter.mask = mask = Mask(loaded.secrets)
    try:
        workers = list(_chosen(loaded.config, names))
        probes = features.readiness_address(loaded.config)
        admin = loaded.config.section(AdminConfig)
        processes, notes = processes_of(admin, probes, urls, given, config.parent)
        tokens = None if app is None else app.token_function
        clusters, failures = _clusters(loaded, workers, tokens, start_timeout)
        notes += failures
        unreached = {worker.name for worker in workers}.difference(clusters)
        examination = Examination(loaded.config, workers, clusters, processes, notes, unreached)
        diagnosis = examination.run(for_s)
        readiness = partial(_readiness, probes, processes)
        for feature in features.each:
            diagnosis = diagnosis.joined(feature.diagnose(loaded.config, readiness))
        return _conclude(diagnosis, mask, as_json=as_json)
    except Exception as error:
        return explain(error, mask)


def _kafka_of_dev(urls: Sequence[str], access: Access) -> Iterator[str]:
    """Yield overrides with the brokers of ``dev``, if it runs at a given address.

    No configuration has its broker. Only this machine's answers are trusted as broker addresses.
    """
    for url in urls:
        address = AdminAddress.parse(url)
        if address.host not in _THIS_MACHINE:
            continue
        with suppress(AskError, ValueError):
            status, text = fetch(address, _OF_DEV, access)
            if status == HTTPStatus.OK:
                kafka = json.loads(text)["kafka"]
                yield from (f"kafka.{key}={kafka[key]}" for key in _KAFKA_KEYS if key in kafka)


def _conclude(diagnosis: Diagnosis, mask: Mask, *, as_json: bool) -> int:
    if not diagnosis.causes and not diagnosis.well:
        raise RunError("\n".join(["nothing could be observed:", *diagnosis.notes]))
    if as_json:
        click.echo(mask(json.dumps(diagnosis.as_json(), indent=2)))
    else:
        click.echo(printable(mask("\n".join(diagnosis.as_text()))))
    return FOUND if diagnosis.causes else OK


def _chosen(config: Config, names: Sequence[str]) -> Iterator[WorkerConfig]:
    for name in names:
        if name not in config.workers:
            raise UsageError(
                f"--worker {name}: there is no such worker; there are"
                f" {', '.join(sorted(config.workers))}"
            )
    for name, worker in config.workers.items():
        if name in names if names else worker.enabled:
            yield worker


def processes_of(
    admin: AdminConfig,
    probes: ListenAddress | None,
    urls: Sequence[str],
    given: Access,
    directory: Path,
) -> tuple[list[Process], list[str]]:
    """Return the addresses to query, and notes about them; ``probes`` answers ``/readyz``."""
    given.headers()
    if urls:
        addresses = [AdminAddress.parse(url) for url in dict.fromkeys(urls)]
        if any(address.is_tls for address in addresses):
            given.context()
        return [Process(address, given, has_windows=True) for address in addresses], []
    if admin.address is not None and admin.address.port:
        certificate = admin.tls.certificate
        access = Access(
            given.token or admin.token,
            given.authority or (None if certificate is None else directory / certificate),
            any_name=True,
        )
        return [Process(_reached(admin.address, certificate is not None), access, True)], []
    if probes is not None:
        found = Process(_reached(probes, False), Access(), has_windows=False)
        return [found], ["only admin.listen, which is not configured, reports keys and stacks"]
    return [], [
        "no worker was asked: neither admin.listen nor health.listen has a port: give --url"
    ]


def _readiness(probes: ListenAddress | None, processes: Sequence[Process]) -> list[str]:
    """Return the lines of ``/readyz`` of all processes that answer."""
    asked = {each.address: each.access for each in processes}
    if probes is not None:
        asked[_reached(probes, False)] = Access()
    lines: list[str] = []
    for address, access in asked.items():
        with suppress(AskError):  # observing workers already notes it
            _, text = fetch(address, "/readyz", access)
            lines += text.decode("utf-8", "replace").splitlines()
    return list(dict.fromkeys(lines))


def _reached(address: ListenAddress, is_tls: bool) -> AdminAddress:  # noqa: FBT001 - private
    return AdminAddress(_ANYWHERE.get(address.host, address.host), address.port, is_tls)


def _clusters(
    loaded: LoadedConfig,
    workers: Sequence[WorkerConfig],
    tokens: OauthToken | None,
    timeout_s: float,
) -> tuple[dict[str, Cluster], list[str]]:
    """Connect to the cluster of each worker; return notes about failures.

    Workers with equal connection settings share one connection, and one note.
    """
    alike: dict[str, list[WorkerConfig]] = {}
    for worker in workers:
        alike.setdefault(_how(loaded.config, worker), []).append(worker)

    def connect(those: Sequence[WorkerConfig]) -> Cluster | str:
        try:
            return Clients.connect(loaded, those[0], tokens, timeout_s).cluster
        except RunError as error:
            return f"{', '.join(worker.name for worker in those)}: {error}"

    with ThreadPoolExecutor(max(1, len(alike)), "wc-connect") as pool:
        found = list(zip(alike.values(), pool.map(connect, alike.values()), strict=True))
    clusters = {
        worker.name: cluster
        for those, cluster in found
        if isinstance(cluster, Cluster)
        for worker in those
    }
    return clusters, [failure for _, failure in found if isinstance(failure, str)]


def _how(config: Config, worker: WorkerConfig) -> str:
    """Return a text that is equal for workers with equal connection settings."""
    properties = effective_kafka(
        config,
        worker,
        "admin",
        consumer_only=settings.CONSUMER_ONLY,
        producer_only=settings.PRODUCER_ONLY,
    )
    return repr(sorted(properties.items()))
