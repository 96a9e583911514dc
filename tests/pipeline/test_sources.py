"""How the pipeline reads Kafka: what is committed, with the properties of a worker's section."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_texts import Golden
from window_consumer.model.errors import UsageError
from window_consumer.spark.sources import java_properties, options

BROKER = {"bootstrap.servers": "b:1"}


def test_only_what_is_committed_is_read_and_nobody_can_change_that() -> None:
    assert java_properties(BROKER)["isolation.level"] == "read_committed"
    refused = r"the librdkafka property isolation\.level has no counterpart"
    with pytest.raises(UsageError, match=refused):
        java_properties({**BROKER, "isolation.level": "read_uncommitted"})


def test_a_topic_and_a_pattern_are_distinguished() -> None:
    ours = {
        "kafka.bootstrap.servers": "b:1",
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.wait.ms": "100",
        "includeHeaders": "true",
    }
    assert options(BROKER, "wc.trace") == {**ours, "subscribe": "wc.trace"}
    assert options(BROKER, ".*[.]dlq", pattern=True) == {**ours, "subscribePattern": ".*[.]dlq"}


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
def test_user_and_password_become_what_java_reads(key: str) -> None:
    given = {key: "SCRAM-SHA-512", "sasl.username": "bob", "sasl.password": 'a"b\\c'}
    found = java_properties({**BROKER, "security.protocol": "SASL_SSL", **given})
    assert found["sasl.mechanism"] == "SCRAM-SHA-512"
    assert found["security.protocol"] == "SASL_SSL"
    assert found["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="bob" password="a\\"b\\\\c";'
    )
    assert not {"sasl.username", "sasl.password", "sasl.mechanisms"} & found.keys()


def test_a_mechanism_that_java_would_need_more_for_is_refused(golden: Golden) -> None:
    with golden.raises(UsageError):
        java_properties({**BROKER, "sasl.mechanism": "GSSAPI"})


def test_certificates_are_handed_over_as_texts(tmp_path: Path) -> None:
    given = dict(BROKER)
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"the {name}")
        given[f"ssl.{name}.location"] = str(tmp_path / name)
    found = java_properties({**given, "ssl.key.password": "secret"})
    assert found["ssl.truststore.certificates"] == "the ca"
    assert found["ssl.keystore.certificate.chain"] == "the certificate"
    assert found["ssl.keystore.key"] == "the key"
    assert (found["ssl.truststore.type"], found["ssl.keystore.type"]) == ("PEM", "PEM")
    assert found["ssl.key.password"] == "secret"
    assert not [name for name in found if name.endswith(".location")]
    missing = {**BROKER, "ssl.ca.location": str(tmp_path / "nowhere")}
    with pytest.raises(UsageError, match=r"kafka: ssl\.ca\.location: cannot read .*nowhere"):
        java_properties(missing)


def test_what_java_has_no_counterpart_of_is_refused_with_what_is_known() -> None:
    refused = r"kafka: the librdkafka property linger\.ms .*bootstrap\.servers"
    with pytest.raises(UsageError, match=refused):
        java_properties({**BROKER, "linger.ms": "5"})
