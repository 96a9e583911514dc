"""Where the process listens: addresses, and the sections that have them."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import about

_LARGEST_PORT = 65535
_HOST_NAME = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?"


class Address(NamedTuple):
    """A host and a port to listen on; port 0 stands for any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``host:port``, with brackets around an IPv6 address; raises ValueError."""
        host, colon, port = text.rpartition(":")
        if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > _LARGEST_PORT:
            raise ValueError(f"does not end with a port, from :0 to :{_LARGEST_PORT}")
        if host.startswith("[") and host.endswith("]"):
            host = str(ipaddress.IPv6Address(host[1:-1]))
        elif ":" in host:
            raise ValueError("an IPv6 address has brackets around it, as in '[::1]:8081'")
        elif not re.fullmatch(_HOST_NAME, host):
            raise ValueError("does not begin with a host; 0.0.0.0 stands for all of this machine")
        return cls(host, int(port))


def _wrong_address(text: str) -> str | None:
    try:
        Address.parse(text)
    except ValueError as error:
        return str(error)
    return None


def address_kind() -> kinds.Kind:
    """An address to listen on."""
    return kinds.text(
        "an address such as 127.0.0.1:8081", _wrong_address, r"^(\[[0-9A-Fa-f:.]+\]|[^:]+):[0-9]+$"
    )


@frozen(kw_only=True)
class HealthConfig:
    """Answers for probes and scrapers."""

    listen: str | None = field(
        default=None,
        metadata=about(
            "Where /livez, /readyz and /metrics are answered, over plain HTTP and for anybody who "
            "gets there; they tell nothing of records. Port 0 is any free one, the log says which.",
            kind=address_kind(),
            default="none: nothing listens",
        ),
    )

    @property
    def address(self) -> Address | None:
        """Where to listen, None for nowhere."""
        return None if self.listen is None else Address.parse(self.listen)
