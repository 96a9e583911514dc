from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.golden_texts import Golden
from window_consumer.model.key_forms import KeyMode, as_text, key_form

TRICKY = st.binary(max_size=20) | st.sampled_from([b"", b"base64:YQ==", b"hmac:abc", b"a", b"\xff"])


@given(TRICKY, TRICKY)
def test_forms_are_equal_where_the_keys_are(one: bytes, other: bytes) -> None:
    modes: tuple[KeyMode, ...] = ("raw", "hmac")
    for mode in modes:
        form = key_form(mode, b"secret")
        assert (form(one) == form(other)) is (one == other)


def test_a_readable_key_stands_as_it_is() -> None:
    assert as_text("zoë".encode()) == "zoë"
    assert as_text(b"") == ""
    assert as_text(b"\xff") == "base64:/w=="


def test_a_coded_key_cannot_be_known_without_the_secret(golden: Golden) -> None:
    one, other = key_form("hmac", b"one"), key_form("hmac", b"other")
    # HMAC-SHA-256 of "customer-1" with the key "one", its first 16 bytes in base64url.
    assert one(b"customer-1") == "hmac:YFqnA-reL2VuF43LImJ0NQ"
    assert other(b"customer-1") != one(b"customer-1")
    with golden.raises(ValueError):
        key_form("hmac")


def test_nothing_stands_for_no_key_and_where_keys_are_left_out() -> None:
    modes: tuple[KeyMode, ...] = ("raw", "hmac", "off")
    assert [key_form(mode, b"s")(None) for mode in modes] == [None, None, None]
    assert key_form("off")(b"k") is None
