"""Heads of logs as signed checkpoints, which are text for people and programs.

    evenshare/es/rounds/philly
    20852163
    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

    — evenshare/es/rounds/philly Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URY...

Source: C2SP's tlog-checkpoint (the text) and signed-note (signature lines and vkeys, Ed25519).

This is the only module of the core that imports `cryptography`, which the extra `verify` installs.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from evenshare_core.chain.merkle import HASH_BYTES

SEED_BYTES = KEY_BYTES = 32
NOTE_MAX = 64 * 1024
_ED25519 = b"\x01"
_DASH = "\u2014 "


class NoteError(ValueError):
    """A note or a key is invalid."""


class Checkpoint(NamedTuple):
    """The head of a log: its name, its number of entries, and the root hash over them."""

    origin: str
    size: int
    root: bytes


class SigningKey(NamedTuple):
    """A private Ed25519 key, 32 bytes, and the name under which it signs: the log's origin."""

    name: str
    seed: bytes

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return public_key(self.seed)


def public_key(seed: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def key_id(name: str, public: bytes) -> bytes:
    """Return the four bytes that distinguish keys of the same name."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public).digest()[:4]


def make_vkey(name: str, public: bytes) -> str:
    """Return a public key as text, `name+id+key`, for verifiers.

    Raises:
        NoteError: the name is empty, or has a space or a plus sign.
    """
    _guard_name(name)
    return f"{name}+{key_id(name, public).hex()}+{_base64(_ED25519 + public)}"


def read_vkey(vkey: str) -> tuple[str, bytes]:
    """Return the name and the public key of a vkey.

    Raises:
        NoteError: the vkey is malformed, or its id does not match its key.
    """
    name, _, rest = vkey.partition("+")
    id_, _, encoded = rest.partition("+")
    _guard_name(name)
    data = _bytes(encoded, "the key")
    if data[:1] != _ED25519 or len(data) != 1 + KEY_BYTES:
        raise NoteError(f"the key {vkey[:80]!r} is not an Ed25519 key of 32 bytes")
    if id_ != key_id(name, data[1:]).hex():
        raise NoteError(f"the id {id_[:16]!r} is not the id of the key of {name}")
    return name, data[1:]


def note_text(checkpoint: Checkpoint) -> str:
    """Return the text to sign: origin, size and root, one line each.

    Raises:
        NoteError: the origin is empty or has several lines, or the root is not a hash.
    """
    _guard_name(checkpoint.origin)
    if checkpoint.size < 0 or len(checkpoint.root) != HASH_BYTES:
        raise NoteError(f"a head needs a size of at least 0 and a root of {HASH_BYTES} bytes")
    return f"{checkpoint.origin}\n{checkpoint.size}\n{_base64(checkpoint.root)}\n"


def sign_note(text: str, keys: Sequence[SigningKey]) -> str:
    """Return a note: the text, with a signature by each key in the given order."""
    lines = [text, "\n"]
    for key in keys:
        _guard_name(key.name)
        signature = Ed25519PrivateKey.from_private_bytes(key.seed).sign(text.encode())
        lines.append(f"{_DASH}{key.name} {_base64(key_id(key.name, key.public) + signature)}\n")
    return "".join(lines)


def verify_note(note: str, vkeys: Sequence[str], origin: str) -> Checkpoint:
    """Return the checkpoint of a note signed by at least one of the keys.

    Signatures of unknown keys are ignored; a wrong signature of a known key invalidates the note.

    Raises:
        NoteError: no known key signed it, a signature is wrong, the text is not a checkpoint, or
            it is of another log than `origin`.
    """
    text, signatures = _parts(note)
    known = {(name, key_id(name, key)): key for name, key in map(read_vkey, vkeys)}
    signed = 0
    for name, id_, signature in signatures:
        key = known.get((name, id_))
        if key is None:
            continue
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, text.encode())
        except (InvalidSignature, ValueError) as error:
            raise NoteError(f"the signature of {name} is not a signature of this text") from error
        signed += 1
    if not signed:
        raise NoteError("no known key has signed it")
    checkpoint = _read_text(text)
    if checkpoint.origin != origin:
        raise NoteError(f"it is the head of {checkpoint.origin}, not of {origin}")
    return checkpoint


def _parts(note: str) -> tuple[str, list[tuple[str, bytes, bytes]]]:
    """Return the text of a note, and (name, key id, signature) of each signature line."""
    if len(note) > NOTE_MAX:
        raise NoteError(f"it is longer than {NOTE_MAX} characters")
    if any(char < " " and char != "\n" for char in note):
        raise NoteError("it has control characters")
    body, gap, below = note.rpartition("\n\n")
    if not gap or not below.endswith("\n"):
        raise NoteError("it has no signature lines after an empty line")
    signatures = []
    for line in below[:-1].split("\n"):
        name, space, encoded = line.removeprefix(_DASH).partition(" ")
        if not line.startswith(_DASH) or not space:
            raise NoteError(f"{line[:80]!r} is not a signature line")
        data = _bytes(encoded, "a signature")
        if len(data) <= 4:
            raise NoteError(f"the signature of {name[:80]} is too short")
        signatures.append((name, data[:4], data[4:]))
    return body + "\n", signatures


def _read_text(text: str) -> Checkpoint:
    lines = text.split("\n")
    if len(lines) < 4 or not all(lines[:-1]):
        raise NoteError("it must have three lines: origin, size, root")
    origin, size, root = lines[:3]
    if not (size.isascii() and size.isdecimal() and len(size) < 20) or str(int(size)) != size:
        raise NoteError(f"the size {size[:40]!r} is not a number")
    data = _bytes(root, "the root")
    if len(data) != HASH_BYTES:
        raise NoteError(f"the root has {len(data)} bytes, not {HASH_BYTES}")
    return Checkpoint(origin, int(size), data)


def _guard_name(name: str) -> None:
    if not name or "+" in name or any(char.isspace() or char < " " for char in name):
        raise NoteError(f"the name {name[:80]!r} is empty, or has a space or a plus sign")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str, what: str) -> bytes:
    """Decode base64, and reject every encoding that is not canonical."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NoteError(f"{what} is no base64: {text[:80]!r}") from error
    if _base64(data) != text:
        raise NoteError(f"{what} is no base64: {text[:80]!r}")
    return data
