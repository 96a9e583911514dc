"""The endpoint for clients of SQS as a feature: its sections and its queues."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Final

from attrs import frozen

from window_consumer.config import Config
from window_consumer.config.sections.listening import certificate_problems
from window_consumer.engine.observer import Observer
from window_consumer.model.errors import ConfigError, UsageError
from window_consumer.model.record import Record
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AclRule, AppStart, Feature
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.topics.prepared_worker import Prepared, PreparedWorker
from window_consumer.runtime.calls.layer import CallForm, CallLayer, CallSite, LayerPlace
from window_consumer.runtime.calls.steps import Called
from window_consumer.runtime.replica import NUMBER
from window_consumer.runtime.running import Running
from window_consumer.sqs.bounds import QueueBounds
from window_consumer.sqs.config import ENDPOINT, QUEUE, SqsConfig, pulls, queue_name, send_topic
from window_consumer.sqs.metrics import METRICS, CallFigures, LeaseFigures
from window_consumer.sqs.sending import QueueSender
from window_consumer.sqs.worker_queue import WorkerQueue

_THREADS: Final = 2

_MISSING: Final = (
    "sqs.listen needs the extra sqs, which is not installed: pip install 'window-consumer[sqs]'"
)
_ONE_ADDRESS: Final = (
    "--processes: sqs.listen is {address} in all of them, but each process needs its own address:"
    " put the number of the process into the port, as in 127.0.0.1:932${{{number}}}"
)


class RunningSqs(RunningFeature):
    """The queues of a running application, and the endpoint that serves them."""

    def __init__(self, plan: AppPlan, server: ModuleType):
        self._plan = plan
        self._server = server
        self.queues: dict[str, WorkerQueue] = {}
        """The queues by the names of their workers."""
        self.port = 0
        self._figures = server.EndpointFigures()

    @contextmanager
    def beside(self, prepared: Prepared) -> Iterator[None]:
        """Serve the queues until all workers have ended, so that clients can answer until then."""
        plan = self._plan
        sqs = plan.config.section(SqsConfig)
        owner = secrets.token_hex(8)
        with ExitStack() as stack:
            executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="wc-sqs-ask")
            stack.enter_context(executor)
            for each in plan.workers:
                if pulls(each.config):
                    sender = QueueSender(plan, each, prepared.oauth_token)
                    stack.callback(sender.close)
                    self.queues[each.name] = WorkerQueue(each, owner, sqs.url, sender, executor)
            endpoint = self._server.EndpointConfig(
                address=sqs.address,
                advertise=sqs.advertise,
                credentials=sqs.credentials,
                tls=sqs.tls,
            )
            queues, directory = [*self.queues.values()], Path(plan.file).parent
            serving = self._server.serving(queues, endpoint, directory, self._figures)
            self.port = stack.enter_context(serving)
            for queue in queues:
                queue.url = sqs.url_at(self.port)
            yield

    def observer_of(self, worker: PreparedWorker) -> Observer | None:
        """Return the observer that counts the assignments of a queue's worker."""
        queue = self.queues.get(worker.plan.name)
        return None if queue is None else queue.assignments

    def layers_of(self, worker: PreparedWorker) -> Sequence[CallLayer]:
        """Return the layer that lets clients replace a queue's handler."""
        return [ClientsLayer()] if worker.plan.name in self.queues else []

    def figures(self) -> CallFigures:
        """Return the endpoint's counts."""
        seen = self._figures
        return CallFigures(
            seen.requests, seen.refused, seen.refused_signatures, seen.failed, seen.waiting
        )

    def figures_of(self, worker: str) -> LeaseFigures | None:
        """Return the counts of a queue's leases."""
        queue = self.queues.get(worker)
        return None if queue is None else queue.lease_figures()

    def attach(self, running: Running) -> None:
        """Let the queues use the workers."""
        for queue in self.queues.values():
            queue.attach(running)


@frozen
class ClientsLayer:
    """Replaces the handler and middleware: when a lease begins, no function is called.

    The layers before it decide whether the lease begins, for instance that of expired records.
    """

    place: LayerPlace = LayerPlace.ONCE
    in_children: None = None

    def refuse(self, form: CallForm) -> None:
        """Refuse nothing: the handler is built in."""

    def wrap(self, call: Called, site: CallSite) -> Called:
        """Return the function that accepts each record."""
        del call, site
        return _accept


def _accept(_record: Record) -> None:
    """Let the lease begin."""


class SqsFeature(Feature):
    """Queues for clients of SQS."""

    name = "sqs"
    section = ENDPOINT
    worker_section = QUEUE
    metrics = METRICS

    def handlers(self, config: Config) -> Mapping[str, HandlerSpec]:
        """Return a handler for each queue, which clients replace."""
        return {
            name: HandlerSpec(name, _called_by_nobody, {})
            for name, worker in config.workers.items()
            if pulls(worker)
        }

    def bounds(self, plan: AppPlan, rate: float | None) -> Sequence[QueueBounds]:
        """Return how long leases may last, and what waits for them then."""
        url = plan.config.section(SqsConfig).url
        queues = [each for each in plan.workers if pulls(each.config)]
        return [QueueBounds.of(each, queue_name(each.config), url, rate) for each in queues]

    def rights(self, config: Config) -> Iterator[AclRule]:
        """Yield WRITE on the topics that clients send to."""
        for name, worker in config.workers.items():
            topic = send_topic(worker) if pulls(worker) else None
            if topic is not None:
                why = f"clients of the queue {name} send to it"
                yield AclRule("topic", topic, ("WRITE", "DESCRIBE"), why)

    def starting(self, start: AppStart) -> AbstractContextManager[RunningFeature | None]:
        """Run the queues if there are any. Raises UsageError if the extra is missing."""
        if not _has_queues(start.plan):
            return nullcontext()
        return nullcontext(RunningSqs(start.plan, _server_module()))

    def refuse(self, plan: AppPlan) -> None:
        """Check the certificate and its key; raise ConfigError if they are unusable."""
        problems = []
        tls = plan.config.section(SqsConfig).tls
        for key, why in certificate_problems(tls, Path(plan.file).parent):
            path = ("sqs", "tls", *filter(None, [key]))
            problems.append(f"{plan.where(*path)}: {'.'.join(path)}: {why}")
        if problems:
            raise ConfigError("\n".join(problems))

    def refuse_replicas(self, one: AppPlan, other: AppPlan) -> None:
        """Raise a UsageError if two replicas listen on one address."""
        addresses = [each.config.section(SqsConfig).address for each in (one, other)]
        if _has_queues(one) and addresses[0] == addresses[1]:
            assert addresses[0] is not None  # otherwise ``pull`` is refused
            if addresses[0].port:
                raise UsageError(_ONE_ADDRESS.format(address=addresses[0], number=NUMBER))


def _has_queues(plan: AppPlan) -> bool:
    return any(pulls(each.config) for each in plan.workers)


def _server_module() -> ModuleType:
    """Return ``sqs.server``; raises UsageError if the extra is missing."""
    try:
        from window_consumer.sqs import server  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise UsageError(_MISSING) from error
    return server


def _called_by_nobody(record: Record) -> None:
    raise UsageError(f"{record} is for the clients of a queue: no function handles it")
