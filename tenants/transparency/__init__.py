"""Logs of rounds and transfers: append, read, prove, and sign their heads.

Source: docs/adr/0196-a-transparency-log.md; the mathematics are in `evenshare_core.chain`.
"""

from tenants.transparency.heads import SignedHead, checkpoint_note, public_keys, signed_head
from tenants.transparency.keys import LogKeyError
from tenants.transparency.log import (
    ConflictingEntryError,
    DamagedLogError,
    LogEnd,
    StoredRecord,
    append,
    consistency,
    entries,
    inclusion,
    ledger_log,
    locked_log,
    origins,
    round_log,
    size,
)
