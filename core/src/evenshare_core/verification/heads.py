"""The log heads that a reader keeps, and the proofs that a new head needs.

A *pin* is the newest head that a reader has checked, with its signatures, and the public keys that
the reader trusts. A log that was rewritten, forked or shortened cannot prove that it extends the
pinned head. If no proof connects the pins of two readers, both signed pins are evidence to keep.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import msgspec

from evenshare_core.chain.checkpoints import Checkpoint, NoteError, read_vkey, verify_note
from evenshare_core.chain.merkle import ProofError, verify_consistency
from evenshare_core.verification.verdict import Gap, ProofProblem, Unproven

PIN_SCHEMA = 1


class HeadCheck(StrEnum):
    """The checks of a head. Names are part of the command's JSON."""

    SIGNATURE = "signature"  # a known key signed the head
    KEY = "key"  # the signing keys are known, or signed together with a known key
    LOG = "log"  # the head is of the pinned log
    HISTORY = "history"  # the head extends the pinned one
    RECORDS = "records"  # the head contains the records that were read


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A verified head: root in hex, the signed note, and the trusted keys."""

    schema: int
    log: str
    size: int
    root: str
    note: str
    keys: tuple[str, ...]


class Proof(NamedTuple):
    """The hashes that prove that the log of size `second` extends that of size `first`."""

    first: int
    second: int
    path: tuple[bytes, ...]


@dataclass(slots=True)
class HeadFinding:
    """The result of verifying a head. `pin` is the pin to keep; None if the head is not trusted."""

    log: str
    size: int = 0
    root: bytes = b""
    problems: list[ProofProblem] = field(default_factory=list)
    unproven: list[Unproven] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    pin: Pin | None = None

    def refuse(self, check: HeadCheck, text: str) -> None:
        self.problems.append(ProofProblem(check, text))


def verify_head(
    note: str,
    log: str,
    offered: Sequence[str],
    *,
    pin: Pin | None = None,
    given: Sequence[str] = (),
    proof: Proof | None = None,
) -> HeadFinding:
    """Verify a signed head.

    `offered` are the vkeys that came with the head. `given` are vkeys that the reader got
    from another source; they replace the pinned ones. Without given or pinned keys, the offered
    ones are trusted for this call.
    """
    finding = HeadFinding(log)
    if pin is not None and pin.log != log:
        finding.refuse(HeadCheck.LOG, f"the log is {log}; pinned is {pin.log}")
        return finding
    trusted = tuple(given) or (pin.keys if pin else ())
    if not trusted:
        trusted = tuple(offered)
        names = ", ".join(map(short_key, trusted)) or "none"
        finding.remarks.append(f"new keys; compare them with another source: {names}")
    try:
        checkpoint = verify_note(note, trusted, log)
    except NoteError as error:
        finding.refuse(*_refused(error, note, log, offered, trusted))
        return finding
    finding.size, finding.root = checkpoint.size, checkpoint.root
    signers = tuple(_signers(note, log, (*trusted, *offered)))
    finding.remarks += [
        f"key {short_key(key)} is new and signs together with a known key"
        for key in signers
        if key not in trusted
    ]
    unproven: list[str] = []
    if pin is not None:
        finding.problems += _history(pin, checkpoint, proof, unproven)
        finding.unproven += [Unproven(Gap.HEAD, text) for text in unproven]
    if not finding.problems and not unproven:
        finding.pin = Pin(PIN_SCHEMA, log, checkpoint.size, checkpoint.root.hex(), note, signers)
    return finding


def compare_heads(mine: Pin, other: Pin, proof: Proof | None) -> tuple[ProofProblem, ...]:
    """Return how two readers' pins of one log contradict each other.

    `proof` shows that the larger log extends the smaller one; it is not needed for equal sizes. The
    other reader's note must be signed by a key that is trusted here.
    """
    if mine.log != other.log:
        text = f"it is of the log {other.log}, not of {mine.log}"
        return (ProofProblem(HeadCheck.LOG, text),)
    try:
        theirs = verify_note(other.note, mine.keys, mine.log)
        ours = verify_note(mine.note, mine.keys, mine.log)
    except NoteError as error:
        return (ProofProblem(HeadCheck.SIGNATURE, f"a head is not signed by a known key: {error}"),)
    old, new = sorted((ours, theirs), key=lambda head: head.size)
    pin = msgspec.structs.replace(mine, size=old.size, root=old.root.hex())
    unproven: list[str] = []
    problems = list(_history(pin, new, proof, unproven))
    return (*problems, *(ProofProblem(HeadCheck.HISTORY, text) for text in unproven))


def short_key(vkey: str) -> str:
    """Return a short form of a key: its id of eight hex digits, or its first characters."""
    parts = vkey.split("+")
    return parts[1] if len(parts) > 1 else vkey[:20]


def read_pin(data: bytes) -> Pin:
    """Return a decoded pin.

    Raises:
        ValueError: the bytes are not a pin, or of another version.
    """
    pin = msgspec.json.decode(data, type=Pin)
    if pin.schema != PIN_SCHEMA:
        raise ValueError(f"it is of version {pin.schema}; this one reads {PIN_SCHEMA}")
    if len(bytes.fromhex(pin.root)) != 32 or pin.size < 0:
        raise ValueError("it has no root of 32 bytes, or a size below 0")
    for key in pin.keys:
        read_vkey(key)
    return pin


def _refused(
    error: NoteError, note: str, log: str, offered: Sequence[str], trusted: Sequence[str]
) -> tuple[HeadCheck, str]:
    """Return the failed check, either the key or the signature, and the reason."""
    known = ", ".join(map(short_key, trusted)) or "none"
    others = [key for key in _signers(note, log, offered) if key not in trusted]
    if others:
        names = ", ".join(map(short_key, others))
        return HeadCheck.KEY, (
            f"the head is signed only by {names}, and not by a known key ({known})."
            " If the operator confirms the new key, give it with --vkey"
        )
    return HeadCheck.SIGNATURE, f"the head is not signed by a known key ({known}): {error}"


def _signers(note: str, log: str, keys: Sequence[str]) -> Iterator[str]:
    for key in dict.fromkeys(keys):
        try:
            verify_note(note, (key,), log)
        except NoteError:
            continue
        yield key


def _history(
    pin: Pin, head: Checkpoint, proof: Proof | None, remarks: list[str]
) -> Iterator[ProofProblem]:
    if head.size < pin.size:
        yield ProofProblem(
            HeadCheck.HISTORY,
            f"the history was shortened: {head.size} rounds now, pinned are {pin.size}",
        )
        return
    if head.size == pin.size:
        if head.root.hex() != pin.root:
            text = f"the history was forked: two heads of {pin.size} rounds have different roots"
            yield ProofProblem(HeadCheck.HISTORY, f"{text}, {head.root.hex()} and {pin.root}")
        return
    if proof is None or (proof.first, proof.second) != (pin.size, head.size):
        remarks.append(
            f"there is no proof that the head of {head.size} rounds begins with that of {pin.size}"
        )
        return
    try:
        verify_consistency(pin.size, head.size, proof.path, bytes.fromhex(pin.root), head.root)
    except ProofError as error:
        yield ProofProblem(
            HeadCheck.HISTORY,
            f"the history was rewritten or forked: the {pin.size} rounds that were pinned are not"
            f" the beginning of the {head.size} now ({error})",
        )
