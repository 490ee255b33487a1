"""Our verification agrees with RFC 8032 and with OpenSSL's."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from edgectl_runner.ed25519 import _ORDER, verify

# RFC 8032, section 7.1: (public key, message, signature).
VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
]


@pytest.mark.parametrize(("key", "message", "signature"), VECTORS)
def test_vectors_of_the_rfc(key: str, message: str, signature: str) -> None:
    parts = [bytes.fromhex(t) for t in (key, message, signature)]
    assert verify(*parts)
    assert not verify(parts[0], parts[1] + b"x", parts[2])


@settings(max_examples=25, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=300), st.integers(0, 511))
def test_signatures_of_openssl_pass_and_one_flipped_bit_fails(
    seed: bytes, message: bytes, bit: int
) -> None:
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public, signature = key.public_key().public_bytes_raw(), key.sign(message)
    assert verify(public, message, signature)
    spoiled = bytearray(signature)
    spoiled[bit // 8] ^= 1 << bit % 8
    assert not verify(public, message, bytes(spoiled))


def test_a_scalar_beyond_the_order_is_refused() -> None:
    key = Ed25519PrivateKey.generate()
    public, signature = key.public_key().public_bytes_raw(), key.sign(b"m")
    scalar = int.from_bytes(signature[32:], "little") + _ORDER
    assert not verify(public, b"m", signature[:32] + scalar.to_bytes(32, "little"))


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31), b"\xff" * 32, b"short"])
def test_small_and_malformed_keys_are_refused(key: bytes) -> None:
    # With a key of small order, a signature of zeros would fit any message.
    assert not verify(key, b"m", b"\x01" + bytes(63))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_garbage_is_false_and_never_an_exception(key: bytes, signature: bytes) -> None:
    assert verify(key, b"m", signature) is False
