"""Attempt tokens: good for one (row, epoch), under either of two keys (R11, R26)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import URLSafeSerializer

from dispatcher.tokens import AttemptTokens, BadToken

ids = st.integers(min_value=0, max_value=2**63 - 1)


@given(ids, ids)
def test_R11_a_token_names_exactly_its_row_and_epoch(row, epoch):
    tokens = AttemptTokens(["key"])
    assert tokens.read(tokens.sign(row, epoch)) == (row, epoch)


@given(ids, ids, st.data())
def test_R11_an_altered_token_is_refused(row, epoch, data):
    tokens = AttemptTokens(["key"])
    token = tokens.sign(row, epoch)
    place = data.draw(st.integers(min_value=0, max_value=len(token) - 2))  # the last one's spare bits carry nothing
    other = data.draw(st.sampled_from([c for c in "Az09-_." if c != token[place]]))
    with pytest.raises(BadToken):
        tokens.read(token[:place] + other + token[place + 1 :])


def test_R26_the_first_key_signs_and_both_are_accepted():
    before, rotating, after = AttemptTokens(["old"]), AttemptTokens(["new", "old"]), AttemptTokens(["new"])
    assert rotating.read(before.sign(1, 2)) == (1, 2)
    assert after.read(rotating.sign(1, 2)) == (1, 2)
    with pytest.raises(BadToken):
        after.read(before.sign(1, 2))


@pytest.mark.parametrize("token", ["", ".", "x", "[1,2]", "é", "a" * 10_000, "WzEsMl0."])
def test_R11_nonsense_is_refused(token):
    with pytest.raises(BadToken):
        AttemptTokens(["key"]).read(token)


@pytest.mark.parametrize("content", [[1], [1, 2, 3], ["1", "2"], [True, 1], {"row": 1}, None, [1.0, 2]])
def test_a_signed_value_of_another_shape_is_refused(content):
    from hashlib import sha256

    signer = URLSafeSerializer(
        "key", salt="rideout.attempt", signer_kwargs={"digest_method": sha256, "key_derivation": "hmac"}
    )
    with pytest.raises(BadToken):
        AttemptTokens(["key"]).read(str(signer.dumps(content)))


def test_R26_a_token_of_another_release_is_read():
    """Replicas of two releases run side by side during an upgrade; the format is an interface."""
    token = "WzQyLDdd.mr2EV8J00sdGbtA0VE4iv76oVjrSHvVwxOl3HVmSzWE"
    assert AttemptTokens(["key"]).sign(42, 7) == token
    assert AttemptTokens(["key"]).read(token) == (42, 7)


def test_a_signature_for_another_purpose_is_refused():
    with pytest.raises(BadToken):
        AttemptTokens(["key"]).read(str(URLSafeSerializer("key", salt="something else").dumps([1, 2])))


@pytest.mark.parametrize("keys", [[], [""], ["key", ""]])
def test_a_missing_key_is_refused(keys):
    with pytest.raises(ValueError, match="signing key"):
        AttemptTokens(keys)


def test_a_token_is_short_and_safe_in_a_header_and_an_environment():
    token = AttemptTokens(["key"]).sign(2**63 - 1, 2**63 - 1)
    assert len(token) < 130
    assert token.isascii()
    assert not set(token) & set(" ,;\"'\\")
