"""Programs that know nothing of Kafka: Celery, and Amazon's client for Node.js."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from celery import Celery

from tests.parts import PartMissingError, javascript, javascript_directory
from tests.sqs.celery_program import DEADLINE_S, CeleryProgram
from tests.sqs.endpoint import ACCESS_KEY, CREDENTIALS, SECRET, TestEndpoint, endpoint
from tests.sqs.memory_queue import MemoryQueue


@pytest.fixture(scope="module")
def sdk() -> Path:
    try:
        javascript()
    except PartMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    return javascript_directory()


@pytest.fixture
def served() -> Iterator[TestEndpoint]:
    queues = MemoryQueue("orders"), MemoryQueue("mails.fifo", fifo=True)
    with endpoint(*queues, credentials=CREDENTIALS) as served:
        yield served


@pytest.mark.parametrize("name", ["orders", "mails.fifo"])
def test_node_sends_and_receives(sdk: Path, served: TestEndpoint, name: str) -> None:
    node = shutil.which("node")
    assert node is not None
    ended = subprocess.run(
        [node, str(Path(__file__).parent / "javascript" / "client.mjs"), sdk, served.url, name],
        env=os.environ | {"ACCESS_KEY": ACCESS_KEY, "SECRET": SECRET},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    saw = json.loads(ended.stdout)
    assert saw["url"] == f"{served.url}/000000000000/{name}"
    assert [each["body"] for each in saw["received"]] == ["grüezi 🎈", "a", "b"]
    first = saw["received"][0]
    assert first["photo"] == {"DataType": "Binary", "BinaryValue": {"0": 0, "1": 255}}
    assert first["price"] == {"DataType": "Number", "StringValue": "1.5"}
    assert first.get("MessageGroupId") == ("g" if name.endswith(".fifo") else None)
    assert saw["refused"] == ["QueueDoesNotExist", "ReceiptHandleIsInvalid", "UnsupportedOperation"]
    assert served.queues[name].unfinished == 0


@pytest.mark.parametrize("predefined", [True, False], ids=["predefined_queues", "listed queues"])
def test_celery_runs_its_tasks(served: TestEndpoint, tmp_path: Path, predefined: bool) -> None:  # noqa: FBT001 - parametrized
    celery = CeleryProgram(served.url, tmp_path, predefined=predefined)
    celery.send_tasks()
    with celery.working() as worker:
        deadline = time.monotonic() + DEADLINE_S
        while any(each.unfinished for each in served.queues.values()):
            assert time.monotonic() < deadline
            assert worker.poll() is None
            time.sleep(0.05)
    celery.check_all_done()
    assert served.figures.failed == 0


@pytest.mark.parametrize(("leases", "left"), [(4, 1), (None, 0)], ids=["dead letters", "none"])
def test_what_celery_rejects_becomes_a_dead_letter_where_there_are_some(
    served: TestEndpoint, leases: int | None, left: int
) -> None:
    stored = served.queues["orders"]
    stored.leases_until_dead = leases
    found = served.client().get_queue_attributes(
        QueueUrl=f"{served.url}/0/orders", AttributeNames=["RedrivePolicy"]
    )
    policy = json.loads(found.get("Attributes", {}).get("RedrivePolicy", "{}"))
    assert policy.get("maxReceiveCount") == leases
    app = Celery("tasks", broker=f"sqs://{ACCESS_KEY}:{quote(SECRET)}@127.0.0.1:{served.port}//")
    app.conf.broker_transport_options = {"region": "eu-west-1", "is_secure": False}
    with app, app.connection() as connection, connection.SimpleQueue("orders") as queue:
        queue.put({"order": 17})
        queue.get(timeout=20).reject()
    assert stored.unfinished == left
