"""Preflight: checks on the cluster before the first record.

Topics must exist, and we must be allowed to read and write them; missing dead-letter topics are
created. ``run`` and ``check --connect`` perform the same checks.
"""

from __future__ import annotations

from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.transactions import find_obstacle
from window_consumer.kafka.oauth import OauthToken, OAuthTokens, uses_tokens
from window_consumer.kafka.settings import admin_settings
from window_consumer.model.errors import ConfigError, MissingTopicError
from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.start_timeout import LOGGER, StartTimeout
from window_consumer.plan.topics.preparation import Preparation
from window_consumer.plan.topics.prepared_worker import Prepared


def prepare(
    plan: AppPlan, oauth_token: OauthToken | None, start_timeout: StartTimeout, *, dry: bool = False
) -> Prepared:
    """Check the cluster for all workers and create missing dead-letter topics.

    A ``dry`` run only checks whether they could be created. Raises UsageErrors for user mistakes,
    AuthenticationError, BrokerUnavailableError, and StartStoppedError.
    """
    prepared = []
    missing: list[str] = []
    log = ClientLog(LOGGER.getChild("client"), plan.mask)
    tokens = None if oauth_token is None else OAuthTokens(oauth_token, log, plan.mask)
    for worker in plan.workers:
        _wait_for_token(plan, worker, tokens, start_timeout)
        cluster = Cluster(admin_settings(worker.admin, worker.name), log, tokens)
        cluster.wait_until_there(
            start_timeout.left_s(), start_timeout.waiting(worker.name, cluster)
        )
        if worker.config.delivery is DeliveryMode.EXACTLY_ONCE:
            _check_transactions(plan, worker, cluster)
        preparation = Preparation(plan, worker, cluster, log, dry=dry)
        # A check reports every unreadable topic; a run continues with the readable ones.
        try:
            prepared.append(preparation.prepare(all_of_them=dry))
        except MissingTopicError as error:
            missing.append(str(error))
    if missing:
        raise MissingTopicError("\n".join(missing))
    return Prepared(tuple(prepared), tokens)


def _wait_for_token(
    plan: AppPlan, worker: PlannedWorker, tokens: OAuthTokens | None, start_timeout: StartTimeout
) -> None:
    if tokens is None and uses_tokens(worker.admin):
        raise ConfigError(
            f"{plan.where('workers', worker.name)}: sasl.mechanism is OAUTHBEARER, but nothing"
            " supplies tokens: write kafka.login instead, see docs/login.md, or decorate a"
            " function with @app.oauth_token"
        )
    start_timeout.wait_for_token(worker.name, worker.admin, tokens)


def _check_transactions(plan: AppPlan, worker: PlannedWorker, cluster: Cluster) -> None:
    obstacle = find_obstacle(cluster)
    if obstacle is not None:
        raise ConfigError(
            f"{plan.where('workers', worker.name, 'delivery')}: workers.{worker.name}.delivery: is"
            f" exactly_once, but the cluster at {cluster.bootstrap} cannot begin transactions:"
            f" {obstacle}"
        )
