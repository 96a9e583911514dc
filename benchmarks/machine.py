"""The machine and the versions behind the figures."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import confluent_kafka

import window_consumer


def describe(kafka: str) -> dict[str, Any]:
    """Return the machine and the versions; ``kafka`` describes the broker."""
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**3
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(gib, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "window_consumer": window_consumer.__version__,
        "confluent_kafka": confluent_kafka.version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "kafka": kafka,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
