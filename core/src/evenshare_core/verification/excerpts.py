"""Rounds of pools that disclose own rows alone: what can be checked of them, and what cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from evenshare_core.chain.records import RoundRecord, record_bytes
from evenshare_core.disclosure.own import own_digest
from evenshare_core.disclosure.pseudonyms import own_salt

FORM = "own"


class ExcerptAnswer(msgspec.Struct, frozen=True):
    """The rows of one tenant, their bytes as they are."""

    tenant: str
    excerpt: msgspec.Raw


class OwnAnswer(msgspec.Struct, frozen=True):
    """What the portal answers for a bundle where the pool shows own rows alone."""

    form: str
    record: dict[str, Any]
    own: tuple[ExcerptAnswer, ...]
    not_recomputable: str


class _Form(msgspec.Struct, frozen=True):
    form: str = ""


def is_excerpt(data: bytes) -> bool:
    """Whether bytes are own rows, not a bundle."""
    try:
        return msgspec.json.decode(data, type=_Form).form == FORM
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def verify_excerpts(
    data: bytes, record: RoundRecord, keys: Mapping[str, bytes]
) -> tuple[list[str], tuple[str, ...] | None]:
    """Return remarks, and what is wrong with a round's own rows; None: there are none to compare.

    `keys`: the reader's tenant keys of the round's day, by the tenant's name.
    """
    try:
        answer = msgspec.json.decode(data, type=OwnAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return [], (f"its own rows cannot be read: {error}",)
    remarks = [answer.not_recomputable]
    absent = sorted(keys.keys() - {row.tenant for row in answer.own})
    if absent:
        remarks.append(f"no rows were answered of {', '.join(absent)}")
    broken = tuple(_breaks(answer, record, keys))
    return remarks, broken if answer.own or broken else None


def _breaks(answer: OwnAnswer, record: RoundRecord, keys: Mapping[str, bytes]) -> Iterator[str]:
    # Floats have one shortest form, so that reading and writing gives the bytes of the digest.
    if msgspec.json.decode(record_bytes(record)) != answer.record:
        yield "the record beside its own rows is not the one of the log"
    pool = record.log.rpartition("/")[2]
    for row in answer.own:
        key = keys.get(row.tenant)
        if key is None:
            yield f"no key is at hand for {row.tenant}"
            continue
        excerpt = msgspec.json.encode(msgspec.json.decode(row.excerpt))
        if own_digest(own_salt(key, pool, record.round), excerpt) not in record.own:
            yield f"the record commits to none of the rows of {row.tenant} that were answered"
