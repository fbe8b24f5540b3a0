"""The token of an attempt: signed for exactly one (row, epoch), known to its Pod only (R11)."""

from collections.abc import Sequence
from hashlib import sha256

from itsdangerous import BadData, URLSafeSerializer

_SALT = "rideout.attempt"  # a signature made for anything else, with the same key, is no attempt token


class BadToken(Exception):
    """The token is not ours, or was altered. It says nothing about the row (R14)."""


class AttemptTokens:
    """Signs with the first key and accepts all of them, so that keys can be rotated under running Pods (R26).

    A token has no expiry: a Pod may wait for a node for days, and the fence (R11) ends its use, not a clock.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        """:param keys: at least one; the first signs.
        :raises ValueError: none was given."""
        if not keys or not all(keys):
            raise ValueError("at least one signing key is needed")
        # itsdangerous signs with the last of its keys and verifies with any.
        self._serializer = URLSafeSerializer(
            list(reversed(keys)), salt=_SALT, signer_kwargs={"digest_method": sha256, "key_derivation": "hmac"}
        )

    def sign(self, row_id: int, epoch: int) -> str:
        """The token for one attempt; URL-safe, below 100 characters."""
        return str(self._serializer.dumps([row_id, epoch]))

    def read(self, token: str) -> tuple[int, int]:
        """The (row, epoch) a token was signed for.

        :raises BadToken: for anything that `sign` did not make with one of the keys.
        """
        try:
            row_id, epoch = self._serializer.loads(token)
        except (BadData, TypeError, ValueError) as error:
            raise BadToken("not an attempt token of this dispatcher") from error
        if type(row_id) is not int or type(epoch) is not int:
            raise BadToken("not an attempt token of this dispatcher")
        return row_id, epoch
