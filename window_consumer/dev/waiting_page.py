"""The page that browsers get while the application is not running.

The standard library's server suffices: the answer is always the same. It shows the end of the
output only to requests by this machine's own name: other sites' pages cannot read it.
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

_NAMES: Final = {HOST, "localhost"}

_POLL_S: Final = 0.05
"""How soon the server ends, so that the application can take the port."""

_PAGE: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="1">
<title>window-consumer dev</title></head>
<body><h1>{application} does not run</h1>
<p>{why} This page reloads by itself.</p><pre>{output}</pre></body></html>
"""


@contextmanager
def waiting_page(port: int, application: str, why: str, output: str) -> Iterator[None]:
    """Answer every request with 503, ``why`` and the application's last ``output``.

    That is a page, or JSON below /api/. Does nothing if the port is in use: the terminal has the
    output, too.
    """

    def page(shown: str) -> bytes:
        texts = {"application": application, "why": why, "output": shown}
        return _PAGE.format(**{name: html.escape(text) for name, text in texts.items()}).encode()

    def error(shown: str) -> bytes:
        said = f"{application} does not run. {why}"
        return json.dumps({"error": said, "output": shown}).encode()

    class WaitingHandler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            is_ours = self.headers.get("Host", "").partition(":")[0] in _NAMES
            is_api = self.path.startswith("/api/")
            body = (error if is_api else page)(output if is_ours else "")
            kind = "application/json" if is_api else "text/html"
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
