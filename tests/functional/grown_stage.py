"""Build a busy pool with a past and queue of any length; rows are copied in SQL, not played.

The past is copies of one short period with rows of every kind. Each copy is four hours before the
next, and the last one ends now. Numbers of rounds and events continue from copy to copy. Seals and
hashes are copied too, so no test may verify them.
"""

# ruff: noqa: S608 - what is put into queries are names of tables, and numbers of this file

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import psycopg
from django.db.models import Q
from django.utils import timezone

from billing.metering import log_transfers, meter_pool, settle_pool
from billing.models import Book, TransferRequest
from scheduling.models import (
    Job,
    PoolClock,
    Round,
    Simulation,
    StartEstimate,
    StartForecast,
    Verification,
)
from tenants.models import Membership, QuotaChangeRequest, User
from tenants.tokens import Scope
from tests.factories import cluster
from tests.functional.matrix_stage import NAMES, SITE_ROLES, Stage, secret, words_of
from tests.functional.reading import vacuum

OWN, OTHER = "canary-lab", "south"
SPAN = timedelta(hours=4)
ROUNDS, JOBS = 12, 10
# The distance between the keys of two copies, larger than all keys of the first copy.
KEYS = 10_000
# The columns that number rounds, and those that number the pool's events.
ROUND_NUMBERS = frozenset({"granted_round", "reason_round", "round", "valid_from_round"})
EVENT_NUMBERS = frozenset({"event_number"})
# The tables to copy. The files of rounds follow their rounds.
COPIED = (
    "scheduling_job", "scheduling_virtualwork", "scheduling_lease", "scheduling_leaseslot",
    "scheduling_leaseterm", "scheduling_intent", "scheduling_leaseevent", "scheduling_round",
    "scheduling_roundstate", "scheduling_startforecast", "scheduling_startestimate",
    "scheduling_simulation", "scheduling_verification", "billing_postedprice", "billing_transfer",
    "billing_entry", "billing_loggedtransfer", "billing_usageline", "billing_usageshare",
    "billing_transferrequest", "tenants_quotachangerequest", "tenants_auditrecord",
    "tenants_logentry", "tenants_idleoffer",
)  # fmt: skip
OF_DAYS = ("scheduling_roundblob", "scheduling_roundbundle")


@dataclass
class GrownStage(Stage):
    """A stage like the matrix stage, but its pool runs virtual jobs."""

    queued: int = 0


def short_stage() -> GrownStage:
    """Create the stage to copy, with ended and settled jobs and other kinds of rows."""
    lab = cluster({OWN: 3, OTHER: 5})
    for at in range(ROUNDS):
        if at < JOBS:
            lab.submit((OWN, OTHER)[at % 2], (5, 3)[at % 2], 800, command=["true"])
        lab.round(after_s=900 if at else 0)
    meter_pool(lab.pool.pk)
    settle_pool(lab.pool.pk)
    lab.seal()
    log_transfers(Book.objects.get(slug=lab.pool.book))
    made = GrownStage({}, lab)
    _people(made)
    # A simulation requires a job in its pool, so this job is created.
    waits = lab.submit(OWN, 1, 60)
    made.words = words_of(made)
    waiting = Job.objects.filter(Q(pk=waits.pk) | Q(sweep__isnull=False))
    waiting.update(state="cancelled", holds=[], ended_at=lab.at)
    _rows_of_other_kinds(made)
    return made


def _people(made: GrownStage) -> None:
    role = Membership.Role
    for actor, membership in {"owner": role.MEMBER, "manager": role.MANAGER}.items():
        user = User.objects.create(username=NAMES[actor])
        Membership.objects.create(user=user, tenant=made.lab.tenants[OWN], role=membership)
    User.objects.create(username=NAMES["operator"], site_role=SITE_ROLES["operator"])
    for actor in ("owner", "manager", "operator"):
        user = User.objects.get(username=NAMES[actor])
        made.secrets[actor] = secret(user, f"{actor}-token", *Scope)
        made.sign_in(actor)


def _rows_of_other_kinds(made: GrownStage) -> None:
    lab, at = made.lab, made.lab.at
    job = Job.objects.filter(tenant=lab.tenants[OWN]).latest("pk")
    user = User.objects.get(username=NAMES["owner"])
    Simulation.objects.update(state=Simulation.State.FAILED, ended_at=at, error="none")
    forecast = StartForecast.objects.create(
        pool=lab.pool, state="done", policy=lab.pool.policy, round=2, at=at, until=at,
        started_at=at, beat_at=at, ended_at=at,
    )  # fmt: skip
    StartEstimate.objects.create(
        forecast=forecast, job=job, pool=lab.pool, tenant=job.tenant, at=at, p50=at, p90=at,
        raw_p90=at, kept=True, fate=StartEstimate.Fate.STARTED, started_at=at,
    )  # fmt: skip
    Verification.objects.create(
        pool=lab.pool, tenant=job.tenant, user=user, uid=uuid4(), said_at=at,
        kind=Verification.Kind.ROUNDS, size=1, root="0" * 64,
        first=1, last=1, checked=1, findings=0, client="0",
    )  # fmt: skip
    TransferRequest.objects.create(
        tenant=job.tenant, receiver=lab.tenants[OTHER], book=Book.objects.get(), asked_by=user,
        amount=Decimal(1), reason="none", state="refused", asked_at=at, decided_at=at,
        decided_by=User.objects.get(username=NAMES["operator"]),
    )  # fmt: skip
    # Only one copy could be open.
    QuotaChangeRequest.objects.filter(state="open").update(
        state="withdrawn", decided_by=user, decided_at=at
    )


class Copier:
    """Copies the period, with a `session` that ignores triggers and foreign keys."""

    def __init__(self, session: psycopg.Connection[Any], copies: int) -> None:
        self.session, self.copies = session, copies
        self.rounds = self._one("SELECT max(number) FROM scheduling_round")
        self.events = self._one("SELECT max(number) FROM scheduling_leaseevent")
        self.transfers = self._one(
            "SELECT coalesce(max(number), 0) + 1 FROM billing_loggedtransfer"
        )
        self.keys = {
            (table, column): target
            for table, column, target in session.execute(
                """
                SELECT c.conrelid::regclass::text, a.attname, c.confrelid::regclass::text
                FROM pg_constraint c
                JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
                WHERE c.contype = 'f' AND array_length(c.conkey, 1) = 1
                """
            )
        }

    def copy(self) -> None:
        self._move_the_first()
        for table in OF_DAYS:
            self.session.execute(
                f"INSERT INTO {table} SELECT {self._of_day(table)} FROM {table} t"
                " JOIN scheduling_round r USING (pool_id, number)"
                f" CROSS JOIN generate_series(1, {self.copies}) k"
            )
        for table in COPIED:
            columns = list(self._columns(table))
            names = ", ".join(f'"{name}"' for name, _ in columns)
            values = ", ".join(value for _, value in columns)
            # The pool's initial state exists once.
            which = " WHERE t.number > 0" if table == "scheduling_roundstate" else ""
            self.session.execute(
                f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} t"
                f" CROSS JOIN generate_series(1, {self.copies}) k{which}"
            )
        self._go_on()

    def _columns(self, table: str) -> Iterator[tuple[str, str]]:
        """Return each column with its SQL value in copy `k`."""
        for name, kind in self.session.execute(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s",
            [table],
        ).fetchall():
            yield name, self._value(table, name, kind)

    def _value(self, table: str, name: str, kind: str) -> str:
        column = f't."{name}"'
        target = self.keys.get((table, name), table if name == "id" else "")
        if target in COPIED and kind == "uuid":
            return f"md5({column}::text || k)::uuid"
        if target in COPIED:
            return f"{column} + k * {KEYS}"
        # A sweep is not copied.
        fresh = {"uid": "gen_random_uuid()", "sweep_id": "NULL", "sweep_index": "NULL"}
        if name in fresh:
            return fresh[name]
        if name == "day":
            return f"(t.at + k * interval '{SPAN}')::date"
        if name == "index":
            return f"{column} + k * (SELECT count(*) FROM {table} o WHERE o.log_id = t.log_id)"
        return self._moved(table, name, kind, column)

    def _moved(self, table: str, name: str, kind: str, column: str) -> str:
        if kind.startswith("timestamp"):
            return f"{column} + k * interval '{SPAN}'"
        by = self._counted(table, name)
        return f"{column} + k * {by}" if by else column

    def _counted(self, table: str, name: str) -> int:
        """Return by how much a numbering column grows per copy; 0 for other columns."""
        of_rounds = ("scheduling_round", "scheduling_roundstate")
        if name in ROUND_NUMBERS or (name == "number" and table in of_rounds):
            return self.rounds
        if name in EVENT_NUMBERS or (name == "number" and table == "scheduling_leaseevent"):
            return self.events
        is_transfer = name == "number" and table == "billing_loggedtransfer"
        return self.transfers if is_transfer else 0

    def _of_day(self, table: str) -> str:
        names = self.session.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = %s"
            " ORDER BY ordinal_position",
            [table],
        ).fetchall()
        values = {
            "day": f"(r.at + k * interval '{SPAN}')::date",
            "number": f"t.number + k * {self.rounds}",
        }
        return ", ".join(values.get(name, f"t.{name}") for (name,) in names)

    def _move_the_first(self) -> None:
        """Move the first copy to the start, because it is the oldest."""
        for table in COPIED:
            times = [
                name
                for name, kind in self.session.execute(
                    "SELECT column_name, data_type FROM information_schema.columns"
                    " WHERE table_name = %s",
                    [table],
                ).fetchall()
                if kind.startswith("timestamp")
            ]
            if times:
                moved = ", ".join(f"{t} = {t} - {self.copies} * interval '{SPAN}'" for t in times)
                self.session.execute(f"UPDATE {table} SET {moved}")

        for table in (*OF_DAYS, "scheduling_roundstate"):
            self.session.execute(
                f"UPDATE {table} t SET day = r.at::date FROM scheduling_round r"
                " WHERE r.pool_id = t.pool_id AND r.number = t.number"
            )

    def _go_on(self) -> None:
        """Set counters to continue after the last copy."""
        copies, all_rounds = self.copies, (self.copies + 1) * self.rounds
        run = self.session.execute
        run("UPDATE tenants_quota SET valid_from = valid_from - interval '1 year'")
        run(
            f"UPDATE scheduling_poolfence SET next_round = {all_rounds + 1},"
            f" next_event = {(copies + 1) * self.events + 1} WHERE next_round > 1"
        )
        run(f"UPDATE scheduling_roundsealing SET number = {all_rounds}")
        run(f"UPDATE billing_metercursor SET event_number = event_number + {copies * self.events}")
        run(
            f"INSERT INTO tenants_dailyspend (book, day, amount, tenant_id, unsettled)"
            f" SELECT book, day - k, amount, tenant_id, 0 FROM tenants_dailyspend"
            f" CROSS JOIN generate_series(1, {copies // 6 + 1}) k"
        )
        run(
            f"INSERT INTO scheduling_pseudonymkey (day, secret, pool_id, seal)"
            f" SELECT day - k, secret, pool_id, seal FROM scheduling_pseudonymkey"
            f" CROSS JOIN generate_series(1, {copies // 6 + 1}) k"
        )
        run("DELETE FROM tenants_lognode")
        run(
            "INSERT INTO tenants_lognode (log_id, level, index, hash, seal)"
            " SELECT log_id, level, i, sha256(int8send(i)), '' FROM"
            " (SELECT log_id, count(*) AS size FROM tenants_logentry GROUP BY log_id) s"
            " CROSS JOIN generate_series(1, 20) level"
            " CROSS JOIN LATERAL generate_series(0, (size >> level) - 1) i"
        )
        for table in COPIED:
            if table not in ("scheduling_virtualwork", "scheduling_roundstate", "billing_transfer"):
                run(
                    f"SELECT setval(pg_get_serial_sequence('{table}', 'id'),"
                    f" (SELECT max(id) FROM {table}))"
                )

    def _one(self, query: str) -> int:
        row = self.session.execute(query).fetchone()
        assert row is not None
        return int(row[0])


def grow(made: GrownStage, session: psycopg.Connection[Any], *, copies: int, queued: int) -> None:
    """Give the stage a past of `copies` periods, and running and waiting jobs."""
    session.execute("SET session_replication_role = replica")
    Copier(session, copies).copy()
    lab = made.lab
    for tenant in (OWN, OTHER):
        lab.submit(tenant, 2, 40_000, command=["true"])
    lab.round(after_s=60)
    for at in range(6):
        lab.submit((OWN, OTHER)[at % 2], 6, 40_000, command=["true"])
    job = Job.objects.filter(state="pending", tenant=lab.tenants[OWN]).latest("pk")
    # Each copy has the same six waiting jobs.
    queue_jobs(session, copies=queued // 6)
    session.execute("ANALYZE")
    lab.round(after_s=60)
    lab.seal()
    PoolClock.objects.filter(pool=lab.pool).update(anchor_pool=lab.at, anchor_wall=timezone.now())
    made.words |= {"job": str(job.uid), "round": str(Round.objects.latest("number").number)}
    made.queued = queued
    # Revoke all offers except the newest, because an offer stays open until it is revoked.
    session.execute(
        "UPDATE tenants_idleoffer SET revoked_at = made_at + interval '1 hour' WHERE"
        " id < (SELECT max(id) FROM tenants_idleoffer)"
    )
    # Otherwise recently written rows could move while a test reads them.
    vacuum(session, analyze=True)


def queue_jobs(session: psycopg.Connection[Any], *, copies: int) -> None:
    columns = [
        name
        for (name,) in session.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'scheduling_job'"
        ).fetchall()
        if name not in ("id", "uid", "submitted_at")
    ]
    names = ", ".join(f'"{name}"' for name in columns)
    session.execute(
        f"INSERT INTO scheduling_job (uid, submitted_at, {names})"
        f" SELECT gen_random_uuid(), submitted_at + k * interval '1 millisecond', {names}"
        f" FROM scheduling_job CROSS JOIN generate_series(1, {copies}) k"
        " WHERE state = 'pending' ORDER BY k, id"
    )
    session.execute(
        "INSERT INTO scheduling_virtualwork (job_id, duration_us, done_us, token, speed_milli,"
        " last_number, iteration_us, exit_code)"
        " SELECT id, 40000000000, 0, '', 1000, 0, 0, 0 FROM scheduling_job"
        " WHERE state = 'pending' AND NOT EXISTS"
        " (SELECT 1 FROM scheduling_virtualwork w WHERE w.job_id = scheduling_job.id)"
    )
