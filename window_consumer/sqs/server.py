"""The thread of the endpoint: it serves queues at the configured address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from typing import Final

from window_consumer.config.sections.listening import ListenAddress
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger
from window_consumer.sqs.endpoint import Endpoint, EndpointConfig, EndpointFigures
from window_consumer.sqs.queue import Queue
from window_consumer.web.server import ServerLimits, WebServer, listen_on, tls_options

THREAD: Final = "wc-sqs"

MOST_CONNECTIONS: Final = 2_000
"""The most connections: each takes tens of kilobytes, and a client that waits for messages holds
one. They get at most half of the files that the process may open, because Kafka clients need some,
too."""

_KEEP_ALIVE_S: Final = 60
"""How long idle connections stay open: if one closes as a request arrives, the client must
retry."""

_log = own_logger()


@contextmanager
def serving(
    queues: Sequence[Queue],
    config: EndpointConfig,
    directory: Path,
    figures: EndpointFigures | None = None,
) -> Iterator[int]:
    """Serve queues at the configured address inside the context; yield the port.

    Relative file names start at ``directory``. Raises UsageError if the address or the
    certificate is unusable.
    """
    tls = tls_options(config.tls, directory, "sqs")
    with listen_on(config.address, "sqs.listen") as listening:
        port = listening.getsockname()[1]
        endpoint = Endpoint(queues, config, figures or EndpointFigures())
        limits = ServerLimits(
            connections=_most_connections(), deadline_s=_KEEP_ALIVE_S, keep_alive_s=_KEEP_ALIVE_S
        )
        with WebServer(endpoint, listening, THREAD, limits, tls):
            url = f"{'https' if tls else 'http'}://{ListenAddress(config.address.host, port)}"
            _log.info(
                "sqs: %s for %s",
                url,
                ", ".join(each.name for each in queues),
                extra={"event": LogEvent.SQS_STARTED, "url": url},
            )
            yield port


def _most_connections() -> int:
    """Return how many connections may be open; raise the process's file limit if allowed."""
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if soft == RLIM_INFINITY:
        return MOST_CONNECTIONS
    wanted = 2 * MOST_CONNECTIONS if hard == RLIM_INFINITY else min(hard, 2 * MOST_CONNECTIONS)
    if soft < wanted:
        setrlimit(RLIMIT_NOFILE, (wanted, hard))  # 1,024 is the usual limit, for old programs
    return min(MOST_CONNECTIONS, max(soft, wanted) // 2)
