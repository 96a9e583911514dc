"""Addresses to listen on, for the sections of features, and their certificates."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import about

_LARGEST_PORT = 65535
_HOST_NAME = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?"


class ListenAddress(NamedTuple):
    """A host and a port to listen on; port 0 means any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Read ``host:port``, with brackets around an IPv6 address; raises ValueError."""
        host, colon, port = text.rpartition(":")
        if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > _LARGEST_PORT:
            raise ValueError(f"does not end with a port, from :0 to :{_LARGEST_PORT}")
        if host.startswith("[") and host.endswith("]"):
            host = str(ipaddress.IPv6Address(host[1:-1]))
        elif ":" in host:
            raise ValueError("an IPv6 address needs brackets, as in '[::1]:8081'")
        elif not re.fullmatch(_HOST_NAME, host):
            raise ValueError("does not begin with a host; 0.0.0.0 means all of this machine")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def _wrong_address(text: str) -> str | None:
    try:
        ListenAddress.parse(text)
    except ValueError as error:
        return str(error)
    return None


def address_kind() -> kinds.ValueKind:
    """An address to listen on."""
    return kinds.text(
        "an address such as 127.0.0.1:8081", _wrong_address, r"^(\[[0-9A-Fa-f:.]+\]|[^:]+):[0-9]+$"
    )


@frozen(kw_only=True)
class ListenSection:
    """A section with an address to listen on, which no other section may have."""

    listen: str | None

    @property
    def address(self) -> ListenAddress | None:
        """Where to listen; None: nowhere."""
        return None if self.listen is None else ListenAddress.parse(self.listen)


def _file_kind(what: str) -> kinds.ValueKind:
    return kinds.text(f"the path of a file with {what}, in PEM")


@frozen(kw_only=True)
class TlsConfig:
    """The certificate that a server presents, and its key."""

    certificate: str | None = field(
        default=None,
        metadata=about(
            "The certificate, followed by its chain up to the root.",
            kind=_file_kind("a certificate"),
            default="none: plain HTTP",
        ),
    )
    key: str | None = field(
        default=None,
        metadata=about(
            "The certificate's private key, without a passphrase.",
            kind=_file_kind("a private key"),
            default="none: plain HTTP",
        ),
    )


_MISMATCH: Final = "KEY_VALUES_MISMATCH"


def certificate_problems(tls: TlsConfig, directory: Path) -> Iterator[tuple[str, str]]:
    """Yield problems of certificate and key: a key below ``tls``, or "", and the reason.

    Relative names start at ``directory``. Reads both files; messages reveal nothing from them.
    """
    if tls.certificate is None or tls.key is None:
        return
    unreadable = False
    for key, name in (("certificate", tls.certificate), ("key", tls.key)):
        try:
            (directory / name).read_bytes()
        except OSError as error:
            unreadable = True
            why = error.strerror or str(error)
            yield key, f"{directory / name} cannot be read: {why}"
    if unreadable:
        return
    try:
        # Without the empty passphrase, OpenSSL would ask for one on the terminal.
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(directory / tls.certificate, directory / tls.key, lambda: "")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        if getattr(error, "reason", "") == _MISMATCH:
            why = "the key does not belong to the certificate"
        else:
            why = "both must be in PEM, the certificate first in its file, the key without a"
            why += " passphrase"
        yield "", f"{tls.certificate} and {tls.key} cannot be used: {why}"
