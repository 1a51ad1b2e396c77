"""Block digests: the name of a KV block is the digest of everything up to and with it.

A digest is a 16-byte BLAKE2b (RFC 7693) of the parent's digest and the block's token ids, packed little-endian uint32. The
chain's root is keyed with a secret that only the gateway knows, so tenants neither share nor probe each other's cache.
"""

from __future__ import annotations

from hashlib import blake2b

from tidemill_common.tokens import TOKEN_BYTES

DIGEST_BYTES = 16
DEFAULT_BLOCK_SIZE = 16


def root_digest(secret: bytes, tenant: str, model_fingerprint: str) -> bytes:
    """Root of the chains of one tenant and model. ``secret`` has 16 to 64 bytes."""
    if not 16 <= len(secret) <= 64:
        raise ValueError(f"digest secret must have 16 to 64 bytes, has {len(secret)}")
    text = f"{len(tenant)}:{tenant}:{model_fingerprint}".encode()
    return blake2b(text, key=secret, digest_size=DIGEST_BYTES).digest()


def block_digest(parent: bytes, packed_ids: bytes) -> bytes:
    """Digest of one full block after ``parent``."""
    return blake2b(parent + packed_ids, digest_size=DIGEST_BYTES).digest()


def chain(parent: bytes, packed_ids: bytes, block_size: int = DEFAULT_BLOCK_SIZE) -> list[bytes]:
    """Digests of the full blocks of ``packed_ids`` that follow ``parent``; a tail of less than a block has none."""
    width = block_size * TOKEN_BYTES
    digests: list[bytes] = []
    for start in range(0, len(packed_ids) - width + 1, width):
        parent = block_digest(parent, packed_ids[start : start + width])
        digests.append(parent)
    return digests


def split(packed: bytes) -> list[bytes]:
    """Digests of a packed string of them. Raises ValueError when its length is no multiple of 16."""
    if len(packed) % DIGEST_BYTES:
        raise ValueError(f"packed digests have {len(packed)} bytes, no multiple of {DIGEST_BYTES}")
    return [packed[start : start + DIGEST_BYTES] for start in range(0, len(packed), DIGEST_BYTES)]
