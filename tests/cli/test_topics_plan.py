"""``topics plan``: what has to be there for the workers of a configuration."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.applications import SHOP
from tests.commands import Commands, Ended
from tests.plans import Acl, Printed, TopicSettings, from_shell, from_strimzi, from_terraform
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.topics.formats.identifiers import identifier, kubernetes_name

DAY_MS = 24 * 60 * 60 * 1000
SIZES = ("--partitions", "6", "--replication-factor", "3")
KAFKA = {"bootstrap.servers": "broker:9092"}
RETRY = {"levels": ["10s", "1m", "30d"]}


CHARGE = {"group": "shop-charge", "topics": ["orders"], "retry": RETRY}


def configure(commands: Commands, *, ladder: Any = None, **worker: Any) -> None:
    workers = {"charge": {**CHARGE, **worker}}
    commands.configure({"kafka": KAFKA, "workers": workers, "topics": ladder or {}})


def plan(commands: Commands, *options: str) -> Ended:
    ended = commands.run("topics", "plan", *SIZES, *options)
    assert ended.code == 0, ended.err
    return ended


def copies(retention_ms: int = 14 * DAY_MS) -> TopicSettings:
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        "max.message.bytes": str(1_048_588 + 64 * 1024),
    }
    return TopicSettings(6, 3, config)


def test_all_topics_of_the_ladder_are_printed_with_their_settings(commands: Commands) -> None:
    configure(commands)
    printed = from_shell(plan(commands).out)
    assert printed.topics == {
        "shop-charge.orders.retry.10s": copies(),
        "shop-charge.orders.retry.1m": copies(),
        "shop-charge.orders.retry.30d": copies(60 * DAY_MS),
        "shop-charge.orders.dlq": copies(),
        "shop-charge.orders.retry.now": copies(),
        "shop-charge.dlq.state": TopicSettings(1, 3, {"cleanup.policy": "compact"}),
    }


def acls_of(printed: Printed) -> dict[tuple[str, str, bool], set[str]]:
    found: dict[tuple[str, str, bool], set[str]] = {}
    for acl in printed.acls:
        found.setdefault((acl.kind, acl.name, acl.is_prefix), set()).add(acl.operation)
    return found


def test_the_relay_of_an_outbox_may_use_its_transactional_ids(commands: Commands) -> None:
    outbox = {"database": "postgresql+psycopg://shop@db/shop", "table": "events.out"}
    commands.configure({"kafka": KAFKA, "workers": {"charge": CHARGE}, "outbox": outbox})
    found = acls_of(from_shell(plan(commands, "--principal", "User:shop").out))
    assert found["transactional", "wc-outbox-events.out-", True] == {"Write", "Describe"}


def test_the_permissions_are_those_of_the_worker_of_replays_and_redrives(
    commands: Commands,
) -> None:
    configure(commands)
    printed = from_shell(plan(commands, "--principal", "User:shop").out)
    assert {acl.principal for acl in printed.acls} == {"User:shop"}
    assert acls_of(printed) == {
        ("topic", "orders", False): {"Read", "Describe", "DescribeConfigs"},
        ("group", "shop-charge", False): {"Read"},
        ("topic", "shop-charge.", True): {
            *("Read", "Write", "Describe", "Create", "Alter", "DescribeConfigs")
        },
        ("group", "shop-charge.replay.", True): {"Read"},
        ("group", "shop-charge.redrive.", True): {"Read"},
        ("transactional", "shop-charge.redrive.", True): {"Write", "Describe"},
    }


def test_who_makes_no_topics_needs_no_permission_for_it(commands: Commands) -> None:
    configure(commands, ladder={"create": False})
    acls = acls_of(from_shell(plan(commands).out))
    assert acls["topic", "orders", False] == {"Read", "Describe"}
    assert not acls["topic", "shop-charge.", True] & {"Create", "Alter"}


@pytest.mark.parametrize(
    ("create", "operations"),
    [(True, {"Write", "Describe", "Create"}), (False, {"Write", "Describe"})],
)
def test_the_trace_and_the_audit_may_be_written(
    commands: Commands,
    create: bool,  # noqa: FBT001 - the parameter of the test
    operations: set[str],
) -> None:
    config = {"kafka": KAFKA, "workers": {"charge": CHARGE}, "topics": {"create": create}}
    audit = {"enabled": True, "directory": "audit"}
    commands.configure({**config, "trace": {"sample": "1%"}, "audit": audit})
    printed = from_shell(plan(commands).out)
    acls = acls_of(printed)
    assert acls["topic", "wc.trace", False] == acls["topic", "wc.audit", False] == operations
    kept = {"cleanup.policy": "delete"}
    events, counts = (printed.topics[name] for name in ("wc.trace", "wc.audit"))
    assert events == TopicSettings(4, 3, {**kept, "retention.ms": str(7 * DAY_MS)})
    assert counts == TopicSettings(4, 3, {**kept, "retention.ms": str(30 * DAY_MS)})


def test_the_topics_of_telemetry_are_on_the_cluster_at_the_top_of_the_file(
    commands: Commands,
) -> None:
    elsewhere = {"group": "shop", "topics": ["refunds"], "kafka": {"bootstrap.servers": "else:1"}}
    trace = {"sample": "1%", "topic": "steps"}
    workers = {"refund": elsewhere, "charge": CHARGE}
    commands.configure({"kafka": KAFKA, "workers": workers, "trace": trace})
    lines = [line.split() for line in plan(commands).out.splitlines() if " steps " in line]
    assert {words[words.index("--bootstrap-server") + 1] for words in lines} == {"broker:9092"}
    commands.configure({"kafka": KAFKA, "workers": {"refund": elsewhere}, "trace": trace})
    printed = plan(commands, "--format", "strimzi").out
    assert re.search(r"^# .*\bsteps\b.*\(broker:9092\)", printed, re.MULTILINE)
    assert "shop.refunds.dlq" in printed
    commands.configure({"workers": {"refund": elsewhere}, "trace": trace})
    assert "--bootstrap-server else:1 --create --topic steps" in plan(commands).out


def test_who_writes_no_dead_letters_needs_no_topics_and_permissions_for_them(
    commands: Commands,
) -> None:
    configure(commands, retry={"when_spent": "drop", "levels": ["10s"]})
    printed = from_shell(plan(commands).out)
    assert set(printed.topics) == {"shop-charge.orders.retry.10s"}
    assert all("redrive" not in acl.name for acl in printed.acls)
    configure(commands, retry={"when_spent": "drop"}, ttl="1m")
    assert "shop-charge.orders.dlq" in from_shell(plan(commands).out).topics


def test_templates_and_retention_of_the_configuration_count(commands: Commands) -> None:
    names = {"dlq": "{group}.dead.{topic}", "retry": "{group}.{delay}.{topic}"}
    configure(commands, ladder={**names, "dlq_retention": "7d"}, retry={"levels": ["90s"]})
    topics = from_shell(plan(commands).out).topics
    assert topics["shop-charge.dead.orders"] == copies(7 * DAY_MS)
    assert {"shop-charge.90s.orders", "shop-charge.now.orders"} < set(topics)


@pytest.mark.parametrize(
    ("form", "read"), [("terraform", from_terraform), ("strimzi", from_strimzi)]
)
def test_all_formats_say_the_same(commands: Commands, form: str, read: Any) -> None:
    configure(commands)
    expected = from_shell(plan(commands, "--principal", "User:shop").out)
    printed = read(plan(commands, "--principal", "User:shop", "--format", form).out)
    assert printed.topics == expected.topics
    strip = len("User:") if form == "strimzi" else 0
    assert printed.acls == {
        Acl(each.kind, each.name, each.operation, each.is_prefix, each.principal[strip:])
        for each in expected.acls
    }


def test_without_a_principal_the_shell_or_terraform_is_asked_and_strimzi_takes_the_group(
    commands: Commands,
) -> None:
    configure(commands)
    assert '--allow-principal "${PRINCIPAL:?' in plan(commands).out
    out = plan(commands, "--format", "terraform").out
    assert 'variable "principal" {' in out
    assert "acl_principal                = var.principal" in out
    printed = from_strimzi(plan(commands, "--format", "strimzi", "--strimzi-cluster", "k").out, "k")
    assert {acl.principal for acl in printed.acls} == {"shop-charge"}


def test_an_address_that_is_not_known_or_secret_is_left_to_the_shell(commands: Commands) -> None:
    configure(commands)
    secret = commands.directory / "address"
    secret.write_text("hidden:9092")
    address = f"kafka.bootstrap.servers=${{file:{secret}}}"
    out = plan(commands, "--set", address).out
    assert "hidden" not in out
    assert '--bootstrap-server "${KAFKA_BOOTSTRAP:?' in out
    commands.configure({"workers": {"charge": CHARGE}})
    assert '--bootstrap-server "${KAFKA_BOOTSTRAP:?' in plan(commands).out


@pytest.mark.parametrize("form", ["cli", "terraform"])
def test_words_with_a_meaning_for_the_shell_or_terraform_are_quoted(
    commands: Commands, form: str
) -> None:
    principal = 'User:CN=a b\'s "${x}" $(id)'
    configure(commands)
    out = plan(commands, "--principal", principal, "--format", form).out
    if form == "cli":
        assert {acl.principal for acl in from_shell(out).acls} == {principal}
    else:
        written = 'acl_principal                = "User:CN=a b\'s \\"$${x}\\" $(id)"'
        assert written in out


def test_a_certificate_as_principal_is_one_of_strimzi_s_users_with_tls(commands: Commands) -> None:
    configure(commands)
    out = plan(commands, "--principal", "User:CN=shop", "--format", "strimzi").out
    assert {acl.principal for acl in from_strimzi(out).acls} == {"shop"}
    assert "authentication:\n    type: tls\n" in out


def test_names_that_kubernetes_or_terraform_do_not_take_are_changed_and_stay_different() -> None:
    assert kubernetes_name("shop-charge.orders.dlq") == "shop-charge.orders.dlq"
    strange = ["Shop.orders", "SHOP.orders", "shop._orders", "shop.orders_", "shop..orders"]
    strange += ["s" * 249 + "_" * 9, "_", "shop.-", "a_b"]
    made = [kubernetes_name(name) for name in strange]
    assert len(set(made)) == len(strange)
    assert [kubernetes_name(name) for name in made] == made, "now they are legal"
    assert identifier("7.a b") == "_7_a_b"
    assert identifier("a.b", {"a_b"}) not in {"a_b", "a.b"}


def test_workers_of_one_group_share_what_is_the_same(commands: Commands) -> None:
    refund = {"group": "shop-charge", "topics": ["refunds"]}
    commands.configure({"kafka": KAFKA, "workers": {"charge": CHARGE, "refund": refund}})
    out = plan(commands).out
    printed = from_shell(out)
    assert "shop-charge.refunds.dlq" in printed.topics
    assert out.count("--topic shop-charge.dlq.state") == 1
    assert out.count("--group shop-charge\n") == 1
    assert re.search(r"^# .*\bcharge; .*\brefund$", out, re.MULTILINE)


def test_only_and_enabled_choose_workers(commands: Commands) -> None:
    refund = {"group": "shop-refund", "topics": ["refunds"], "enabled": False}
    commands.configure({"kafka": KAFKA, "workers": {"charge": CHARGE, "refund": refund}})
    assert "refund" not in plan(commands).out
    printed = from_shell(plan(commands, "--only", "refund").out)
    assert set(printed.topics) == {
        *("shop-refund.refunds.dlq", "shop-refund.refunds.retry.now", "shop-refund.dlq.state")
    }
    ended = commands.run("topics", "plan", *SIZES, "--only", "refnd")
    assert ended.code == 2
    assert re.search(r"--only refnd: .*\bcharge, refund\b", ended.err)


def test_a_prefix_that_covers_a_source_topic_is_reported(commands: Commands) -> None:
    configure(commands, group="shop", topics=["shop.orders"])
    covering = r"^# .* prefix shop\. .*\bshop\.orders\b"
    assert re.search(covering, plan(commands).out, re.MULTILINE)


ROUTED = """
from window_consumer import App, Record, header

app = App("shop")


@app.handler(
    "orders", group="shop", when=header("type") == "paid", retry={"when_spent": "drop"}
)
def charge(order: Record) -> None:
    pass
"""


def test_an_application_says_what_the_configuration_does_not(commands: Commands) -> None:
    commands.application(ROUTED)
    commands.configure("workers: {charge: {}}")
    ended = commands.run("topics", "plan", *SIZES)
    assert ended.code == 2
    assert "workers.charge.group: " in ended.err
    assert "MODULE:APP" in ended.err
    commands.configure("workers: {charge: {group: shop}}")
    ended = commands.run("topics", "plan", *SIZES)
    assert ended.code == 2
    assert "workers.charge.topics: " in ended.err
    assert "MODULE:APP" in ended.err
    assert "shop.orders.dlq" in from_shell(plan(commands, "shop:app").out).topics


def test_conditions_of_the_configuration_are_enough_for_dead_letters(commands: Commands) -> None:
    configure(commands, retry={"when_spent": "drop"}, routes={"charge": "key == 'a'"})
    assert "shop-charge.orders.dlq" in from_shell(plan(commands).out).topics
    configure(commands, retry={"when_spent": "drop"})
    assert from_shell(plan(commands).out).topics == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--partitions", "3"], "--partitions and --replication-factor"),
        (["--replication-factor", "3"], "--partitions and --replication-factor"),
        (["--partitions", "0"], "x>=1"),
        (["--principal", "shop"], "User:shop"),
        (["--format", "yaml"], "'yaml'"),
        (
            [*SIZES, "--format", "strimzi", "--principal", "User:Shop_1"],
            "--principal User:Shop_1: ",
        ),
        (["-c", "none.yaml"], "none.yaml"),
        ([*SIZES, "--set", "workers.charge.concurrency=0"], "workers.charge.concurrency"),
    ],
)
def test_wrong_usage_ends_it_with_2_and_nothing_printed(
    commands: Commands, options: list[str], said: str
) -> None:
    configure(commands)
    ended = commands.run("topics", "plan", *options)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_patterns_cannot_be_worked_out_without_a_cluster(commands: Commands) -> None:
    worker = {"group": "shop", "patterns": ["^orders"]}
    commands.configure({"kafka": KAFKA, "workers": {"charge": worker}})
    ended = commands.run("topics", "plan", *SIZES)
    assert (ended.code, ended.out) == (2, "")
    assert "workers.charge.patterns: " in ended.err
    assert "--partitions and --replication-factor" in ended.err


def test_terraform_and_strimzi_are_for_one_cluster(commands: Commands) -> None:
    elsewhere = {"group": "shop-refund", "topics": ["refunds"], "kafka": {}}
    elsewhere["kafka"] = {"bootstrap.servers": "other:9092"}
    commands.configure({"kafka": KAFKA, "workers": {"charge": CHARGE, "refund": elsewhere}})
    out = plan(commands).out
    assert "--bootstrap-server broker:9092 --create --topic shop-charge.orders.dlq " in out
    assert "--bootstrap-server other:9092 --create --topic shop-refund.refunds.dlq " in out
    ended = commands.run("topics", "plan", *SIZES, "--format", "terraform")
    assert ended.code == 2
    assert "--only" in ended.err
    plan(commands, "--format", "terraform", "--only", "refund")


def test_a_cluster_that_does_not_answer_ends_it_with_1(commands: Commands) -> None:
    configure(commands)
    address = "kafka.bootstrap.servers=127.0.0.1:1"
    ended = commands.run("topics", "plan", "--start-timeout", "1s", "--set", address)
    assert (ended.code, ended.out) == (1, "")
    assert re.search(r"127\.0\.0\.1:1 .*\b1 s", ended.err)


def test_the_cluster_is_asked_for_partitions_and_what_patterns_match(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    for name, partitions in {"orders-eu": 2, "orders-us": 5, "refunds": 1}.items():
        embedded.create_topic(name, partitions)
    embedded.create_topic("shop.orders-us.dlq", 5)
    commands.application(SHOP)
    worker = {"group": "shop", "patterns": ["^.*orders"]}
    kafka = {"bootstrap.servers": embedded.bootstrap}
    commands.configure({"kafka": kafka, "workers": {"charge": worker}})
    ended = commands.run("topics", "plan")
    assert ended.code == 0, ended.err
    topics = from_shell(ended.out).topics
    assert topics["shop.orders-eu.dlq"].partitions == 2
    assert topics["shop.orders-us.dlq"].partitions == 5
    assert {name.split(".")[1] for name in topics} == {"orders-eu", "orders-us", "dlq"}
    assert " orders-eu, orders-us." in " ".join(
        line.removeprefix("# ") for line in ended.out.splitlines()
    )
    assert re.search(r"^# .*\borders-us \(charge\); .*\b5 partitions", ended.out, re.MULTILINE)
