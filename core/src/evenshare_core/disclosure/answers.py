"""REST answers about a pool's pseudonyms and own rows, which verifiers read again."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from msgspec import Meta, Raw, Struct

OWN_SCHEMA, OWN_FORM = 1, "own"


class TenantKeyRow(Struct, frozen=True):
    """The key of one of your tenants for a day. Keep it secret: it identifies your rows."""

    tenant: str
    key: Annotated[str, Meta(description="32 bytes, hex.")]
    name: Annotated[str, Meta(description="The tenant's pseudonym of the day.")]


class DayNamesBody(Struct, frozen=True):
    """The pseudonyms in a pool's bundles of a day, as far as you may know them."""

    pool: str
    day: date
    tenants: tuple[TenantKeyRow, ...]
    names: Annotated[dict[str, str], Meta(description="Pseudonym: name of the tenant.")]


class OwnExcerpt(Struct, frozen=True):
    """A tenant's part of a round's bundle, its bytes unchanged."""

    tenant: str
    excerpt: Raw


class OwnForm(Struct, frozen=True):
    """The answer in place of a bundle if the pool only shows own rows."""

    schema: int
    form: str
    pool: str
    round: int
    record: Raw
    own: tuple[OwnExcerpt, ...]
    not_recomputable: str
