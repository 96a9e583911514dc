"""``pull``: rates of SQS clients, and how soon they get a dead client's records."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import Any, Final

from attrs import asdict

from benchmarks import children, usage
from benchmarks.results import Run
from benchmarks.topics import Topics
from benchmarks.workloads import TopicSpec, Workload
from window_consumer.model.errors import RunError

_QUEUE: Final = "orders"
_CLIENTS: Final = 4
"""Connections that receive at once."""
_TEN: Final = 10
_START_S: Final = 60.0
_DEAD: Final = TopicSpec(records=20)
_LEASE_S: Final = 2


def run(topics: Topics, workload: Workload) -> Run:
    """Receive and delete a topic in tens; then wait for the records of a client that has died."""
    fast = _measured("pull_all", topics, workload.topic)
    slow = _measured("pull_dead", topics, _DEAD)
    ours = Run(**fast)
    return Run(
        ours.records_per_s,
        ours.cpu_s,
        ours.max_rss_mb,
        lost=ours.lost + slow["lost"],
        ratios={"messages_s": ours.records_per_s, "visibility_s": slow["ratios"]["visibility_s"]},
    )


def _measured(part: str, topics: Topics, spec: TopicSpec) -> Any:
    topic = topics.filled(spec, lambda _: None)
    with _served(topics.bootstrap, topic) as port:
        return children.run(part, port=port, records=spec.records)


@contextmanager
def _served(bootstrap: str, topic: str) -> Iterator[int]:
    """Run `window-consumer run` with a queue over a topic; yield the port of its endpoint."""
    with create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    worker = {
        "topics": [topic],
        "group": f"wc-bench-{uuid.uuid4().hex[:12]}",
        "stop_timeout": "0s",
        "pull": {"visibility_timeout": "10m"},
    }
    sections = {
        "kafka": {"bootstrap.servers": bootstrap},
        "sqs": {"listen": f"127.0.0.1:{port}"},
        "workers": {_QUEUE: worker},
    }
    with tempfile.TemporaryDirectory(prefix="wc-bench-") as folder:
        file = Path(folder) / "workers.json"  # which is YAML, too
        file.write_text(json.dumps(sections))
        command = [sys.executable, "-m", "window_consumer", "run", "-c", str(file)]
        process = subprocess.Popen([*command, "--log-level", "error"], cwd=children.CHECKOUT)
        try:
            yield port
        finally:
            process.terminate()
            process.wait()


class QueueClient:
    """A client on one connection, without signatures."""

    def __init__(self, port: int):
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._url = self._found_queue(time.monotonic() + _START_S)

    def receive(self, wait_s: int, visibility_s: int | None = None) -> list[dict[str, str]]:
        """Receive up to ten messages."""
        given = {"MaxNumberOfMessages": _TEN, "WaitTimeSeconds": wait_s}
        if visibility_s is not None:
            given["VisibilityTimeout"] = visibility_s
        found: list[dict[str, str]] = self._call("ReceiveMessage", **given).get("Messages", [])
        return found

    def delete(self, messages: list[dict[str, str]]) -> None:
        """Delete messages; raises RunError if one cannot be."""
        entries = [
            {"Id": str(number), "ReceiptHandle": each["ReceiptHandle"]}
            for number, each in enumerate(messages)
        ]
        if failed := self._call("DeleteMessageBatch", Entries=entries)["Failed"]:
            raise RunError(f"not deleted: {failed}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _found_queue(self, until: float) -> str:
        while True:
            try:
                return str(self._ask("GetQueueUrl", {"QueueName": _QUEUE})["QueueUrl"])
            except ConnectionError:
                if time.monotonic() > until:
                    raise
                self._connection.close()
                time.sleep(0.1)

    def _call(self, name: str, **given: Any) -> Any:
        return self._ask(name, {"QueueUrl": self._url, **given})

    def _ask(self, name: str, given: Mapping[str, Any]) -> Any:
        headers = {
            "X-Amz-Target": f"AmazonSQS.{name}",
            "Content-Type": "application/x-amz-json-1.0",
        }
        self._connection.request("POST", "/", json.dumps(given), headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            raise RunError(f"{name}: {answer.status} {body.decode()}")
        return json.loads(body)


def pull_all(port: int, records: int) -> Any:
    """Receive and delete all records in tens, on several connections: a child process."""
    clients = [QueueClient(port) for _ in range(_CLIENTS)]
    deleted: set[str] = set()
    last = time.perf_counter()

    def work(client: QueueClient) -> None:
        nonlocal last
        while len(deleted) < records:
            messages = client.receive(1)
            if messages:
                client.delete(messages)
                deleted.update(each["MessageId"] for each in messages)
                last = time.perf_counter()

    first = clients[0].receive(20)  # from here on the worker has its partitions
    used, began = usage.cpu_s(), time.perf_counter()
    clients[0].delete(first)
    deleted.update(each["MessageId"] for each in first)
    with ThreadPoolExecutor(_CLIENTS) as threads:
        list(threads.map(work, clients))
    rate = records / (last - began)
    return asdict(Run(rate, usage.cpu_s() - used, usage.max_rss_mb(), lost=records - len(deleted)))


def pull_dead(port: int, records: int) -> Any:
    """Receive with a client that dies, and wait with another one: a child process."""
    dead, other = QueueClient(port), QueueClient(port)
    leased: dict[str, float] = {}
    while len(leased) < records:
        for each in dead.receive(20, _LEASE_S):
            leased[each["MessageId"]] = time.perf_counter()
    dead.close()
    late: dict[str, float] = {}
    while len(late) < records:
        messages = other.receive(20, _TEN * _LEASE_S)
        now = time.perf_counter()
        for each in messages:
            late.setdefault(each["MessageId"], now - leased[each["MessageId"]] - _LEASE_S)
        other.delete(messages)
    ratios = {"visibility_s": max(late.values())}
    return asdict(Run(0.0, lost=len(leased.keys() - late.keys()), ratios=ratios))


RUNS: Mapping[str, Callable[[Topics, Workload], Run]] = {"sqs": run}
