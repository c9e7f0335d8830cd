"""Published data of rounds: downloadable bundles, and the pseudonyms in them."""

import gzip
from datetime import date
from typing import Annotated

import msgspec

from evenshare_core.chain.records import read_record, record_hash
from evenshare_core.disclosure.answers import (
    OWN_FORM,
    OWN_SCHEMA,
    DayNamesBody,
    OwnExcerpt,
    OwnForm,
    TenantKeyRow,
)
from evenshare_core.disclosure.bundle import read_bundle
from evenshare_core.disclosure.own import NOT_RECOMPUTABLE, own_excerpts
from evenshare_core.disclosure.pseudonyms import tenant_key, tenant_name
from scheduling.models import PseudonymKey, Round, RoundBundle, RoundSealing
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.rounds import files as round_files
from scheduling.selectors.rounds.files import ArchiveError, archive_of, read_part
from scheduling.selectors.rounds.stored import (
    BUNDLE,
    MISSING,
    Damage,
    DamagedRoundError,
    packed_damage,
)
from scheduling.selectors.visibility import Visibility, VisibleTenant
from tenants import transparency
from tenants.answers import Answer, Hidden, about
from tenants.transparency.log import root


class ChainPlace(Answer, frozen=True):
    """A round's record in the log of its pool; `sha256` is its leaf hash."""

    COMPONENT = "RoundRecordRow"

    index: int  # counted from 0
    sha256: str
    bundle_sha256: str
    follows: Annotated[
        bool | None,
        about("Whether it follows from the previous round; null: one of them has no bundle."),
    ]
    breaks: tuple[str, ...]
    damage: str
    is_first: Hidden[bool]
    size: Hidden[int]  # `size` and `root` describe the head over all records
    root: Hidden[str]
    is_kept: Hidden[bool]  # whether the bundle is stored


def read_place(pool_id: int, number: int) -> ChainPlace | None:
    """Return a round's place in its pool's log, or None if it is not sealed yet. Seven queries."""
    there = _records(pool_id, number)
    if there is None:
        return None
    log, index, before, raw = there
    size = transparency.size(log)
    record = read_record(raw)
    is_compared = bool(before and read_record(before).bundle and record.bundle)
    return ChainPlace(
        index=index,
        sha256=record_hash(raw),
        bundle_sha256=record.bundle,
        follows=not record.breaks if is_compared else None,
        breaks=record.breaks,
        damage=record.damage,
        is_first=not record.previous,
        size=size,
        root=root(log, size).hex(),
        is_kept=bundle_sha256(pool_id, number) is not None,
    )


def read_round_record(pool_id: int, number: int) -> bytes | None:
    """Return the record of a round in the log, or None if it is not sealed yet."""
    there = _records(pool_id, number)
    return there[3] if there else None


def _records(pool_id: int, number: int) -> tuple[str, int, bytes, bytes] | None:
    """Return a round's log, the index of its record, the previous record (b"" if none) and its own.

    From the first sealed round on every round has one record, so its number gives the index.
    """
    rows = RoundSealing.objects.filter(pool_id=pool_id)
    sealing = rows.values_list("first", "number", "pool__name").first()
    if sealing is None or not 0 < sealing[0] <= number <= sealing[1]:
        return None
    log = transparency.round_log(sealing[2])
    index = number - sealing[0]
    there: dict[int, bytes] = dict(transparency.entries(log, max(0, index - 1), 2))
    return (log, index, there.get(index - 1, b""), there[index]) if index in there else None


def bundle_sha256(pool_id: int, number: int) -> str | None:
    """Return the hash of a round's bundle, or None if there is no bundle or it was deleted.

    The hash of a bundle in a file is taken from the round's record.
    """
    rows = RoundBundle.objects.filter(pool_id=pool_id, number=number)
    sha256 = rows.values_list("sha256", flat=True).first()
    return sha256 or (_recorded_sha256(pool_id, number) if archive_of(pool_id, number) else None)


def _recorded_sha256(pool_id: int, number: int) -> str | None:
    raw = read_round_record(pool_id, number)
    return (read_record(raw).bundle or None) if raw else None


def packed_bundle(pool_id: int, number: int) -> bytes | None:
    """Return a round's stored bundle, compressed with gzip, or None if there is no bundle.

    Raises:
        DamagedRoundError: the bundle's file cannot be read, or contains another bundle.
    """
    rows = RoundBundle.objects.filter(pool_id=pool_id, number=number)
    data = rows.values_list("data", flat=True).first()
    if data is not None:
        return bytes(data)
    archive = archive_of(pool_id, number)
    expected = _recorded_sha256(pool_id, number) if archive else None
    if archive is None or expected is None:
        return None
    try:
        packed = read_part(archive, number, round_files.BUNDLE)
    except ArchiveError as error:
        raise DamagedRoundError(number, [Damage(BUNDLE, str(error), expected)]) from error
    where = f", in the file {archive.name}"
    if damage := packed_damage(BUNDLE, packed, expected, where):
        raise DamagedRoundError(number, [damage])
    return packed


def bundle_damage(round_: Round, expected: str) -> Damage | None:
    """Return what is wrong with the bundle of a round whose bytes are kept; None if it is intact.

    `expected`: the hash in the round's record.
    """
    try:
        packed = packed_bundle(round_.pool_id, round_.number)
    except DamagedRoundError as error:
        return error.damages[0]
    if packed is None:
        return Damage(BUNDLE, MISSING, expected)
    return packed_damage(BUNDLE, packed, expected)


def own_form(pool_id: int, number: int, visibility: Visibility) -> bytes | None:
    """Return a round's data for a viewer in a pool that shows users only their own tenants' rows.

    It contains the round's record, and for each of the viewer's tenants its own part of the bundle.
    Return None if there is no bundle.

    Raises:
        DamagedRoundError: as for `packed_bundle`.
    """
    packed, raw = packed_bundle(pool_id, number), read_round_record(pool_id, number)
    if packed is None or raw is None:
        return None
    disclosed = read_bundle(gzip.decompress(packed))
    slugs = {
        key.name: key.tenant
        for key in _keys(pool_id, date.fromisoformat(disclosed.day), visibility)
    }
    numbers = {
        number: slugs[name]
        for number, name in enumerate(disclosed.names.tenants, start=1)
        if name in slugs
    }
    own = tuple(
        OwnExcerpt(numbers[number], msgspec.Raw(excerpt))
        for number, excerpt in own_excerpts(disclosed, numbers).items()
    )
    return msgspec.json.encode(
        OwnForm(
            OWN_SCHEMA,
            OWN_FORM,
            disclosed.pool,
            disclosed.round,
            msgspec.Raw(raw),
            own,
            NOT_RECOMPUTABLE,
        )
    )


def day_names(pool: PoolFacts, day: date | None, visibility: Visibility) -> DayNamesBody | None:
    """Return the tenants' pseudonyms on a day, for the names that a viewer may know.

    Return None if no round of that day is sealed. `day`: UTC date of pool time; if None, the newest
    day with a sealed round.
    """
    if day is None:
        rows = PseudonymKey.objects.filter(pool_id=pool.id).order_by("-day")
        day = rows.values_list("day", flat=True).first()
    secret = _secret(pool.id, day) if day else None
    if day is None or secret is None:
        return None
    named = [row for row in visibility.known.values() if _is_named(row, visibility)]
    names = {tenant_name(tenant_key(secret, row.id)): row.name for row in named}
    return DayNamesBody(pool.name, day, tuple(_keys(pool.id, day, visibility)), names)


def _is_named(row: VisibleTenant, visibility: Visibility) -> bool:
    return row.you or not (visibility.hides or visibility.disguises)


def _keys(pool_id: int, day: date, visibility: Visibility) -> list[TenantKeyRow]:
    """Return the pseudonym keys of the viewer's own tenants; even operators get no others."""
    secret = _secret(pool_id, day)
    if secret is None:
        return []
    own = [(row.slug, row.id) for row in visibility.known.values() if row.you and row.slug]
    keys = [(slug, tenant_key(secret, tenant_id)) for slug, tenant_id in own]
    return [TenantKeyRow(slug, key.hex(), tenant_name(key)) for slug, key in keys]


def _secret(pool_id: int, day: date) -> bytes | None:
    rows = PseudonymKey.objects.filter(pool_id=pool_id, day=day)
    secret = rows.values_list("secret", flat=True).first()
    return None if secret is None else bytes(secret)
