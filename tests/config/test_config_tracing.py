"""The section for the message trace."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from window_consumer.config import LoadedConfig, Mask
from window_consumer.trace.config import TraceConfig, TraceSample

WORKER = "workers: {a: {topics: [t], group: g}}\n"


@pytest.mark.parametrize(
    ("written", "sample"),
    [
        ("1%", TraceSample(0.01)),
        ("100%", TraceSample(1.0)),
        ("{by: key, ratio: 12.5%}", TraceSample(0.125, "key")),
        ("{ratio: 5%}", TraceSample(0.05)),
        ('"${SHARE_OF_NOBODY:-2%}"', TraceSample(0.02)),
    ],
)
def test_a_sample_is_a_share_of_records_or_of_keys(
    loaded: Callable[..., LoadedConfig], written: str, sample: TraceSample
) -> None:
    assert (
        loaded(f"{WORKER}trace: {{sample: {written}}}\n").config.section(TraceConfig).sample
        == sample
    )


def test_nothing_is_traced_by_default(loaded: Callable[..., LoadedConfig]) -> None:
    assert loaded(WORKER).config.section(TraceConfig).sample is None


@pytest.mark.parametrize(
    ("section", "key", "why"),
    [
        ("{sample: 1}", "trace.sample", "1%"),
        ("{sample: 0%}", "trace.sample", "from 0.01% to 100%"),
        ("{sample: {by: colour, ratio: 1%}}", "trace.sample.by", "record or key"),
        ("{sample: {by: key}}", "trace.sample.ratio", "is missing"),
        ("{sample: {by: key, rate: 1%}}", "trace.sample.rate", "did you mean ratio?"),
        ("{keys: raw}", "trace.sample", "without it nothing is traced"),
        ("{sample: 1%, keys: hmac}", "trace.key_secret", "is missing"),
        ("{sample: 1%, key_secret: 0123456789abcdef}", "trace.key_secret", "is for keys: hmac"),
        ("{sample: 1%, keys: hmac, key_secret: sesame}", "trace.key_secret", "is too short"),
        ("{sample: 1%, way: spool}", "trace.directory", "is missing"),
        ("{sample: 1%, directory: d}", "trace.directory", "is for way: spool"),
        ("{sample: 1%, way: file}", "trace.way", "kafka or spool"),
        ("{sample: 1%, topic: a b}", "trace.topic", "contains ' '"),
        ("{sample: 1%, colour: red}", "trace.colour", "unknown key"),
    ],
)
def test_what_cannot_be_is_refused_and_says_what_can(
    refused: Callable[..., str], section: str, key: str, why: str
) -> None:
    message = refused(f"{WORKER}trace: {section}\n")
    assert key in message
    assert why in message


def test_the_secret_for_keys_is_printed_nowhere(
    loaded: Callable[..., LoadedConfig], refused: Callable[..., str]
) -> None:
    trace = "{sample: 1%, keys: hmac, key_secret: sesame-sesame-sesame}"
    found = loaded(f"{WORKER}trace: {trace}\n")
    assert Mask(found.secrets)("it: sesame-sesame-sesame") == "it: ***"
    assert "sesame" not in repr(found)
    assert "sesame" not in refused(f"{WORKER}trace: {trace.replace('hmac', 'raw')}\n")
