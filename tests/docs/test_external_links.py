"""Links of the pages to other sites: their form, and what `make links` says of one."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from docs.external_links import broken, external_links

PACKAGES = re.compile(r"(pypi|registry|repo\d?|proxy|files|index)\.")
"""Hosts of package registries: a project's own page says more, and lives longer."""


def test_links_to_other_sites_are_public_addresses() -> None:
    links = external_links()
    assert len(links) > 50
    form = re.compile(r"https://(?P<host>[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]{2,})(/\S*)?")
    found = {link: form.fullmatch(link) for link in links}
    assert [link for link, match in found.items() if match is None] == []
    assert [link for link, match in found.items() if match and PACKAGES.match(match["host"])] == []


def test_a_link_that_leads_nowhere_is_told_from_one_that_refuses_programs() -> None:
    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(int(self.path[1:]))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        site = f"http://127.0.0.1:{server.server_port}"
        found = broken([f"{site}/{code}" for code in (200, 403, 404, 500)])
        server.shutdown()
    assert found.keys() == {f"{site}/404", f"{site}/500"}
