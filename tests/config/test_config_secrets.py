from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden_texts import Golden
from window_consumer.config import LoadedConfig, Mask, is_secret_key

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., str]
WorkerText = Callable[..., str]


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.jaas.config",
        "my.token",
        "Sasl.Password",
    ],
)
def test_keys_of_secrets_are_recognised(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize("key", ["bootstrap.servers", "sasl.username", "ssl.ca.pem", "client.id"])
def test_other_keys_are_no_secrets(key: str) -> None:
    assert not is_secret_key(key)


def test_secrets_are_file_contents_and_the_values_of_secret_keys(
    loaded: Load, worker_text: WorkerText, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("from-file\n", encoding="utf-8")
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    result = loaded(
        worker_text(
            "kafka: {producer: {ssl.key.password: in-worker}}",
            kafka=[
                "sasl.password: ${PASSWORD}",
                "sasl.username: user-${file:file}",
                "ssl.key.password: 12345",
                "client.id: ${CLIENT}${file:empty}",
                "consumer: {ssl.key.pem: '${PEM:-}'}",
            ],
        ),
        "workers.charge.kafka.admin.sasl.jaas.config=by-override",
        handlers={"charge": {"kafka": {"some.token": "by-decorator"}}},
        environ={"PASSWORD": "by-variable", "CLIENT": "no-secret"},
    )
    assert result.secrets == {
        "from-file",
        "by-variable",
        "12345",
        "in-worker",
        "by-override",
        "by-decorator",
    }
    assert result.config.kafka.common["sasl.username"] == "user-from-file"


def test_what_is_loaded_can_be_printed_without_secrets(
    loaded: Load, worker_text: WorkerText
) -> None:
    result = loaded(worker_text("kafka: {some.token: hunter3}", kafka=["sasl.password: hunter2"]))
    assert "sasl.password" in repr(result)
    assert "hunter" not in repr(result)


@pytest.mark.parametrize("key", ["group", "concurrency", "memory", "ordering", "topics", "retry"])
def test_a_secret_in_a_wrong_place_does_not_leak_into_the_error(
    refused: Refuse, tmp_path: Path, key: str
) -> None:
    secret = "p/ä's" + '"5"' + "\nsecond line" + "x" * 90
    (tmp_path / "file").write_text(secret, encoding="utf-8")
    message = refused(f"workers: {{w: {{'{key}': '${{file:file}}'}}}}")
    assert f"workers.w.{key}" in message
    assert not any(piece in message for piece in ("p/", "ä", "second", "xxxx"))


def test_the_secret_of_a_misspelt_or_nested_kafka_property_does_not_leak(
    refused: Refuse, worker_text: WorkerText
) -> None:
    message = refused(
        worker_text(
            "kafka: sasl.password=hunter3",
            "sasl.password: hunter4",
            "window: hunter5",
            kafka=["sasl: {password: hunter2}", "sasl.pasword: 000777", "sasl.password: [hunter1]"],
        ),
        "kafka.sasl.password:hunter6",
        "kafka.sasl.password={hunter7",
        "kafka.sasl.password={hunter8: hunter9}",
    )
    assert len(message.splitlines()) >= 8
    assert "hunter" not in message.replace("sasl.password.hunter8: ...", "")
    assert "777" not in message


def test_a_secret_that_yaml_reads_as_a_number_does_not_leak_as_it_is_written(
    refused: Refuse, worker_text: WorkerText, golden: Golden
) -> None:
    message = refused(worker_text("handler: [x/01234]", kafka=["sasl.password: 01234"]), "01234")
    golden(message)


def test_every_occurrence_is_masked() -> None:
    assert Mask(["pw"])("pw; pw; xpwx") == "***; ***; x***x"


def test_a_longer_secret_is_masked_as_a_whole_when_it_contains_a_shorter_one() -> None:
    assert Mask(["pass", "password1"])("password1 pass") == "*** ***"


def test_a_shorter_secret_in_the_middle_of_a_longer_one_does_not_cut_it() -> None:
    assert Mask(["abcde", "bc"])("abcde") == "***"


def test_secrets_that_overlap_in_a_text_are_masked_together() -> None:
    assert Mask(["abc", "bcdef"])("xabcdefx") == "x***x"


def test_a_secret_is_masked_in_the_forms_of_repr_and_json() -> None:
    text = "a\nb'\"é"
    mask = Mask([text])
    assert mask(f"{text!r}") == "'***'"
    assert mask('"a\\nb\'\\"\\u00e9"') == '"***"'
    assert mask('"a\\nb\'\\"é"') == '"***"'


def test_without_secrets_nothing_is_masked() -> None:
    assert Mask([])("text") == "text"
    assert Mask([""])("text") == "text"


@given(st.lists(st.text("abc", min_size=1, max_size=4), max_size=4), st.text("abcx", max_size=30))
def test_no_secret_is_left_and_nothing_else_is_lost(secrets: list[str], text: str) -> None:
    masked = Mask(secrets)(text)
    assert not any(secret in masked for secret in secrets)
    assert masked.replace("***", "").count("x") == text.count("x")
    kept = iter(text)
    assert all(character in kept for character in masked.replace("***", ""))
