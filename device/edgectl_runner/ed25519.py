"""Verifies Ed25519 signatures (RFC 8032, section 5.1) with Python's integers alone.

Verification handles public data only, so that nothing here needs constant time. Points are in
extended homogeneous coordinates (X, Y, Z, T) with x = X/Z, y = Y/Z, x y = T/Z. A few
milliseconds on a desktop, some tens on a Pi. Signing happens on the host.
"""

from __future__ import annotations

import hashlib

__all__ = ["verify"]

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_SQRT_MINUS_ONE = pow(2, (_P - 1) // 4, _P)

Point = tuple[int, int, int, int]
_IDENTITY: Point = (0, 1, 1, 0)


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether ``signature`` (64 bytes) over ``message`` was made with the key's private half.

    Encodings that are not the canonical one, and keys of small order, are refused.
    """
    if len(public_key) != 32 or len(signature) != 64:
        return False
    key = _decode(public_key)
    if key is None or _is_identity(_multiply(8, key)):
        return False
    scalar = int.from_bytes(signature[32:], "little")
    if scalar >= _ORDER:
        return False
    digest = hashlib.sha512(signature[:32] + public_key + message).digest()
    challenge = int.from_bytes(digest, "little") % _ORDER
    # R must be S B - k A; comparing encodings also refuses an R that is not canonical.
    result = _add(_multiply(scalar, _BASE), _negate(_multiply(challenge, key)))
    return _encode(result) == signature[:32]


def _add(left: Point, right: Point) -> Point:
    """Twisted Edwards addition with a = -1; complete, so it doubles as well."""
    x1, y1, z1, t1 = left
    x2, y2, z2, t2 = right
    a = (y1 - x1) * (y2 - x2) % _P
    b = (y1 + x1) * (y2 + x2) % _P
    c = 2 * t1 * t2 * _D % _P
    d = 2 * z1 * z2 % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _double(point: Point) -> Point:
    x, y, z, _ = point
    a, b = x * x % _P, y * y % _P
    h = a + b
    e = h - (x + y) * (x + y) % _P
    g = a - b
    f = 2 * z * z % _P + g
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _negate(point: Point) -> Point:
    x, y, z, t = point
    return -x % _P, y, z, -t % _P


def _multiply(scalar: int, point: Point) -> Point:
    result = _IDENTITY
    for bit in bin(scalar)[2:]:
        result = _double(result)
        if bit == "1":
            result = _add(result, point)
    return result


def _is_identity(point: Point) -> bool:
    x, y, z, _ = point
    return x % _P == 0 and (y - z) % _P == 0


def _encode(point: Point) -> bytes:
    x, y, z, _ = point
    inverse = pow(z, -1, _P)
    x, y = x * inverse % _P, y * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _decode(data: bytes) -> Point | None:
    """The point of an encoding, or ``None`` when it is none (RFC 8032, section 5.1.3)."""
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & (1 << 255) - 1
    if y >= _P:
        return None
    u, v = (y * y - 1) % _P, (_D * y * y + 1) % _P
    # A candidate for the square root of u/v; p = 5 mod 8 leaves a factor of sqrt(-1) open.
    x = u * pow(v, 3, _P) * pow(u * pow(v, 7, _P), (_P - 5) // 8, _P) % _P
    if v * x * x % _P == -u % _P:
        x = x * _SQRT_MINUS_ONE % _P
    if v * x * x % _P != u:
        return None
    if x == 0 and sign:
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


def _base_point() -> Point:
    y = 4 * pow(5, -1, _P) % _P
    point = _decode(y.to_bytes(32, "little"))
    if point is None:
        raise ArithmeticError("the base point of edwards25519 does not decode")
    return point


_BASE = _base_point()
