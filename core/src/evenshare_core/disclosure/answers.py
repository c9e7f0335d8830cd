"""What the REST API answers of a pool's pseudonyms and own rows, and a verification reads again."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from msgspec import Meta, Raw, Struct

OWN_SCHEMA, OWN_FORM = 1, "own"


class TenantKeyRow(Struct, frozen=True):
    """The key of one of your tenants for a day. Keep it to yourself: it tells your rows apart."""

    tenant: str
    key: Annotated[str, Meta(description="32 bytes, hex.")]
    name: Annotated[str, Meta(description="The tenant's pseudonym of the day.")]


class DayNamesBody(Struct, frozen=True):
    """Who is who in the bundles of a pool's day, as far as you may know."""

    pool: str
    day: date
    tenants: tuple[TenantKeyRow, ...]
    names: Annotated[dict[str, str], Meta(description="Pseudonym: name of the tenant.")]


class OwnRows(Struct, frozen=True):
    """What the bundle of a round has of one tenant, its bytes as they are."""

    tenant: str
    excerpt: Raw


class OwnForm(Struct, frozen=True):
    """What is answered for a bundle where the pool shows own rows alone."""

    schema: int
    form: str
    pool: str
    round: int
    record: Raw
    own: tuple[OwnRows, ...]
    not_recomputable: str
