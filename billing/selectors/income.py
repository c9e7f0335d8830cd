"""Lines of income from lending, with all their factors. Read-only."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any
from uuid import UUID

from django.db import connection
from django.utils.translation import gettext as _
from msgspec.structs import replace

from billing.models import Transfer
from billing.selectors.accounts import account_of, exact_hours, gpu_hours
from billing.selectors.late import LATE_SHARES
from billing.selectors.statements import HOUR, Given
from evenshare_core.money.fixed_point import PLACES
from evenshare_core.units import HOUR_US
from scheduling.selectors.visibility import OTHER_TENANT, Visibility
from tenants.answers import Answer, Hidden, about, formatted_as
from tenants.scopes import site_reading

LineKey = tuple[datetime, int]  # hour and number of a line
PART = 10**12
MICROSECOND = timedelta(microseconds=1)


class IncomeLine(Answer, frozen=True, kw_only=True):
    """A share of a borrowed term: earned = charge x own_part, to the micro-credit."""

    counted_at: Annotated[datetime, about("End of the line's hour, when the line counts.")]
    round: Annotated[
        int | None, about("The round that granted or renewed the term and fixed its price.")
    ]
    gpu_type: str
    borrower: Annotated[str, about("The borrower, as visible to you.")] = OTHER_TENANT
    job: Annotated[UUID | None, about("null: you may not see it.")]
    lease: int
    term: int
    starts_at: datetime
    ends_at: datetime
    gpus: int
    price: Decimal
    carried: Annotated[
        Decimal | None,
        formatted_as(
            "{:f}".format,
            type="string",
            description="Remainder of the lease's earlier terms, in micro-credits; charge = gpus"
            " x price x time + carried, to the nearest micro-credit. null: the term is older"
            " than this rule.",
        ),
    ]
    charge: Decimal
    own_part: Annotated[
        Decimal,
        formatted_as(
            "{:f}".format,
            type="string",
            description="Time average of own idle / all idle quota, 12 places.",
        ),
    ]
    own_part_exact: Annotated[str, about("Exact fraction, if it is short.")]
    lent_gpu_h: Annotated[Decimal, formatted_as("{:f}".format, type="string")]
    earned: Decimal
    transfer: Annotated[UUID | None, about("null: not settled, or a charge of 0.")]
    charged_until: Annotated[
        datetime | None,
        about("If rounds were late: end of the borrower's charge. null: the end of the term."),
    ]
    borne: Annotated[
        Decimal, about("Part of `charge` paid by the operator because rounds were late.")
    ]
    earned_borne: Annotated[
        Decimal,
        about(
            "Part of `earned` paid by the operator: `borne`, split in proportion to the lenders'"
            " earnings by largest remainder."
        ),
    ]
    number: Hidden[int]
    hour: Hidden[datetime]
    borrower_id: Hidden[int]
    job_name: Hidden[str]
    # The lender's weight, and the sum of all weights; both are 0 if no quota was idle, so that the
    # operator earns.
    weight: Hidden[int]
    weights: Hidden[int]
    line_id: Hidden[int]
    lease_id: Hidden[int]
    # An exact decimal, as in `carried`.
    carried_units: Hidden[int | None]

    @property
    def held_h(self) -> Decimal:
        """Return how long the term held its GPUs, in hours of pool time."""
        return exact_hours((self.ends_at - self.starts_at) // MICROSECOND)

    @property
    def paid_h(self) -> Decimal:
        """Return how long the borrower was charged, in hours of pool time."""
        return exact_hours(((self.charged_until or self.ends_at) - self.starts_at) // MICROSECOND)

    @property
    def paid(self) -> Decimal:
        """Return the borrower's part of the charge."""
        return self.charge - self.borne

    @property
    def key(self) -> LineKey:
        return self.hour, self.number

    @property
    def key_text(self) -> str:
        """Return the line's key in URLs: its hour in seconds since 1970, and its number."""
        return f"{round(self.hour.timestamp())}-{self.number}"


# The lines of an account's shares, or of a borrower's hour.
_FACTORS = f"""
    WITH {LATE_SHARES}
    SELECT share.id AS number, share.hour, share.hour + interval '1 hour' AS counted_at,
           type.name AS gpu_type, line.tenant_id AS borrower_id, job.name AS job_name,
           job.uid AS job, lease.number AS lease, line.term, granted.round, line.starts_at,
           line.ends_at, line.gpus, line.price, line.amount + line.borne AS charge,
           line.carried AS carried_units, share.amount AS earned, share.lent_gpu_us, share.weight,
           (SELECT sum(every.weight) FROM billing_usageshare every WHERE every.line_id = line.id)
               AS weights,
           transfer.id AS transfer, line.id AS line_id, line.lease_id, line.charged_until,
           line.borne, coalesce(late.borne, 0.000000) AS earned_borne
    FROM billing_usageshare share
    JOIN billing_usageline line ON line.id = share.line_id
    JOIN scheduling_gputype type ON type.id = line.gpu_type_id
    JOIN scheduling_job job ON job.id = line.job_id
    JOIN scheduling_lease lease ON lease.id = line.lease_id
    LEFT JOIN scheduling_leaseterm granted
           ON granted.lease_id = line.lease_id AND granted.number = line.term
    LEFT JOIN late_share late ON late.id = share.id
    LEFT JOIN billing_transfer transfer
           ON transfer.code = 'usage' AND transfer.book_id = line.book_id
          AND transfer.pool_id = line.pool_id AND transfer.tenant_id = line.tenant_id
          AND transfer.hour = share.hour
    WHERE line.pool_id = %(pool)s
      AND share.hour >= %(since_hour)s AND share.hour < %(until_hour)s
"""  # noqa: S608 - made of a constant of ours
_LINES = f"""{_FACTORS}
      AND share.account_id = %(account)s AND (share.hour, share.id) < (%(before_hour)s, %(before)s)
    ORDER BY share.hour DESC, share.id DESC
    LIMIT %(limit)s
"""
_BEHIND = f"""{_FACTORS}
      AND line.tenant_id = %(borrower)s AND line.amount + line.borne > 0
      AND CASE WHEN %(is_paid)s THEN share.id = (
              SELECT min(every.id) FROM billing_usageshare every WHERE every.line_id = line.id)
          ELSE share.account_id = %(account)s END
    ORDER BY line.ends_at, line.lease_id, line.term
"""  # noqa: S608 - made of a constant of ours


def given_time(
    tenant_id: int, pool_id: int, book: str, since: datetime, until: datetime
) -> Given | None:
    """Return the query parameters of an account's lines, or None without an account."""
    account = account_of(tenant_id, book)
    if account is None:
        return None
    return {
        "account": account.pk,
        "pool": pool_id,
        "since": since,
        "until": until,
        "since_hour": since - HOUR,
        "until_hour": until - HOUR,
    }


def income_lines(
    tenant_id: int,
    pool_id: int,
    book: str,
    *,
    since: datetime,
    until: datetime,
    before: LineKey | None = None,
    limit: int = 50,
) -> list[IncomeLine]:
    """Return at most `limit` lines that count in [since, until), newest first. Two queries.

    `before`: the key of the line after which the page starts.
    """
    given = given_time(tenant_id, pool_id, book, since, until)
    if given is None:
        return []
    hour, number = before or (until, 0)
    return _lines(_LINES, {**given, "before_hour": hour, "before": number, "limit": limit})


def income_line(
    tenant_id: int, pool_id: int, book: str, *, hour: datetime, number: int
) -> IncomeLine | None:
    """Return the tenant's line with this key, or None. Two queries."""
    since = hour + HOUR
    lines = income_lines(
        tenant_id, pool_id, book,
        since=since, until=since + HOUR, before=(hour, number + 1), limit=1,
    )  # fmt: skip # rows of what belongs together
    return lines[0] if lines and lines[0].number == number else None


def lines_of_transfer(
    transfer: Transfer, tenant_id: int
) -> tuple[list[IncomeLine], list[IncomeLine]]:
    """Return a tenant's paid and earned lines in a transfer, by the terms' ends.

    The caller must check that the transfer is visible. Each paid term is listed once, with the
    share of one of its lenders. The result is empty if the transfer settles no usage. At most three
    queries.
    """
    hour, borrower = transfer.hour, transfer.tenant_id
    if transfer.pool_id is None or borrower is None or hour is None:
        return [], []
    since = hour + HOUR
    given = given_time(tenant_id, transfer.pool_id, transfer.book.slug, since, since + HOUR)
    if given is None:
        return [], []
    given = {**given, "borrower": borrower}
    paid = _lines(_BEHIND, {**given, "is_paid": True}) if borrower == tenant_id else []
    return paid, _lines(_BEHIND, {**given, "is_paid": False})


def visible_lines(
    lines: Iterable[IncomeLine], name_of: Callable[[int], str | None], visibility: Visibility
) -> list[IncomeLine]:
    """Return lines as a viewer may see them: with borrower and job only if the pool shows them."""
    rows = []
    for line in lines:
        shown = replace(line, borrower=name_of(line.borrower_id) or _(OTHER_TENANT))
        if not visibility.jobs_of(line.borrower_id):
            shown = replace(shown, job=None, job_name="")
        rows.append(shown)
    return rows


def _lines(sql: str, given: Given) -> list[IncomeLine]:
    # The lines include incomes of other tenants from the same terms.
    with site_reading(), connection.cursor() as cursor:
        cursor.execute(sql, given)
        names = [column.name for column in cursor.description]
        return [_line(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]


def _line(row: dict[str, Any]) -> IncomeLine:
    lent_gpu_us, weight, weights = row.pop("lent_gpu_us"), row["weight"], int(row.pop("weights"))
    part = Fraction(weight, weights) if weights else Fraction(1)
    return IncomeLine(
        **row,
        weights=weights,
        carried=_carried_micro(row["carried_units"]),
        own_part=Decimal(round(part * PART)) / PART,
        own_part_exact=f"{weight}/{weights}" if 1 < weights < PART else "",
        lent_gpu_h=gpu_hours(lent_gpu_us),
    )


def _carried_micro(carried: int | None) -> Decimal | None:
    """Return the remainder in a line's charge (`UsageLine.carried`) in micro-credits."""
    return None if carried is None else (Decimal(carried) / HOUR_US).quantize(PLACES)
