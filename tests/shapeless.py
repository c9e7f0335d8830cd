"""A database without the conditions of `tenants.shapes`, like one with older rows."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

_CONDITIONS = r"""
SELECT conrelid::regclass::text, conname FROM pg_constraint
WHERE contype = 'c' AND coninhcount = 0 AND connamespace = 'public'::regnamespace
  AND conname ~ '_(shaped|known|named|counted)$'
"""


def drop_shapes(owner: psycopg.Connection[Any]) -> None:
    """Drop the conditions on the shapes of JSON, the choices and the names."""
    for table, name in owner.execute(_CONDITIONS).fetchall():
        drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
        owner.execute(drop.format(sql.SQL(table), sql.Identifier(name)))
