"""Self-signed certificates for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(certificate: Path, key: Path) -> None:
    """Write a certificate for 127.0.0.1 and its key."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"),
            *("subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
