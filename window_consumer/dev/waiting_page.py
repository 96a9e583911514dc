"""What browsers get at the address of the page while the application does not run.

The library's own server suffices: the answer is always the same, and shows nothing of anybody.
"""

from __future__ import annotations

import html
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

HOST: Final = "127.0.0.1"

_POLL_S: Final = 0.05
"""How soon the server ends, so that the application can take the port."""

_PAGE: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="1">
<title>window-consumer dev</title></head>
<body><h1>{application} does not run</h1>
<p>{why}</p><p>This page reloads by itself.</p></body></html>
"""


@contextmanager
def waiting_page(port: int, application: str, why: str) -> Iterator[None]:
    """Answer every request with 503 and ``why`` inside the context, as a page or as JSON.

    Does nothing if the port is in use: the terminal has the reason, too.
    """
    page = _PAGE.format(application=html.escape(application), why=html.escape(why)).encode()
    error = json.dumps({"error": f"{application} does not run. {why}"}).encode()

    class WaitingHandler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            is_api = self.path.startswith("/api/")
            body, kind = (error, "application/json") if is_api else (page, "text/html")
            self.send_response(HTTPStatus.SERVICE_UNAVAILABLE)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer  # noqa: N815 - the library's names

        def log_message(self, *_: Any) -> None:
            """Write nothing to the terminal."""

    try:
        server = ThreadingHTTPServer((HOST, port), WaitingHandler)
    except OSError:
        yield
        return
    with server:
        thread = threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), name="wc-dev-page", daemon=True
        )
        thread.start()
        yield
        server.shutdown()
        thread.join()
