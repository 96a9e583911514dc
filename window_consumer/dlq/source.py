"""The places of dead letters: the clusters, and the names of their topics.

With a configuration these are the dead-letter topics of its workers, found by name on the cluster,
including those of topics that are no longer read. Any other topic can be read, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from window_consumer.config import (
    Config,
    LoadedConfig,
    Mask,
    TopicNames,
    WorkerConfig,
    effective_kafka,
)
from window_consumer.kafka import settings
from window_consumer.kafka.oauth import OauthToken
from window_consumer.model.errors import UsageError
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.feature import DecodeValue
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.ladder_topics import LadderNames
from window_consumer.plan.loading import load_without_handlers
from window_consumer.plan.topics.command_topics import refuse_broadcast

ValueDecoder = Callable[[WorkerConfig], DecodeValue | None]


def _no_decoder(_: WorkerConfig) -> None:
    return None


@frozen
class ClusterView:
    """A cluster as one worker or the command line connects to it."""

    worker: WorkerConfig | None
    consumer: Mapping[str, Any] = field(repr=False)
    admin: Mapping[str, Any] = field(repr=False)
    """The user's Kafka properties of each client."""


@frozen
class DeadLetterSource:
    """The selected clusters and topics."""

    places: tuple[ClusterView, ...]
    topics: tuple[str, ...]
    """Names of dead-letter topics, or of the records' own topics; empty: all."""
    config: Config | None = None
    mask: Mask = field(factory=lambda: Mask(()))
    value_decoder: ValueDecoder = field(default=_no_decoder, repr=False)
    """Returns what decodes values of a worker's topics, None for plain values."""
    oauth_token: OauthToken | None = None

    @classmethod
    def of_config(
        cls,
        file: Path,
        *,
        app: AppDefinition | None = None,
        workers: Sequence[str] = (),
        topics: Sequence[str] = (),
        overrides: Sequence[str] = (),
        features: FeatureList,
    ) -> DeadLetterSource:
        """Return the dead-letter topics of a configuration's workers, or of some of them.

        The application is needed only if its decorators provide the group or OAUTHBEARER tokens.
        Raises ConfigError, and UsageError for an unknown worker.
        """
        loaded = load_without_handlers(file, app, overrides, features)
        token = None if app is None else app.token_function
        decoder = features.value_decoder
        return cls.of_loaded(loaded, token, decoder, workers=workers, topics=topics)

    @classmethod
    def of_loaded(
        cls,
        loaded: LoadedConfig,
        oauth_token: OauthToken | None,
        value_decoder: ValueDecoder,
        *,
        workers: Sequence[str] = (),
        topics: Sequence[str] = (),
    ) -> DeadLetterSource:
        """Return the same for a loaded configuration; raises UsageError."""
        known = loaded.config.workers
        for name in workers:
            if name not in known:
                raise UsageError(
                    f"--worker {name}: there is no such worker; there are"
                    f" {', '.join(sorted(known))}"
                )
            refuse_broadcast(loaded, known[name])
        known = {name: worker for name, worker in known.items() if not worker.is_broadcast}
        chosen = [worker for name, worker in known.items() if not workers or name in workers]
        return cls(
            tuple(_place_of(loaded.config, worker) for worker in chosen),
            tuple(topics),
            loaded.config,
            Mask(loaded.secrets),
            value_decoder,
            oauth_token,
        )

    @classmethod
    def of_address(cls, bootstrap: str, topics: Sequence[str]) -> DeadLetterSource:
        """Return topics of a cluster that needs no password."""
        client = {"bootstrap.servers": bootstrap}
        return cls((ClusterView(None, client, client),), tuple(topics))

    def topics_at(
        self, place: ClusterView, names: Sequence[str]
    ) -> Iterator[tuple[str, str | None]]:
        """Yield the selected topics, each with the source of its dead letters.

        ``names`` are all topics of the cluster.
        """
        ours = {} if place.worker is None else self._dead_letters_of(place.worker, names)
        for name, origin in sorted(ours.items()):
            if not self.topics or name in self.topics or origin in self.topics:
                yield name, origin
        for name in self.topics:
            # A topic that workers read holds no dead letters, even if nothing has failed so far.
            if name in names and name not in ours and name not in self._sources():
                yield name, None

    def others_at(self, names: Sequence[str]) -> set[str]:
        """Return the topics that no worker reads or writes and Kafka does not keep for itself."""
        if self.config is None:
            return set(names)
        ladders = LadderNames.of(self.config)
        ours = ladders.known | self._sources()
        return {
            name
            for name in names
            if name not in ours
            and not name.startswith(("__", *ladders.own))
            and (name not in ladders or name.endswith(".dlq"))  # that of another application
        }

    def _sources(self) -> set[str]:
        workers = () if self.config is None else self.config.workers.values()
        return {topic for worker in workers for topic in worker.topics}

    def _dead_letters_of(self, worker: WorkerConfig, names: Sequence[str]) -> dict[str, str]:
        """Return the worker's existing dead-letter topics, each with its source.

        Those of former topics are found by name, unless the name fits another worker better, whose
        group may begin alike.
        """
        config = self.config
        if config is None:
            return {}
        mine = {TopicNames(worker, config.topics).dlq(topic): topic for topic in worker.topics}
        with_groups = [each for each in config.workers.values() if each.group]
        others = [each for each in with_groups if each.group != worker.group]
        theirs = {
            TopicNames(each, config.topics).dlq(topic) for each in others for topic in each.topics
        }
        closer = [_form(each, config) for each in others if len(each.group) > len(worker.group)]
        found = {name: mine[name] for name in names if name in mine}
        form = _form(worker, config)
        for name in names:
            match = form.fullmatch(name)
            if match is None or name in found or name in theirs:
                continue
            if not any(other.fullmatch(name) for other in closer):
                found[name] = match[1]
        return found


_NONE = re.compile("(?!)")


def _form(worker: WorkerConfig, config: Config) -> re.Pattern[str]:
    """Return the pattern of a worker's dead-letter topic names; the source is its group."""
    first, *rest = map(re.escape, TopicNames(worker, config.topics).dlq("/").split("/"))
    if not rest:
        return _NONE  # its name does not contain the source's
    return re.compile(first + "(.+)" + r"\1".join(rest))


def _place_of(config: Config, worker: WorkerConfig) -> ClusterView:
    def user(kind: settings.Kind) -> dict[str, Any]:
        return effective_kafka(
            config,
            worker,
            kind,
            consumer_only=settings.CONSUMER_ONLY,
            producer_only=settings.PRODUCER_ONLY,
        )

    return ClusterView(worker, user("consumer"), user("admin"))
