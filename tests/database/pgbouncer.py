"""PgBouncer with transaction pooling in front of a server, as a child process."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from window_consumer.testing.real_kafka_settings import free_addresses

PATIENCE_S = 120.0
"""Of a machine that does much else."""

_UNPRIVILEGED = "postgres"
"""PgBouncer refuses to run as root."""


@contextmanager
def bouncing(url: str, directory: Path, pool_size: int = 2) -> Iterator[str]:
    """Start PgBouncer in front of a database; yield the URL of that database through it."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("no PgBouncer: run `apt-get install pgbouncer`, or its like, as root")
    behind = sa.make_url(url)
    for folder in (directory, *directory.parents):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o011)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        port, process = _started(program, behind, directory, pool_size)
        try:
            if not _is_open(port, process, deadline):
                continue  # another process has taken the port meanwhile
            yield behind.set(port=port).render_as_string(hide_password=False)
            return
        finally:
            process.kill()
            process.wait(PATIENCE_S)


def _started(
    program: str, behind: sa.URL, directory: Path, pool_size: int
) -> tuple[int, subprocess.Popen[bytes]]:
    _, _, port = free_addresses(1)[0].rpartition(":")
    file = directory / "pgbouncer.ini"
    file.write_text(
        # auth_type any logs everybody in as the user of this line.
        f"[databases]\n* = host={behind.host} port={behind.port} user={behind.username}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
        f"unix_socket_dir =\npool_mode = transaction\ndefault_pool_size = {pool_size}\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    file.chmod(0o644)
    user = _UNPRIVILEGED if os.geteuid() == 0 else None
    process = subprocess.Popen(
        [program, str(file)],
        user=user,
        group=None if user is None else pwd.getpwnam(user).pw_gid,
        extra_groups=None if user is None else [],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return int(port), process


def _is_open(port: int, process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Wait for the port; return False if the process has ended without it."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            assert time.monotonic() < deadline, f"PgBouncer: port {port} is not open"
            if process.poll() is not None:
                return False
            time.sleep(0.02)
        else:
            return process.poll() is None
