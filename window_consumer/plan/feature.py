"""What a feature is: an object that ``app`` and the command line drive, each part optional.

A feature derives from ``Feature`` and overrides what it has; ``app/features.py`` lists it. What
belongs to one application that starts, and then runs, is in ``running_feature``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

from attrs import field, frozen

from window_consumer.config import Config, LoadedConfig, Mask, WorkerConfig
from window_consumer.config.options import Section
from window_consumer.config.sections.listening import ListenAddress
from window_consumer.kafka.log_writer import LogWriter
from window_consumer.kafka.oauth import OauthToken
from window_consumer.model.protocols import Clock, Headers, Sink
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.clients import CopyTarget
from window_consumer.plan.diagnosis import Diagnosis
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.topics.event_topics import EventTopic
from window_consumer.plan.topics.prepared_worker import PreparedWorker
from window_consumer.plan.topics.state_topics import StateTopic
from window_consumer.runtime.figures.measures import FeatureFigures, MeasuredWorkers
from window_consumer.runtime.figures.metric import Metric
from window_consumer.runtime.replica import ReplicaIdentity, ReplicaSockets

CopyWriters = Callable[[CopyTarget, LogWriter], AbstractContextManager[LogWriter]]
"""Returns the writer of a redrive or a replay, around another, see ``Feature.copy_writer``."""


@frozen
class PageLink:
    """A place in the navigation that all pages share."""

    path: str
    """Relative to the front page."""
    text: str


@frozen
class DecodedValue:
    """A record's value, decoded for people."""

    json: bytes
    form: str
    """What it was decoded from, such as avro."""


DecodeValue = Callable[[str, Headers, bytes], DecodedValue]
"""Decodes a value of a topic, whose record has these headers; raises a WindowConsumerError."""


class Pages(Protocol):
    """The pages of a feature at the admin address. Owner: the server's event loop."""

    @property
    def is_there(self) -> bool:
        """Return whether it has anything to show."""

    @property
    def link(self) -> PageLink | None:
        """Return its places in the navigation, while it has something to show."""

    def routes(self) -> Sequence[Any]:
        """Return Starlette routes; those below ``/api/`` are for programs, others for people."""


@frozen
class PageContext:
    """A configuration, with or without its workers in this process."""

    loaded: LoadedConfig
    copy_writers: CopyWriters
    value_decoder: Callable[[WorkerConfig], DecodeValue | None]
    """See ``FeatureList.value_decoder``."""
    oauth_token: OauthToken | None = None
    figures: Callable[[], FeatureFigures] = field(default=FeatureFigures, repr=False)
    """Returns the figures of all features; empty in a process without workers."""

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.loaded.config

    @property
    def mask(self) -> Mask:
        """Hides the configuration's secrets in texts."""
        return Mask(self.loaded.secrets)


class CheckFindings(Protocol):
    """A finding of ``check --connect`` outside Kafka: an attrs class, which defines its JSON."""

    def in_words(self) -> Iterator[str]:
        """Yield lines for people."""


@frozen
class AppStart:
    """A starting application, as its features see it."""

    application: str
    version: str
    plan: AppPlan
    replica: ReplicaIdentity | None
    """None unless this process is one of several replicas."""
    workers: MeasuredWorkers
    """The figures of the workers, and of the features beside them."""
    metrics: Sequence[Metric]
    """Those of all features."""
    pages: Callable[[], Mapping[str, Pages]]
    """Returns the pages of all features, by feature; raises ConfigError."""
    failures: Callable[[], Sequence[str]]
    """Returns why features keep the process from being ready. Any thread may ask."""
    feature_sink: Callable[[str, PreparedWorker, Sink, Clock], Sink]
    """Returns the sink for records that the named feature sends beside a worker, around another
    one, see ``RunningFeature``. Features later in the list take no part in it."""
    oauth_token: OauthToken | None = field(default=None, repr=False)
    """The application's token function, for clients of a feature."""


@frozen
class AclRule:
    """Operations to allow on a resource; their names are Kafka's, such as ``READ``."""

    kind: Literal["topic", "group", "transactional-id"]
    name: str
    operations: tuple[str, ...]
    why: str
    is_prefix: bool = False
    """Whether it covers all resources whose names begin with ``name``."""


class Feature:
    """A feature. Each part does nothing by default."""

    name: ClassVar[str]
    section: ClassVar[Section | None] = None
    """Its section of the configuration; ``Config.section`` returns it by class."""
    worker_section: ClassVar[Section | None] = None
    """Its section of each worker; ``WorkerConfig.section`` returns it by class."""
    commands: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Each command's ``module:attribute``, imported on use."""
    metrics: ClassVar[Sequence[Metric]] = ()
    """Counters and gauges that read its figures."""
    findings_key: ClassVar[str | None] = None
    """The key of its findings in the JSON of ``check``."""

    # ---- before a start, and in commands

    def handlers(self, config: Config) -> Mapping[str, HandlerSpec]:
        """Return the handlers of the workers that its sections add or handle, by handler."""
        del config
        return {}

    def handlers_of(
        self, worker: WorkerConfig, handlers: Mapping[str, HandlerSpec]
    ) -> Mapping[str, HandlerSpec]:
        """Return the handlers of a worker as it calls them, by name; also asked in child processes.

        Raises InvalidError for keys of the worker that do not fit its handlers.
        """
        del worker
        return handlers

    def value_decoder(self, worker: WorkerConfig) -> DecodeValue | None:
        """Return what decodes values of a worker's topics for people; None: they are plain.

        Nothing else of the application is known; it may ask outside this machine.
        """
        del worker
        return None

    def refuse(self, plan: AppPlan) -> None:
        """Raise a UsageError for anything that would prevent a start; uses only this machine."""

    def warnings(self, plan: AppPlan) -> Iterable[str]:
        """Return the warnings of ``check``."""
        del plan
        return ()

    def findings(self, plan: AppPlan, timeout_s: float | None) -> Sequence[CheckFindings]:
        """Return the findings of ``check --connect`` outside Kafka; raise as a start would."""
        del plan, timeout_s
        return ()

    def bounds(self, plan: AppPlan, rate: float | None) -> Sequence[CheckFindings] | None:
        """Return the bounds that the configuration implies, for ``check``; None: it has none.

        ``rate`` is the expected records/s of each worker. In the JSON, the result appears below the
        feature's name.
        """
        del plan, rate
        return None

    def outlook(self, config: Config, now_ms: float) -> Sequence[CheckFindings] | None:
        """Return upcoming events, for ``check`` and ``delay status``; None: it has none.

        ``now_ms`` is in milliseconds since 1970. In the JSON, the result appears below the
        feature's name.
        """
        del config, now_ms
        return None

    def event_topics(self, config: Config) -> Iterable[EventTopic]:
        """Return the topics that it writes events to."""
        del config
        return ()

    def state_topics(self, config: Config) -> Iterable[StateTopic]:
        """Return the topics with state that the members of a group share."""
        del config
        return ()

    def rights(self, config: Config) -> Iterable[AclRule]:
        """Return the rights that it needs on the cluster, except for its event topics."""
        del config
        return ()

    def readiness_address(self, config: Config) -> ListenAddress | None:
        """Return the address where it answers ``/readyz``, over plain HTTP."""
        del config
        return None

    def pages(self, context: PageContext) -> Pages | None:
        """Return its pages at the admin address and in ``console``; raises ConfigError."""
        del context
        return None

    def diagnose(self, config: Config, readiness: Callable[[], Sequence[str]]) -> Diagnosis:
        """Return the feature's part of ``doctor``; ``readiness`` requests the ``/readyz`` lines."""
        del config, readiness
        return Diagnosis(())

    # ---- a start and a run

    def set_up(self, application: str) -> Callable[[float], None] | None:
        """Set up whatever a process of ``run`` needs once, before anything starts.

        Returns the function that ends it; its argument is the remaining seconds.
        """
        del application
        return None

    def starting(self, start: AppStart) -> AbstractContextManager[RunningFeature | None]:
        """Return a context that lasts from the start of an application to its end.

        It is entered before the first request to the cluster. Raises UsageErrors for user mistakes.
        """
        del start
        return nullcontext()

    # ---- a supervisor of replicas

    def refuse_replicas(self, one: AppPlan, other: AppPlan) -> None:
        """Raise a UsageError if two replicas with these plans cannot run beside each other."""

    def asks_replicas(self, plan: AppPlan) -> bool:
        """Return whether ``beside_replicas`` queries the replicas, which must then listen."""
        del plan
        return False

    def beside_replicas(
        self,
        plan: AppPlan,
        sockets: Mapping[str, ReplicaSockets],
        pages: Callable[[], Mapping[str, Pages]],
    ) -> AbstractContextManager[Callable[[str], None] | None]:
        """Return a context for the supervisor of replicas; ``sockets`` are theirs, by number.

        ``pages`` returns those of all features. The context may yield a function, which is called
        with the number of each replica that has ended.
        """
        del plan, sockets, pages
        return nullcontext()

    # ---- a redrive, a replay

    def copy_writer(
        self, target: CopyTarget, writer: LogWriter
    ) -> AbstractContextManager[LogWriter]:
        """Return the writer of a redrive or a replay, around ``writer``."""
        del target
        return nullcontext(writer)
