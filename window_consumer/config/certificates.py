"""Whether the files of ``admin.tls`` can be used, before anything starts."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from window_consumer.config.listening import AdminConfig

_MISMATCH = "KEY_VALUES_MISMATCH"


def certificate_problems(admin: AdminConfig, directory: Path) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with certificate and key: a key below ``admin.tls``, or "", and why.

    Relative names begin at ``directory``. Reads both files, and tells nothing of what is in them.
    """
    tls = admin.tls
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
        # A key with a passphrase would be asked for on the terminal.
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(directory / tls.certificate, directory / tls.key, lambda: "")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        if getattr(error, "reason", "") == _MISMATCH:
            why = "the key is not that of the certificate"
        else:
            why = "both have to be in PEM, the certificate first in its file, the key without a"
            why += " passphrase"
        yield "", f"{tls.certificate} and {tls.key} cannot be used: {why}"
