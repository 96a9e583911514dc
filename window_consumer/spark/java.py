"""The Java that Spark runs on: which one it is, and whether it is recent enough."""

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
    f"Spark needs Java {AT_LEAST} or later, by JAVA_HOME or in the PATH (Debian: apt-get"
    f" install openjdk-{AT_LEAST}-jre-headless)"
)


class NoJavaError(UsageError):
    """Spark needs a Java that is missing; the message says which."""


def path() -> str:
    """Return the `java` in use; raises NoJavaError."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None or not Path(found).is_file():
        where = f"JAVA_HOME is {home}, and there is none" if home else "no `java` found"
        raise NoJavaError(f"{where}: {_ADVICE}")
    return found


@cache
def version_text(path: str) -> str:
    """Return the output of `java -version`; raises NoJavaError where it cannot start."""
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - the user's own Java
    except OSError as error:
        raise NoJavaError(f"{path} cannot be started ({error.strerror}): {_ADVICE}") from error
    return done.stderr


def check() -> None:
    """Raise NoJavaError where Java is missing, cannot be started or is too old."""
    used = path()
    said = version_text(used)
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < AT_LEAST:
        raise NoJavaError(f"{used} is too old, it says {said.strip()!r}: {_ADVICE}")
