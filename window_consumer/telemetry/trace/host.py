"""The address of this host."""

from __future__ import annotations

import socket


def host_address() -> str:
    """Return the address of this host, as others may see it; asks nobody."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: it only looks into the routes. The address is one for documentation.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
