"""Verification of rounds of pools that disclose only own rows."""

from collections.abc import Iterator, Mapping

import msgspec

from evenshare_core.chain.records import RoundRecord, record_bytes
from evenshare_core.disclosure.answers import OWN_FORM, OwnForm
from evenshare_core.disclosure.own import own_digest
from evenshare_core.disclosure.pseudonyms import own_salt
from evenshare_core.verification.verdict import Gap, PartFinding, Unproven

OWN_ROWS = "the portal gave own rows only, so its decision was not recomputed"


class _Form(msgspec.Struct, frozen=True):
    form: str = ""


def is_excerpt(data: bytes) -> bool:
    """Return whether the bytes are own rows instead of a bundle."""
    try:
        return msgspec.json.decode(data, type=_Form).form == OWN_FORM
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def verify_excerpts(data: bytes, record: RoundRecord, keys: Mapping[str, bytes]) -> PartFinding:
    """Verify a round's own rows.

    `keys` has the reader's tenant keys of the round's day, by the tenant's name.
    """
    own_rows = Unproven(Gap.OWN_ROWS, OWN_ROWS)
    try:
        answer = msgspec.json.decode(data, type=OwnForm)
        broken = tuple(_breaks(answer, record, keys))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return PartFinding((f"its own rows cannot be read: {error}",), (), (own_rows,))
    absent = sorted(keys.keys() - {row.tenant for row in answer.own})
    unproven = [own_rows]
    if absent or not keys:
        text = ", ".join(absent) or "any tenant of the reader's"
        unproven.append(Unproven(Gap.NAMES, f"the portal gave no rows of {text}"))
    shown = broken if answer.own or broken else None
    return PartFinding(shown, (answer.not_recomputable,), tuple(unproven))


def _breaks(answer: OwnForm, record: RoundRecord, keys: Mapping[str, bytes]) -> Iterator[str]:
    # Floats have one shortest form, so decoding and encoding gives the bytes of the digest.
    if msgspec.json.decode(record_bytes(record)) != msgspec.json.decode(answer.record):
        yield "the record sent with its own rows differs from the record of the log"
    pool = record.log.rpartition("/")[2]
    for row in answer.own:
        key = keys.get(row.tenant)
        if key is None:
            yield f"there is no key for {row.tenant}"
            continue
        excerpt = msgspec.json.encode(msgspec.json.decode(row.excerpt))
        if own_digest(own_salt(key, pool, record.round), excerpt) not in record.own:
            yield f"the record commits to none of the rows of {row.tenant} that the portal gave"
