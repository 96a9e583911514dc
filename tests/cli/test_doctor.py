"""``doctor``: each cause is produced for real, and named."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import attrs
import pytest
from confluent_kafka import Consumer, Producer

from tests.commands import DEADLINE_S, Command, Commands, Ended, kafka_of
from tests.telemetry.workers import a_snapshot, fake_worker, reported
from window_consumer.admin.client import Access, AdminAddress, ask
from window_consumer.admin.commands.doctor import processes_of
from window_consumer.admin.config import AdminConfig
from window_consumer.admin.doctor.collection import Process
from window_consumer.admin.doctor.rules.stuck import HOVERS_S, MANY_REBALANCES
from window_consumer.app.features import FEATURES
from window_consumer.cli.main import cli
from window_consumer.cli.output import guarded
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.plan.diagnosis import CauseKind
from window_consumer.plan.loading import load_without_handlers

SICK = """
import threading
import time

from window_consumer import App, Record

app = App("sick")
OVERTAKE = {"on_failure": "overtake"}


@app.handler("slow", concurrency=4)
def slow(record: Record) -> None:
    time.sleep(0.05)


@app.handler("hot", ordering="key", concurrency=8, retry=OVERTAKE)
def hot(record: Record) -> None:
    time.sleep(0.05)


@app.handler("lane", ordering="partition", concurrency=8, retry=OVERTAKE)
def lane(record: Record) -> None:
    time.sleep(0.05)


@app.handler("stuck", concurrency=8)
def stuck(record: Record) -> None:
    if record.text() == "stuck":
        threading.Event().wait(600)


@app.handler("broken", concurrency=8, retry={"attempts": 1})
def broken(record: Record) -> None:
    raise ConnectionError("no database")


@app.handler("starved", concurrency=8)
def starved(record: Record) -> None:
    pass


@app.handler("paced", concurrency=8)
def paced(record: Record) -> None:
    pass


@app.handler("moving", concurrency=8)
def moving(record: Record) -> None:
    pass


@app.handler("far", concurrency=8)
def far(record: Record) -> None:
    pass


@app.handler("blocking", concurrency=8)
async def blocking(record: Record) -> None:
    time.sleep(0.05)


@app.handler("poison", ordering="key", concurrency=8, retry={"on_failure": "block"})
def poison(record: Record) -> None:
    if record.text() == "bad":
        raise ValueError("no such customer")


@app.handler("well", concurrency=8)
def well(record: Record) -> None:
    pass
"""

ONE = dict.fromkeys(["stuck", "broken", "starved", "paced", "blocking", "poison", "well"], 1)
PARTITIONS = {"slow": 2, "hot": 2, "lane": 2, "moving": 4, **ONE}
A_RECORD_A_FETCH = {
    "fetch.message.max.bytes": 1000,
    "fetch.queue.backoff.ms": 1000,
    "queued.min.messages": 1,
}
ROUND_TRIP_MS = 220


@contextmanager
def meanwhile(step: Any) -> Iterator[None]:
    """Do something again and again on a thread beside."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            step(ended)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


def come_and_go(broker: EmbeddedBroker) -> Any:
    """A member of a group that joins, gets its share and leaves, in no more than a second."""

    def step(ended: threading.Event) -> None:
        settings = {**broker.client_settings(), "group.id": "sick-moving", "log_level": 0}
        consumer = Consumer(settings)
        consumer.subscribe(["moving"])
        while not consumer.assignment() and not ended.is_set():
            consumer.poll(0.05)
        ended.wait(0.2)
        consumer.close()
        ended.wait(0.2)

    return step


def write_to_slow(broker: EmbeddedBroker) -> Any:
    """400 records a second for a worker that does 80."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def step(ended: threading.Event) -> None:
        for _ in range(20):
            producer.produce("slow", b"v")
        producer.flush(10)
        ended.wait(0.05)

    return step


def fill(broker: EmbeddedBroker, far: EmbeddedBroker) -> None:
    for topic, partitions in PARTITIONS.items():
        broker.create_topic(topic, partitions)
    far.create_topic("far", 1)
    some = [NewRecord(b"v") for _ in range(1000)]
    # So many that nobody is through with them before he is asked, whatever delays that.
    many = [NewRecord(b"v") for _ in range(10_000)]
    keys = [b"customer-1" if number % 10 else b"%d" % number for number in range(4000)]
    broker.fill("slow", some)
    broker.fill("hot", [NewRecord(b"v", key) for key in keys])
    broker.fill("lane", [NewRecord(b"v", partition=0) for _ in range(4000)])
    broker.fill("stuck", [NewRecord(b"stuck" if each == 10 else b"v") for each in range(100)])
    for topic in ("broken", "well"):
        broker.fill(topic, some)
    behind = [NewRecord(b"v", b"customer-2") for _ in range(200)]
    broker.fill("poison", [*some[:50], NewRecord(b"bad", b"customer-2"), *behind])
    for topic in ("paced", "blocking"):
        broker.fill(topic, many)
    for _ in range(400):
        broker.produce("starved", b"v" * 1000)
        far.produce("far", b"v" * 1000)


def configuration(broker: EmbeddedBroker, far: EmbeddedBroker) -> dict[str, Any]:
    workers: dict[str, dict[str, Any]] = {name: {"group": f"sick-{name}"} for name in PARTITIONS}
    workers["paced"]["rate_per_process"] = "20/s"
    workers["starved"]["kafka"] = {"consumer": A_RECORD_A_FETCH}
    kafka = kafka_of(far)
    kafka["consumer"] |= A_RECORD_A_FETCH
    workers["far"] = {"group": "sick-far", "kafka": kafka}
    here = {"listen": "127.0.0.1:0"}
    return {"kafka": kafka_of(broker), "workers": workers, "admin": here, "health": here}


def address_of(command: Command, what: str) -> str:
    command.wait_for(f"{what}: http")
    found = re.search(rf"{what}: http://(\S+?)/? for", command.said)
    assert found is not None
    return found[1]


def wait_until_it_shows(address: str) -> None:
    """Wait until the window hovers and partitions come and go: the rest shows at once."""
    deadline = monotonic() + DEADLINE_S
    while monotonic() < deadline:
        reported = ask(AdminAddress.parse(address), Access()).workers
        seen = {each.name: each.windows for each in reported}
        stuck, moving = seen["stuck"], seen["moving"]
        if stuck is not None and moving is not None:
            hovers = any(each.hovering_s >= HOVERS_S / 2 for each in stuck.partitions)
            if hovers and len(moving.changes_s) >= MANY_REBALANCES:
                return
        threading.Event().wait(0.1)
    pytest.fail("the workers do not get into trouble")


@pytest.fixture(scope="module")
def diagnoses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ended, Ended]]:
    """What is said of all of these workers: by their admin address, and by their metrics."""
    directory = tmp_path_factory.mktemp("sick")
    with EmbeddedBroker() as broker, EmbeddedBroker() as far, Commands(directory) as commands:
        fill(broker, far)
        commands.application(SICK, "sick")
        commands.configure(configuration(broker, far))
        run = commands.start("run", "sick:app")
        for name in (*PARTITIONS, "far"):
            run.wait_for(f"{name}: reads")
        health = address_of(run, "health")
        asked = ("doctor", "--app", "sick:app", "--json", "--for", "3s")
        with meanwhile(come_and_go(broker)), meanwhile(write_to_slow(broker)):
            wait_until_it_shows(address_of(run, "admin"))
            far.set_rtt(ROUND_TRIP_MS)
            by_admin = commands.start(*asked, "--url", address_of(run, "admin"))
            of_health = ("--set", f"health.listen={health}", "--worker", "hot", "--worker", "slow")
            by_metrics = commands.start(*asked, *of_health)
            yield by_admin.wait(), by_metrics.wait()


def causes_of(ended: Ended, worker: str) -> list[dict[str, Any]]:
    assert ended.code == 3, ended.said
    return [each for each in ended.json["causes"] if each["worker"] == worker]


CAUSES = [
    ("slow", "handler_slow", None, r"\b\d[\d,.]* slots\b.*\b4\b"),
    ("hot", "hot_key", r"hot\[\d\]", "'customer-1'"),
    ("lane", "hot_partition", r"lane\[0\]", r"lane\[0\]|\d+ records"),
    ("stuck", "hovering", r"stuck\[0\]", r"offset 10\b.*sick\.py.*, in stuck"),
    ("broken", "breaker_open", None, r"(open|half-open) .*: \d+ .*Error: no database;"),
    (
        "poison",
        "poison_record",
        r"poison\[0\]",
        r"offset 50\b.*'customer-2'.*ValueError: no such customer; 200 ",
    ),
    ("starved", "fetch_bound", None, r"\d+ records"),
    ("paced", "rate", None, "rate_per_process "),
    ("moving", "rebalances", None, r"\d+ times"),
    ("blocking", "loop_blocked", None, "event loop"),
    ("far", "broker_slow", None, r"\d ms\b"),
]


@pytest.mark.parametrize(("worker", "cause", "partition", "sentence"), CAUSES)
def test_the_cause_is_named_first_with_its_figures(
    diagnoses: tuple[Ended, Ended], worker: str, cause: str, partition: str | None, sentence: str
) -> None:
    found = causes_of(diagnoses[0], worker)
    assert found, diagnoses[0].json
    first = found[0]
    assert first["cause"] == cause
    assert re.search(sentence, first["sentence"]), first["sentence"]
    assert first["partition"] is None if partition is None else first["partition"]
    assert partition is None or re.fullmatch(partition, first["partition"])
    assert first["figures"]


def test_who_is_well_is_said_to_be(diagnoses: tuple[Ended, Ended]) -> None:
    ended = diagnoses[0]
    assert causes_of(ended, "well") == []
    assert any(line.startswith("well: ") for line in ended.json["well"])


def test_the_stack_of_what_hovers_is_reported(diagnoses: tuple[Ended, Ended]) -> None:
    (found, *_) = causes_of(diagnoses[0], "stuck")
    assert "threading.Event().wait(600)" in found["stack"]
    assert found["figures"]["offset"] == 10


def test_metrics_alone_tell_as_much_but_no_keys(diagnoses: tuple[Ended, Ended]) -> None:
    ended = diagnoses[1]
    assert [each["cause"] for each in causes_of(ended, "hot")] == ["hot_key"]
    assert [each["cause"] for each in causes_of(ended, "slow")] == ["handler_slow"]
    assert "customer-1" not in ended.said
    assert causes_of(ended, "lane") == []


# ---- one interpreter

COMPUTING = """
from window_consumer import App, Record

app = App("computing")


@app.handler("sums", group="computing", concurrency=4)
def add(record: Record) -> None:
    sum(range(400_000))
"""


TURNS = 3
"""In one of them others may have the machine: then no interpreter holds anybody up."""


@pytest.mark.alone
@pytest.mark.parametrize(
    ("function", "kind"), [("def", CauseKind.GIL_BOUND), ("async def", CauseKind.LOOP_BOUND)]
)
def test_a_handler_that_computes_is_bound_by_one_interpreter(
    commands: Commands, embedded: EmbeddedBroker, function: str, kind: CauseKind
) -> None:
    embedded.create_topic("sums", 1)
    embedded.fill("sums", [NewRecord(b"v") for _ in range(20_000)])
    commands.application(COMPUTING.replace("def", function), "computing")
    admin = {"listen": "127.0.0.1:0"}
    commands.configure({"kafka": kafka_of(embedded), "workers": {"add": {}}, "admin": admin})
    run = commands.start("run", "computing:app")
    run.wait_for("add: reads")
    url = address_of(run, "admin")
    asked = ("--app", "computing:app", "--url", url, "--for", "2s", "--json")
    found = [commands.run("doctor", *asked) for _ in range(TURNS)]
    first = [causes_of(ended, "add")[0]["cause"] for ended in found]
    assert first.count(kind) > TURNS / 2, first


# ---- nobody to ask

ALONE = {"workers": {"charge": {"group": "shop", "topics": ["orders"], "ordering": "unordered"}}}


@pytest.fixture
def doctor(
    commands: Commands, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    """Run the command in this process until it ends."""
    monkeypatch.chdir(commands.directory)

    def run(*arguments: str) -> Ended:
        code = guarded(lambda: int(cli.main(["doctor", *arguments], standalone_mode=False) or 0))
        return Ended(code, *capsys.readouterr())

    return run


def test_without_a_worker_the_cluster_tells_of_its_group(
    doctor: Callable[..., Ended], commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("orders", 2)
    embedded.fill("orders", [NewRecord(b"v") for _ in range(10)])
    commands.configure({**ALONE, "kafka": kafka_of(embedded)})
    ended = doctor("--for", "2s")
    assert ended.code == 3, ended.said
    assert re.match(r"charge: 10 .*\b5 .*\borders\[0\]", ended.out)
    assert "--url" in ended.out
    assert "note: " in ended.out


def test_where_nothing_answers_it_is_exit_code_1_and_says_what_was_tried(
    doctor: Callable[..., Ended], commands: Commands
) -> None:
    commands.configure({**ALONE, "kafka": {"bootstrap.servers": "127.0.0.1:1"}})
    ended = doctor("--for", "1h", "--start-timeout", "500ms", "--url", "http://127.0.0.1:2")
    assert ended.code == 1
    assert re.search(r"charge: .*127\.0\.0\.1:1 .*\b0\.5 s", ended.err)
    assert "http://127.0.0.1:2: " in ended.err


def test_a_worker_without_a_broker_is_not_called_well(
    doctor: Callable[..., Ended], commands: Commands
) -> None:
    commands.configure({**ALONE, "kafka": {"bootstrap.servers": "127.0.0.1:1"}})
    idle = reported(attrs.evolve(a_snapshot(), calls=(), partitions=()))
    with fake_worker(idle) as worker:
        ended = doctor("--for", "2s", "--start-timeout", "100ms", "--url", worker.url)
    assert ended.code == 3
    first = ended.out.splitlines()[0]
    assert first.startswith("charge: ")
    assert " broker " in first
    assert re.search(r"note: charge: .*127\.0\.0\.1:1 ", ended.out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--for", "1s"), "--for: at least 2s"),
        (("--worker", "refund"), "--worker refund: "),
        (("--url", "gopher://x"), "gopher://x"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    doctor: Callable[..., Ended], commands: Commands, arguments: tuple[str, ...], said: str
) -> None:
    commands.configure({**ALONE, "kafka": {"bootstrap.servers": "127.0.0.1:1"}})
    ended = doctor(*arguments)
    assert ended.code == 2
    assert said in ended.err


def test_where_it_asks_by_itself_is_what_the_configuration_says(tmp_path: Path) -> None:
    def asked(text: str, token: str | None = None) -> list[Process]:
        file = tmp_path / "workers.yaml"
        kafka = "kafka: {bootstrap.servers: a:1}"
        worker = "workers: {charge: {group: shop, topics: [orders], ordering: unordered}}"
        file.write_text(f"{kafka}\n{worker}\n{text}")
        config = load_without_handlers(file, None, (), FEATURES).config
        admin, probes = config.section(AdminConfig), FEATURES.readiness_address(config)
        return processes_of(admin, probes, (), Access(token), tmp_path)[0]

    (admin,) = asked("admin: {listen: 127.0.0.1:8090, token: 0123456789abcdef}")
    assert (str(admin.address), admin.has_windows) == ("http://127.0.0.1:8090", True)
    assert admin.access.headers() == {"Authorization": "Bearer 0123456789abcdef"}
    (given,) = asked("admin: {listen: 127.0.0.1:8090, token: 0123456789abcdef}", "another")
    assert given.access.headers() == {"Authorization": "Bearer another"}
    (health,) = asked("health: {listen: 0.0.0.0:8081}")
    assert (str(health.address), health.has_windows) == ("http://127.0.0.1:8081", False)
    assert asked("admin: {listen: 127.0.0.1:0}") == []
