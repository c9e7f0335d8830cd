"""A database without the constraints of `tenants.shapes`, as if it had older rows."""

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
    """Drop the constraints on the shapes of JSON, on choices and on names."""
    for table, name in owner.execute(_CONDITIONS).fetchall():
        drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
        owner.execute(drop.format(sql.SQL(table), sql.Identifier(name)))
