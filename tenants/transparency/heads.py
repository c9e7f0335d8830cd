"""Heads of logs, signed on request."""

from typing import NamedTuple

from evenshare_core.chain.answers import LogKeyRow
from evenshare_core.chain.checkpoints import (
    Checkpoint,
    SigningKey,
    make_vkey,
    note_text,
    sign_note,
)
from tenants.transparency.keys import known_keys, signing_seeds
from tenants.transparency.log import newest_root


class SignedHead(NamedTuple):
    """The head of a log, and its signed note."""

    checkpoint: Checkpoint
    note: str


def signed_head(log: str) -> SignedHead:
    """Return the signed present head of a log; a missing log has no entries.

    Raises:
        LogKeyError: a key that must sign is missing.
        DamagedLogError: the log lacks hashes, so no head of it is signed.
    """
    head = Checkpoint(log, *newest_root(log))
    keys = [SigningKey(log, seed) for seed in signing_seeds()]
    return SignedHead(head, sign_note(note_text(head), keys))


def checkpoint_note(log: str) -> str:
    return signed_head(log).note


def public_keys(log: str) -> list[LogKeyRow]:
    """Return the keys that sign, or signed, a log's heads, as vkeys, oldest first."""
    return [LogKeyRow(make_vkey(log, key.public), key.since, key.until) for key in known_keys()]
