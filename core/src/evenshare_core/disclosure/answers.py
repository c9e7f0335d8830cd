"""Data of the REST API about a pool's pseudonyms and own rows, which verifiers read back."""

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
    """The pseudonyms in a day's bundles of a pool, as far as you may know them."""

    pool: str
    day: date
    tenants: tuple[TenantKeyRow, ...]
    names: Annotated[dict[str, str], Meta(description="Pseudonym: name of the tenant.")]


class OwnExcerpt(Struct, frozen=True):
    """A tenant's part of a round's bundle, byte for byte."""

    tenant: str
    excerpt: Raw


class OwnForm(Struct, frozen=True):
    """The answer instead of a bundle if the pool shows each tenant only its own rows."""

    schema: int
    form: str
    pool: str
    round: int
    record: Raw
    own: tuple[OwnExcerpt, ...]
    not_recomputable: str
