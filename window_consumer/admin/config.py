"""The section ``admin``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from attrs import field, frozen

from window_consumer.admin.tokens import (
    ADMIN,
    NO_TOKENS,
    AccessRole,
    AccessToken,
    Tokens,
    shared_tokens,
    token_kind,
    tokens_kind,
)
from window_consumer.config import kinds
from window_consumer.config.options import about
from window_consumer.config.problems import Problem
from window_consumer.config.sections.listening import ListenSection, TlsConfig, address_kind

_OPEN_TO_OTHERS: Final = """\
is {given}, which others can reach, without {missing}; choose:
  listen: 127.0.0.1:{port}, and use it through a tunnel (kubectl port-forward, ssh -L)
  admin.token and admin.tls: {{certificate: ..., key: ...}}, both of them
  insecure: true, if something in front of it provides both"""


_HOST: Final = r"^[A-Za-z0-9._-]{1,253}$|^\[?[0-9A-Fa-f:.]+\]?$"


def _wrong_host(name: str) -> str | None:
    if re.fullmatch(_HOST, name):
        return None
    return "is not a host name or IP address: omit scheme and port, and do not use *"


@frozen(kw_only=True)
class AdminConfig(ListenSection):
    """The live window, and the permissions of its users."""

    listen: str | None = field(
        default=None,
        metadata=about(
            "Where the live window, /api/windows and pausing are served. It shows offsets, keys "
            "and errors of records. Port 0 means any free port, which the log reports. Needs the "
            "extra web.",
            kind=address_kind(),
            default="none: nothing listens",
        ),
    )
    token: str | None = field(
        default=None,
        repr=False,
        metadata=about(
            "The token that a person or a program must present: as `Authorization: Bearer ...`, "
            "or in the page's form. 16 characters or more; always a secret.",
            kind=token_kind(),
            default="none: everybody who can reach the address may view and pause",
            secret=True,
        ),
    )
    tokens: Tokens = field(
        default=NO_TOKENS,
        metadata=about(
            "Further tokens, by the names that the log shows for their actions. With the role "
            "read, they see everything and change nothing. `token` has the role operate and the "
            "name admin.",
            kind=tokens_kind(),
            default="none",
        ),
    )
    tls: TlsConfig = field(
        factory=TlsConfig, metadata=about("The certificate for HTTPS, and its key.")
    )
    hosts: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "The host names that requests may use for this address (the header `Host`, without a "
            "port): those of a proxy or a Kubernetes service. This machine's own names (localhost, "
            "127.0.0.1, the host of `listen`) are always allowed.",
            kind=kinds.list_of(
                kinds.text("the name of a host, such as admin.example.com", _wrong_host, _HOST),
                "names of hosts",
            ),
            default="none: with `token` any name; without one IP addresses and this machine's name",
            reason="through a domain that resolves to this address, another site's page could "
            "read and pause",
        ),
    )
    values: bool = field(
        default=False,
        metadata=about(
            "Whether people may request the values of records, masked by `mask`. Otherwise "
            "keys, headers and errors are shown, but no values.",
            kind=kinds.boolean(),
            reason="only the application knows what values contain",
        ),
    )
    pipeline: str | None = field(
        default=None,
        metadata=about(
            "The configuration of the pipeline, such as pipeline.yaml; a relative name starts at "
            "this file's directory. With it, the page shows journeys of records from the message "
            "trace, see docs/trace.md. Needs the extra spark.",
            kind=kinds.text("the path of a configuration of the pipeline"),
            default="none: no journeys",
        ),
    )
    insecure: bool = field(
        default=False,
        metadata=about(
            "Whether an address that others can reach needs no token or TLS, because "
            "something in front of it provides both.",
            kind=kinds.boolean(),
            reason="not everybody may see keys and errors, let alone pause workers",
        ),
    )

    @property
    def access(self) -> Tokens:
        """All tokens by name, ``token`` included; without any, everybody may do everything."""
        if self.token is None:
            return self.tokens
        admin = AccessToken(token=self.token, role=AccessRole.OPERATE)
        return {ADMIN: admin, **self.tokens}


def conflicts(admin: AdminConfig, given: Collection[str]) -> Iterator[Problem]:
    """Yield conflicts between valid keys."""
    del given
    tls, address = admin.tls, admin.address
    if admin.token is not None and ADMIN in admin.tokens:
        yield Problem(("tokens", ADMIN), "is the name of admin.token: choose another one")
    yield from shared_tokens(admin.access.items())
    if (tls.certificate is None) != (tls.key is None):
        missing = "certificate" if tls.certificate is None else "key"
        yield Problem(("tls", missing), "is missing: certificate and key go together")
        return
    if address is None or address.is_loopback or admin.insecure:
        return
    lacks = {"admin.token": not admin.access, "admin.tls": tls.certificate is None}
    if any(lacks.values()):
        missing = " and without ".join(key for key, is_missing in lacks.items() if is_missing)
        message = _OPEN_TO_OTHERS.format(given=admin.listen, missing=missing, port=address.port)
        yield Problem(("listen",), message)
