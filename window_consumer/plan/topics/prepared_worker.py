"""Workers that are ready to run, with the cluster's answers about their topics."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field, frozen

from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import Topic
from window_consumer.kafka.oauth import OauthToken
from window_consumer.model.protocols import TopicFacts
from window_consumer.plan.app_plan import PlannedWorker
from window_consumer.plan.topics.copy_topics import Ladder
from window_consumer.plan.topics.orphan_topics import OrphanTopic
from window_consumer.plan.topics.problems import TopicTroubles


@define
class PreparedWorker:
    """A worker whose topics exist. With patterns, its topics may grow in number."""

    plan: PlannedWorker
    cluster: Cluster
    log: ClientLog
    topics: dict[str, TopicFacts]
    """The source topics."""
    ladders: dict[str, Ladder] = field(factory=dict)
    """The ladder for the copies of each source topic's records."""
    retry_levels: dict[str, RetryTopicLevel] = field(factory=dict)
    """The retry topics that are also read."""
    reads: frozenset[str] = frozenset()
    """The retry topics that are read now."""
    leftovers: list[OrphanTopic] = field(factory=list)
    """Orphan topics: topics with copies that the configuration does not name."""
    described: Mapping[str, Topic] = field(factory=dict)
    """All topics that are read, as the cluster last described them."""
    troubles: TopicTroubles = field(kw_only=True)


@frozen
class Prepared:
    """The workers, ready to run."""

    workers: tuple[PreparedWorker, ...]
    oauth_token: OauthToken | None
    warnings: tuple[str, ...] = ()
