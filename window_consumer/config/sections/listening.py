"""Addresses to listen on, as sections of features have them."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from attrs import frozen

from window_consumer.config import kinds

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
            raise ValueError("an IPv6 address has brackets around it, as in '[::1]:8081'")
        elif not re.fullmatch(_HOST_NAME, host):
            raise ValueError("does not begin with a host; 0.0.0.0 means all of this machine")
        return cls(host, int(port))

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
    """A section with an address to listen on. No two of them have the same one."""

    listen: str | None

    @property
    def address(self) -> ListenAddress | None:
        """Where to listen; None for nowhere."""
        return None if self.listen is None else ListenAddress.parse(self.listen)
