"""Posted prices as a file: exact, as posted by rounds, within the period."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest

from billing.models import PostedPrice, UsageLine
from scheduling.models import GpuType, LeaseTerm
from tests.functional.pool_stage import Stage, settled_stage
from tests.stages import staged

ALL = "from=2000-01-01&to=2040-01-01"


there = staged(settled_stage)


def rows(there: Stage, query: str) -> list[dict[str, str]]:
    answer = there.get("owner", f"/pools/{there.pool}/prices.csv?{query}")
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def posted(there: Stage) -> list[PostedPrice]:
    of_pool = PostedPrice.objects.filter(pool__name=there.pool).select_related("gpu_type")
    return list(of_pool.order_by("posted_at", "gpu_type__name"))


class TestCsv:
    def test_lists_every_exact_price_oldest_first(self, there: Stage) -> None:
        known = posted(there)
        assert len(known) > 3
        lines = rows(there, ALL)
        plain = ("valid_from_round", "gpu_type", "gpus_used", "gpus")
        assert [[row[name] for name in plain] for row in lines] == [
            [str(one.valid_from_round), one.gpu_type.name, str(one.used), str(one.capacity)]
            for one in known
        ]
        money = ("price_credits_per_gpu_h", "base_credits", "theta")
        assert [[Decimal(row[name]) for name in money] for row in lines] == [
            [one.price, one.base, one.theta] for one in known
        ]

    def test_filters_by_gpu_type(self, there: Stage) -> None:
        first = posted(there)[0]
        other = GpuType.objects.create(name="other")
        PostedPrice.objects.create(
            pool=first.pool, gpu_type=other, price=first.price, used=0, capacity=1,
            base=first.base, theta=first.theta, valid_from_round=first.valid_from_round,
            posted_at=first.posted_at, event_number=first.event_number,
        )  # fmt: skip
        every = rows(there, ALL)
        for name in ("other", first.gpu_type.name):
            assert rows(there, f"{ALL}&gpu_type={name}") == [
                row for row in every if row["gpu_type"] == name
            ]

    def test_filters_by_whole_days_in_pool_time(self, there: Stage) -> None:
        known = posted(there)
        day = known[-1].posted_at.date()
        assert len(rows(there, f"from={day}&to={day}")) == sum(
            one.posted_at.date() == day for one in known
        )
        assert rows(there, "from=2000-01-01&to=2000-01-02") == []

    def test_file_name_contains_pool_type_and_days(self, there: Stage) -> None:
        name = posted(there)[0].gpu_type.name
        path = f"/pools/{there.pool}/prices.csv?from=2030-01-01&to=2030-01-02"
        for query, of_type in (("", ""), (f"&gpu_type={name}", f"-{name}")):
            file = f"prices-{there.pool}{of_type}-2030-01-01-2030-01-02.csv"
            named = there.get("owner", path + query)["Content-Disposition"]
            assert named == f'attachment; filename="{file}"'

    @pytest.mark.parametrize(
        ("query", "problem"),
        [
            ("from=monday", "from: Enter a day such as 2026-11-20."),
            ("to=9999-12-31", "to: Enter a day such as 2026-11-20."),
            ("from=2030-01-02&to=2030-01-01", "to: The last day must not be before the first."),
            ("gpu_type=none", "gpu_type: No price of it was posted in"),
        ],
    )
    def test_invalid_parameters_return_422_with_field(
        self, there: Stage, query: str, problem: str
    ) -> None:
        answer = there.get("owner", f"/pools/{there.pool}/prices.csv?{query}")
        assert answer.status_code == 422
        assert answer.content.decode().startswith(problem)

    def test_is_linked_from_price_board(self, there: Stage) -> None:
        page = there.page("owner", f"/pools/{there.pool}/prices/")
        assert f'action="/pools/{there.pool}/prices.csv"' in page


class TestPriceBoard:
    """Feature 23.

    Posted price per GPU type, history chart, table and CSV; the charged price equals the posted
    price of that round.
    """

    def test_charges_equal_the_price_posted_for_their_round(self, there: Stage) -> None:
        page = there.page("owner", f"/pools/{there.pool}/prices/")
        lines = rows(there, ALL)
        charged = UsageLine.objects.filter(pool__name=there.pool, meter="borrowed", amount__gt=0)
        assert charged.count() > 1
        for line in charged.select_related("gpu_type"):
            name = line.gpu_type.name
            assert f"price of {name}, credits per GPU-hour" in page
            assert f'id="chart-price-{name}"' in page
            term = LeaseTerm.objects.get(lease=line.lease_id, number=line.term)
            *_, then = (
                row
                for row in lines
                if row["gpu_type"] == name and int(row["valid_from_round"]) <= term.round
            )
            assert line.price == term.price == Decimal(then["price_credits_per_gpu_h"])
