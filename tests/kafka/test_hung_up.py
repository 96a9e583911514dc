"""A port that expects TLS or SASL only hangs up: a start says what to set."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.admin.certificates import make_certificate
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.model.errors import BrokerUnavailableError
from window_consumer.testing.real_kafka import RealKafka

LOG = ClientLog(logging.getLogger("window_consumer.client"))


@pytest.fixture
def tls_port(tmp_path: Path) -> Iterator[str]:
    """A listener that speaks TLS alone."""
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    make_certificate(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with suppress(OSError), connection:
                        context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def reasons(settings: dict[str, str]) -> list[str]:
    """Return what is told while nobody answers, and at the end."""
    reported: list[str] = []
    with pytest.raises(BrokerUnavailableError) as raised:
        Cluster(settings, LOG).wait_until_there(3.0, lambda reason, _: reported.append(reason))
    return [*reported, str(raised.value)]


def test_a_port_for_tls_that_gets_plaintext(tls_port: str) -> None:
    for reported in reasons({"bootstrap.servers": tls_port})[1:]:
        assert re.search(r"\bTLS or SASL: .*\bsecurity\.protocol .*\bSSL, SASL_SSL ", reported)


def test_a_port_for_tls_that_gets_sasl_alone(tls_port: str) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    settings = {"bootstrap.servers": tls_port, "security.protocol": "SASL_PLAINTEXT", **login}
    for reported in reasons(settings)[1:]:
        assert re.search(r"\bTLS: .*\bsecurity\.protocol: SASL_SSL", reported)


def test_a_port_for_sasl_that_gets_plaintext(kafka: RealKafka) -> None:
    for reported in reasons({"bootstrap.servers": kafka.sasl_bootstrap})[1:]:
        keys = r"security\.protocol\b.*\bsasl\.mechanism, sasl\.username and sasl\.password"
        assert re.search(rf"\bSASL: .*\b{keys}", reported)


def test_where_nobody_listens_no_protocol_is_guessed() -> None:
    assert not any(
        "security.protocol" in reported for reported in reasons({"bootstrap.servers": NOBODY})
    )


NOBODY = "127.0.0.1:1"
