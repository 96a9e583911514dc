"""The Java that Spark runs on, and the check that it is recent enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from window_consumer.model.errors import UsageError

AT_LEAST: Final = 17


_ADVICE: Final = (
    f"Spark needs Java {AT_LEAST} or later, in JAVA_HOME or on the PATH (Debian: apt-get"
    f" install openjdk-{AT_LEAST}-jre-headless)"
)


class NoJavaError(UsageError):
    """Java is missing or too old for Spark; the message says which version it needs."""

    code = "WC170"


def path() -> str:
    """Return the `java` in use; raises NoJavaError."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None or not Path(found).is_file():
        where = f"JAVA_HOME is {home}, which has no Java" if home else "`java` not found"
        raise NoJavaError(f"{where}: {_ADVICE}")
    return found


@cache
def version_text(path: str) -> str:
    """Return the output of `java -version`; raises NoJavaError if it cannot start."""
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - the user's own Java
    except OSError as error:
        raise NoJavaError(f"cannot start {path} ({error.strerror}): {_ADVICE}") from error
    return done.stderr


def check() -> None:
    """Raise NoJavaError if Java is missing, cannot be started or is too old."""
    used = path()
    version = version_text(used)
    found = re.search(r'version "(\d+)', version)
    if found is None or int(found[1]) < AT_LEAST:
        raise NoJavaError(f"{used} is too old, it reports {version.strip()!r}: {_ADVICE}")
