"""Asking an HTTP server the way that probes do."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit


def asked(url: str) -> tuple[int, str]:
    """Return the status and the text of an answer."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        connection.request("GET", address.path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()
