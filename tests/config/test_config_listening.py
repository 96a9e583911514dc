"""Addresses to listen on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.golden_texts import Golden
from window_consumer.admin.config import AdminConfig
from window_consumer.config import LoadedConfig
from window_consumer.metrics.feature import HealthConfig

WORKER = "workers: {a: {topics: [t], group: g}}\n"


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("10.0.0.1:8081", ("10.0.0.1", 8081)),
        ("localhost:0", ("localhost", 0)),
        ("'[::1]:8081'", ("::1", 8081)),
        ("${PORT_OF_NOBODY:-127.0.0.1:9}", ("127.0.0.1", 9)),
    ],
)
def test_an_address_is_a_host_and_a_port(
    loaded: Callable[..., LoadedConfig], listen: str, address: tuple[str, int]
) -> None:
    assert (
        loaded(f"{WORKER}health:\n  listen: {listen}\n").config.section(HealthConfig).address
        == address
    )


def test_nothing_listens_by_default(loaded: Callable[..., LoadedConfig]) -> None:
    assert loaded(WORKER).config.section(HealthConfig).address is None


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        ("'8081'", "does not end with a port"),
        ("localhost", "does not end with a port"),
        ("0.0.0.0:99999", "does not end with a port, from :0 to :65535"),
        ("':8081'", "0.0.0.0 means all of this machine"),
        ("'::1:8081'", "an IPv6 address needs brackets"),
        ("'[::z]:8081'", "::z"),
        ("http://0.0.0.0:8081", "an IPv6 address needs brackets"),
        ("8081", "write it in quotes"),
    ],
)
def test_what_is_no_address_is_refused(refused: Callable[..., str], listen: str, why: str) -> None:
    message = refused(f"{WORKER}health: {{listen: {listen}}}\n")
    assert "health.listen" in message
    assert why in message


ROLES = (
    "{ops: {token: 0123456789abcdef, role: operate}, see: {token: a-second-secret-1, role: read}}"
)


def admin(listen: str, more: str) -> str:
    return f"{WORKER}admin: {{listen: '{listen}'{more}}}\n"


@pytest.mark.parametrize(
    ("listen", "more"),
    [
        ("127.0.0.1:0", ""),
        ("127.9.9.9:1", ""),
        ("localhost:1", ""),
        ("[::1]:1", ""),
        ("0.0.0.0:1", ", insecure: true"),
        ("0.0.0.0:1", ", insecure: true, hosts: [admin.example.com, '[fd00::7]', 10.0.0.7]"),
        ("0.0.0.0:1", ", token: 0123456789abcdef, tls: {certificate: c.pem, key: k.pem}"),
        ("0.0.0.0:1", f", tokens: {ROLES}, tls: {{certificate: c.pem, key: k.pem}}"),
    ],
)
def test_who_may_get_to_the_live_window(
    loaded: Callable[..., LoadedConfig], listen: str, more: str
) -> None:
    assert loaded(admin(listen, more)).config.section(AdminConfig).address is not None


@pytest.mark.parametrize(
    ("listen", "more", "why"),
    [
        ("0.0.0.0:1", "", "without admin.token and without admin.tls; choose:"),
        ("shop.example:1", ", token: 0123456789abcdef", "can reach, without admin.tls; choose:"),
        (
            "[::]:1",
            ", tls: {certificate: c.pem, key: k.pem}",
            "can reach, without admin.token; choose:",
        ),
        ("127.0.0.1:1", ", tls: {certificate: c.pem}", "admin.tls.key: is missing"),
        ("127.0.0.1:1", ", token: tiny-one", "is shorter than 16 characters"),
        ("127.0.0.1:1", ", token: '0123456789 abcdef'", "has spaces"),
        ("127.0.0.1:1", ", tokn: x", "did you mean token?"),
        ("127.0.0.1:1", ", hosts: [http://a.example]", "is not a host name"),
        ("127.0.0.1:1", ", hosts: ['a.example:80']", "is not a host name"),
        ("127.0.0.1:1", ", hosts: ['*.example']", "is not a host name"),
        ("127.0.0.1:1", ", hosts: a.example", "admin.hosts"),
        ("127.0.0.1:1", ", tokens: x", "admin.tokens"),
        ("127.0.0.1:1", ", tokens: {a b: {token: 0123456789abcdef, role: read}}", "letters"),
        ("127.0.0.1:1", ", tokens: {a: {token: 0123456789abcdef}}", "admin.tokens.a.role: is miss"),
        ("127.0.0.1:1", ", tokens: {a: {role: read}}", "admin.tokens.a.token: is missing"),
        ("127.0.0.1:1", ", tokens: {a: {role: raed, token: 0123456789abcdef}}", "mean read?"),
        ("127.0.0.1:1", ", tokens: {a: {rol: read, token: 0123456789abcdef}}", "mean role?"),
        ("127.0.0.1:1", ", tokens: {a: {role: read, token: tiny-one}}", "is shorter than 16"),
        (
            "127.0.0.1:1",
            f", token: 1123456789abcdef, tokens: {ROLES.replace('ops', 'admin')}",
            "admin.tokens.admin: is the name of admin.token",
        ),
        (
            "127.0.0.1:1",
            f", token: 0123456789abcdef, tokens: {ROLES}",
            "admin.tokens.ops.token: is the token of admin, too",
        ),
    ],
)
def test_what_is_too_open_is_refused(
    refused: Callable[..., str], listen: str, more: str, why: str
) -> None:
    message = refused(admin(listen, more))
    assert why in message
    assert "tiny-one" not in message
    assert "0123456789" not in message


def test_one_port_is_not_for_both(
    loaded: Callable[..., LoadedConfig], refused: Callable[..., str], golden: Golden
) -> None:
    def both(where: str) -> str:
        return f"{admin(where, '')}health: {{listen: '{where}'}}\n"

    golden(refused(both("127.0.0.1:7")))
    loaded(both("127.0.0.1:0"))  # any free one, and another one


@pytest.mark.parametrize("more", [", token: 0123456789abcdef", f", tokens: {ROLES}"])
def test_tokens_are_secrets(loaded: Callable[..., LoadedConfig], more: str) -> None:
    found = loaded(admin("127.0.0.1:0", more))
    assert "0123456789abcdef" in found.secrets
    assert "0123456789abcdef" not in repr(found.config)
    assert not {"operate", "read"} & found.secrets
