"""How the pipeline reads Kafka: what is committed, with the properties of a worker's section."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.golden_texts import Golden
from tests.login.token_server import refusing, serving
from window_consumer.model.errors import UsageError
from window_consumer.spark.logins import require_class
from window_consumer.spark.sources import bounded, java_properties, options
from window_consumer.spark.wire import load_pipeline

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


# ---- logins


def properties_of(directory: Path, kafka: object) -> Mapping[str, Any]:
    """Return the plan's properties for a section ``kafka`` of pipeline.yaml."""
    file = directory / "pipeline.yaml"
    file.write_text(json.dumps({"kafka": kafka, "directory": "tables"}))
    return load_pipeline(file, {}).kafka


def with_login(directory: Path, login: object) -> dict[str, str]:
    """Return what Java gets for a login."""
    brokers = "b-1.a.c2.kafka.eu-1.amazonaws.com:9098"
    return java_properties(properties_of(directory, {"bootstrap.servers": brokers, "login": login}))


OIDC = {
    "kind": "oidc",
    "token_url": "https://sso.example/token",
    "client_id": "shop",
    "client_secret": 'a"b',
}


def test_javas_client_asks_the_token_endpoint_by_itself(tmp_path: Path) -> None:
    login = {**OIDC, "scope": "kafka", "extensions": {"logicalCluster": "lkc-1"}}
    found = with_login(tmp_path, login)
    assert found["security.protocol"] == "SASL_SSL"
    assert found["sasl.mechanism"] == "OAUTHBEARER"
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://sso.example/token"
    assert int(found["sasl.login.connect.timeout.ms"]) < 60_000
    assert int(found["sasl.login.read.timeout.ms"]) < 60_000
    assert found["sasl.jaas.config"].endswith(
        ' required clientId="shop" clientSecret="a\\"b" scope="kafka"'
        ' extension_logicalCluster="lkc-1";'
    )


@pytest.mark.parametrize(
    ("login", "mechanism"),
    [("msk-iam", "AWS_MSK_IAM"), ({"kind": "msk-iam", "profile": "shop"}, "AWS_MSK_IAM")],
)
def test_amazons_jar_logs_in_with_its_own_mechanism(
    tmp_path: Path, login: object, mechanism: str
) -> None:
    found = with_login(tmp_path, login)
    assert found["sasl.mechanism"] == mechanism
    assert ('awsProfileName="shop"' in found["sasl.jaas.config"]) is isinstance(login, dict)


@pytest.mark.parametrize(
    "login",
    [
        {"kind": "azure", "scope": "https://shop.servicebus.windows.net/.default"},
        {**OIDC, "audience": "brokers"},
    ],
)
def test_a_login_that_java_cannot_have_is_refused(
    tmp_path: Path, login: object, golden: Golden
) -> None:
    with golden.raises(UsageError):
        with_login(tmp_path, login)


@pytest.mark.parametrize("login", ["msk-iam", "gcp"])
def test_a_vendors_jar_that_spark_lacks_is_named(
    spark: SparkSession, tmp_path: Path, golden: Golden, login: str
) -> None:
    given = {f"kafka.{key}": value for key, value in with_login(tmp_path, login).items()}
    with golden.raises(UsageError):
        require_class(spark, given)


def test_sparks_kafka_client_has_the_class_that_asks_a_token_endpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    handler = with_login(tmp_path, OIDC)["sasl.login.callback.handler.class"]
    assert spark._jvm is not None
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    assert loader.loadClass(handler).getName() == handler


def test_sparks_kafka_client_asks_the_token_endpoint_with_our_credentials(
    spark: SparkSession, tmp_path: Path
) -> None:
    with serving(refusing()) as server:
        login = {**OIDC, "token_url": server.url}
        found = properties_of(tmp_path, {"bootstrap.servers": "127.0.0.1:1", "login": login})
        with pytest.raises(Exception, match="oauthbearer"):
            bounded(spark, options(found, "events")).count()
        assert server.requests[0].credentials == 'shop:a"b'
