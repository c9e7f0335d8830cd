"""Provide a site with stopped clocks and seeded ids, so its answers are equal in each run."""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import psycopg
import pytest
from django.conf import settings
from django.db.models import Max
from django.test import Client
from django.utils import timezone

from scheduling.models import Job, Pool, PoolClock, Round
from tenants.models import Membership, User
from tenants.tokens import Scope, create_token
from tests.functional.addresses import bearer, session
from tests.functional.lending_stage import late_stage
from tests.functional.odd_stage import add_jobs, add_policy, add_pools_that_lost, people_alone
from tests.functional.two_tenants import two_tenants

ROOT = Path(__file__).resolve().parents[2]
Words = dict[str, str]
WALL = datetime(2030, 1, 1, 9, 30, 15, 123456, tzinfo=UTC)
# Defines new defaults, and clock functions in a schema that is searched before PostgreSQL's.
FIXED_CLOCK = f"""
CREATE SCHEMA fixed;
GRANT USAGE ON SCHEMA fixed TO PUBLIC;
CREATE FUNCTION fixed.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
    AS $$ SELECT timestamptz '{WALL.isoformat()}' $$;
CREATE FUNCTION fixed.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
    AS $$ SELECT timestamptz '{WALL.isoformat()}' $$;
DO $$
DECLARE
    found record;
BEGIN
    EXECUTE format(
        'ALTER DATABASE %I SET search_path = fixed, pg_catalog, public', current_database()
    );
    FOR found IN
        SELECT adrelid::regclass AS of_table, attname AS of_column
        FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
        WHERE pg_get_expr(adbin, adrelid) ~* 'statement_timestamp|clock_timestamp|now\\(\\)'
    LOOP
        EXECUTE format(
            'ALTER TABLE %s ALTER COLUMN %I SET DEFAULT fixed.clock_timestamp()',
            found.of_table, found.of_column
        );
    END LOOP;
END $$;
"""  # noqa: S608 - made of a constant of ours
LOST = ("nodes lost", "a type removed", "paused")
# The jobs of one pool whose answers differ most.
ENDS = ("by REST", "failed", "cancelled while it runs", "in quarantine", "too large")


class State(NamedTuple):
    """Values for placeholders of URLs, the callers, and the callers of filters and pages."""

    words: Words
    callers: tuple[str, ...]
    of_lists: tuple[str, ...] = ()


@dataclass
class RestStage:
    """The states by name, and the callers."""

    states: dict[str, State] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)

    def client(self, caller: str, *, api: bool) -> Client:
        """Return a caller's client: with a token for the API, else with a session."""
        return bearer(self.secrets[caller]) if api else session(self.sessions[caller])


def fix_clock(owner: psycopg.Connection) -> None:
    """Stop the clock of a database, for connections that open from now on."""
    owner.execute(FIXED_CLOCK)


@contextmanager
def seeded(seed: str) -> Iterator[None]:
    """Replace the clock and random bytes: bytes depend on `seed`, and time does not pass.

    Each call path by which libraries request bytes has a separate count, because some libraries
    request them once per process.
    """
    counts = Counter[str]()

    def urandom(size: int) -> bytes:
        asked = f"{seed} {size} {' '.join(_library_calls(sys._getframe(1)))}"
        counts[asked] += 1
        return hashlib.shake_256(f"{asked} {counts[asked]}".encode()).digest(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", urandom)
        patch.setattr(random, "_urandom", urandom)
        patch.setattr(time, "perf_counter_ns", lambda: 0)
        patch.setattr(timezone, "now", lambda: WALL)
        yield


def _library_calls(frame: FrameType | None) -> Iterator[str]:
    """Yield the names of the callers, up to the first caller in this repository."""
    while frame is not None and not _is_ours(frame.f_code.co_filename):
        yield frame.f_code.co_name
        frame = frame.f_back


def _is_ours(file: str) -> bool:
    return file.startswith(f"{ROOT}{os.sep}") and f"{os.sep}site-packages{os.sep}" not in file


def rest_stage(logs: Path) -> RestStage:
    """Create two tenants, a pool with late rounds, and rare states.

    This needs a separate database, because rounds commit.
    """
    made = RestStage()
    _add_odd(made)
    _add_late(made)
    _add_pair(made, logs)
    Pool.objects.update(round_s=86_400)
    for pool, last in Round.objects.values_list("pool").annotate(last=Max("at")):
        PoolClock.objects.filter(pool=pool).update(anchor_pool=last, anchor_wall=WALL)
    return made


def _add_odd(made: RestStage) -> None:
    """Add pools that lost nodes or types, jobs that ended in every way, and refused plans."""
    odd = people_alone()
    made.secrets |= odd.secrets
    made.sessions |= odd.sessions
    add_pools_that_lost(odd, LOST)
    add_jobs(odd, is_settled=True)
    for policy in ("market", "unisched"):
        add_policy(odd, policy)
    states = ("nodes lost", "of a type removed", "paused", "under market", "refused under unisched")
    for state in (*states, *(f"job {end}, settled" for end in ENDS)):
        made.states[state] = State(odd.states[state], ("owner",))


def _add_late(made: RestStage) -> None:
    late = late_stage()
    late.cluster.seal()
    _add(made, "ada", late.people["ada"])
    job = str(Job.objects.get(pool=late.cluster.pool).uid)
    words = {"slug": "aa", "pool": late.pool, "gpu_type": "v100", "round": "6", "job": job}
    made.states["late rounds"] = State(words, ("ada", "operator"), ("ada", "operator"))


def _add_pair(made: RestStage, logs: Path) -> None:
    """Add both managers, a member and the site's roles, with the pools of the first tenant."""
    pair = two_tenants(logs)
    member = User.objects.create(username="quokka-member")
    Membership.objects.create(user=member, tenant=pair.one.tenant, role=Membership.Role.MEMBER)
    _add(made, "member", member)
    for side, caller in ((pair.one, "manager"), (pair.two, "neighbour")):
        assert side.manager is not None
        _add(made, caller, side.manager)
    shared, mixed, _ = pair.one.pools
    filtered = ("manager", "neighbour", "operator")
    everybody = (*filtered, "member", "finance")
    for lab, callers, of_lists in ((shared, everybody, filtered), (mixed, filtered[:1], ())):
        words = pair.one.words_in(lab)
        made.states[f"of two tenants, {lab.pool.name}"] = State(words, callers, of_lists)


def _add(made: RestStage, caller: str, user: User) -> None:
    """Add a caller with a token and a session."""
    client = Client()
    client.force_login(user)
    made.sessions[caller] = client.cookies[settings.SESSION_COOKIE_NAME].value
    made.secrets[caller] = create_token(user=user, name=caller, scopes=Scope, days=1, now=WALL)[1]
