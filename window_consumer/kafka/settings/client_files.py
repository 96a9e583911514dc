"""Checks the files in Kafka properties: for a missing one, librdkafka reports an OpenSSL error."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_FILES: Final = frozenset(
    {
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.crl.location",
        "sasl.kerberos.keytab",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "sasl.oauthbearer.assertion.private.key.file",
    }
)
_FILES_OR_DIRECTORIES: Final = frozenset({"ssl.ca.location", "https.ca.location"})
_NO_PATH: Final = frozenset({"", "probe"})
"""Values with which librdkafka finds the system's certificates by itself."""


def unusable_files(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each property whose file cannot be read, and the reason."""
    for key, value in user.items():
        path = str(value)
        if key not in _FILES | _FILES_OR_DIRECTORIES or path in _NO_PATH:
            continue
        why = _unusable(Path(path), may_be_directory=key in _FILES_OR_DIRECTORIES)
        if why is not None:
            yield key, f"{key}: {_shown(path)} {why}"


def names_a_file(key: str) -> bool:
    """Return whether a property's value is the path of a file."""
    return key in _FILES | _FILES_OR_DIRECTORIES


def _unusable(path: Path, *, may_be_directory: bool) -> str | None:
    if not path.exists():
        return "does not exist: put the file there, or correct the path"
    if path.is_dir() and not may_be_directory:
        return "is a directory: name the file in it"
    if not os.access(path, os.R_OK):
        return f"may not be read by user {os.getuid()}: change its permissions or its owner"
    return None


def _shown(path: str) -> str:
    """Return a path that a user can find; relative ones with the process's working directory."""
    return path if Path(path).is_absolute() else f"{path} (in {Path.cwd()})"
