"""Test the heads of logs: C2SP's own examples, signatures, and rejected heads."""

from __future__ import annotations

import pytest

from evenshare_core.chain.checkpoints import (
    Checkpoint,
    NoteError,
    SigningKey,
    key_id,
    make_vkey,
    note_text,
    public_key,
    read_vkey,
    sign_note,
    verify_note,
)

LOG = "evenshare/es/rounds/philly"
HEAD = Checkpoint(LOG, 20852163, bytes(range(32)))
OLD, NEW = SigningKey(LOG, b"\1" * 32), SigningKey(LOG, b"\2" * 32)
OLD_VKEY, NEW_VKEY = make_vkey(LOG, OLD.public), make_vkey(LOG, NEW.public)
# From Go's documentation of sumdb/note, on which the specification is based.
GO_VKEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfq"
    "dngotpRZb6KE6RyyBwJnAM=\n"
)


class TestNote:
    def test_text_matches_specification(self) -> None:
        assert note_text(HEAD) == (
            f"{LOG}\n20852163\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"
        )

    def test_verifies_with_any_known_key(self) -> None:
        note = sign_note(note_text(HEAD), [OLD, NEW])
        for vkeys in ([OLD_VKEY], [NEW_VKEY], [OLD_VKEY, NEW_VKEY]):
            assert verify_note(note, vkeys, LOG) == HEAD
        assert note.count("\u2014") == 2

    def test_verifies_signature_of_go_documentation(self) -> None:
        """The text is not a checkpoint; the error says so only after the signature was verified."""
        with pytest.raises(NoteError, match="three lines"):
            verify_note(GO_NOTE, [GO_VKEY], LOG)
        with pytest.raises(NoteError, match="not a signature of this text"):
            verify_note(GO_NOTE.replace("your", "their"), [GO_VKEY], LOG)
        assert key_id(*read_vkey(GO_VKEY)).hex() == "c74f20a3"
        assert make_vkey(*read_vkey(GO_VKEY)) == GO_VKEY

    def test_verifies_head_of_empty_log(self) -> None:
        head = HEAD._replace(size=0)
        assert verify_note(sign_note(note_text(head), [OLD]), [OLD_VKEY], LOG) == head


class TestRejectedNote:
    def test_rejects_unknown_key(self) -> None:
        with pytest.raises(NoteError, match="no known key"):
            verify_note(sign_note(note_text(HEAD), [NEW]), [OLD_VKEY], LOG)

    def test_rejects_edited_text(self) -> None:
        note = sign_note(note_text(HEAD), [OLD])
        for was, now in (("20852163", "20852164"), ("AAEC", "AAED"), ("philly", "phi1ly")):
            with pytest.raises(NoteError, match=r"not a signature of this text|no known key"):
                verify_note(note.replace(was, now), [OLD_VKEY], LOG)

    def test_rejects_one_wrong_signature_among_valid_ones(self) -> None:
        other = sign_note(note_text(HEAD._replace(size=1)), [NEW]).split("\n\n")[1]
        with pytest.raises(NoteError, match="not a signature of this text"):
            verify_note(sign_note(note_text(HEAD), [OLD]) + other, [OLD_VKEY, NEW_VKEY], LOG)

    def test_rejects_head_of_other_log(self) -> None:
        """The same private key signs all logs, so heads of two logs differ only by origin."""
        other = "evenshare/es/rounds/venus"
        note = sign_note(note_text(HEAD._replace(origin=other)), [OLD])
        with pytest.raises(NoteError, match=f"head of {other}"):
            verify_note(note, [OLD_VKEY], LOG)

    @pytest.mark.parametrize(
        ("was", "now"),
        [
            ("20852163", "020852163"),
            ("20852163", "-1"),
            ("20852163", "\u0662"),
            ("20852163", "9" * 30),
            ("AAEC", "AAE"),
            ("HR8=", "HR8"),
            ("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "AAEC"),
            ("\n\n", "\n"),
            ("\u2014 ", "- "),
            (f"\n\u2014 {LOG} ", f"\n\u2014 {LOG}"),
        ],
    )
    def test_rejects_non_canonical_format(self, was: str, now: str) -> None:
        note = sign_note(note_text(HEAD), [OLD])
        assert was in note or was == "HR8="
        with pytest.raises(NoteError):
            verify_note(note.replace(was, now) if was in note else note[:-2], [OLD_VKEY], LOG)

    def test_rejects_control_characters_and_missing_newline(self) -> None:
        note = sign_note(note_text(HEAD), [OLD])
        for wrong in (note.replace("philly", "phi\tlly"), note + "x" * 70_000, "", note[:-1]):
            with pytest.raises(NoteError):
                verify_note(wrong, [OLD_VKEY], LOG)


class TestKey:
    def test_public_key_matches_rfc_8032(self) -> None:
        seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
        public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
        assert public_key(bytes.fromhex(seed)).hex() == public

    @pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb"])
    def test_rejects_name_with_space_or_plus(self, name: str) -> None:
        with pytest.raises(NoteError, match="name"):
            make_vkey(name, OLD.public)

    @pytest.mark.parametrize(
        "vkey",
        [
            "",
            LOG,
            f"{LOG}+00000000",
            OLD_VKEY[:-4],
            OLD_VKEY.replace("+A", "+B"),
            f"{LOG}+00000000+{OLD_VKEY.rpartition('+')[2]}",
            OLD_VKEY.replace("philly", "venus"),
        ],
    )
    def test_rejects_malformed_key(self, vkey: str) -> None:
        with pytest.raises(NoteError):
            read_vkey(vkey)
