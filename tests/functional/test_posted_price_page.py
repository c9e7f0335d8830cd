"""The price of a term: from its charge to the posted price of its round."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from billing.metering import meter_pool
from billing.models import PostedPrice, Transfer, UsageLine
from scheduling.models import GpuType, Lease, LeaseTerm, Node, PriceSetting
from tests.functional.pool_stage import Stage

LINK = re.compile(r'href="(/pools/[\w-]+/prices/v100/(\d+)/)"')


def amount(text: str) -> Decimal:
    return Decimal(text.replace(",", ""))


class TestChargeLinks:
    def test_transfer_lines_link_to_posted_price_of_round(self, settled: Stage) -> None:
        transfer = Transfer.objects.filter(tenant__slug="alpha").order_by("hour").first()
        assert transfer is not None
        page = settled.page("owner", f"/t/alpha/ledger/{transfer.pk}/")
        rows = re.findall(r"<tr>.*?</tr>", page.partition('id="t-paid"')[2], re.DOTALL)
        followed = 0
        for row in rows:
            link = LINK.search(row)
            if link is None:
                continue
            shown = re.search(r'data-label="Price">\s*<a[^>]*>\s*([\d.,]+)', row)
            assert shown is not None
            self._is_posted(settled, link[1], int(link[2]), amount(shown[1]))
            followed += 1
        assert followed > 0

    def _is_posted(self, stage: Stage, path: str, number: int, price: Decimal) -> None:
        posted = PostedPrice.objects.filter(valid_from_round__lte=number)
        row = posted.order_by("-valid_from_round").first()
        page = stage.page("owner", path)
        if row is None:
            assert price == 0
            assert "costs nothing" in page
            return
        assert row.price == price
        assert f"{price:,.6f} credits." in page
        assert "This is the posted price" in page
        assert f"/rounds/{row.valid_from_round - 1}/" in page

    def test_job_terms_link_to_posted_price_of_round(self, settled: Stage) -> None:
        line = UsageLine.objects.filter(meter="borrowed", amount__gt=0).order_by("pk")[0]
        who = "owner" if line.tenant.slug == "alpha" else "neighbour"
        page = settled.page(who, f"/jobs/{line.job.uid}/")
        number = LeaseTerm.objects.get(lease=line.lease, number=line.term).round
        path = f"/pools/{line.pool.name}/prices/v100/{number}/"
        assert f'href="{path}"' in page
        self._is_posted(settled, path, number, line.price)

    def test_open_term_links_to_posted_price_of_round(self, settled: Stage) -> None:
        live = Lease.objects.filter(state__in=Lease.LIVE_STATES, borrowed__gt=0)
        lease = live.select_related("job__tenant", "job__pool").order_by("pk")[0]
        who = "owner" if lease.job.tenant.slug == "alpha" else "neighbour"
        page = settled.page(who, f"/jobs/{lease.job.uid}/")
        number = LeaseTerm.objects.get(lease=lease, number=lease.term).round
        path = f"/pools/{lease.job.pool.name}/prices/v100/{number}/"
        assert f'<a href="{path}" id="term-price">' in page
        self._is_posted(settled, path, number, lease.price)


class TestPage:
    def test_recomputes_price_with_surcharge(self, settled: Stage) -> None:
        lab = settled.lab
        PriceSetting.objects.update(surcharge_cap=4, surcharge_step=Decimal("2.5"))
        for tenant in ("alpha", "beta"):
            lab.submit(tenant, 4, 10**6)
            lab.submit(tenant, 8, 10**6)
        lab.rounds(4, every_s=60)
        meter_pool(lab.pool.pk)
        row = PostedPrice.objects.order_by("-valid_from_round")[0]
        assert row.surcharge
        path = f"/pools/{lab.pool.name}/prices/v100/{row.valid_from_round}/"
        page = settled.page("owner", path)
        assert f"{row.surcharge:.6f}" in page
        assert "GPUs queued for borrowing" in page
        assert "This is the posted price" in page
        before = LINK.search(page.partition("Previous price")[2])
        assert before is not None
        assert "recomputed" in settled.page("owner", before[1])

    @pytest.mark.parametrize("path", ["t4/1/", "v100/99999999999999/"])
    def test_returns_404_for_price_never_posted(self, settled: Stage, path: str) -> None:
        name = settled.lab.pool.name
        assert settled.get("owner", f"/pools/{name}/prices/{path}").status_code == 404

    def test_type_without_a_posted_price_is_free_so_far(self, settled: Stage) -> None:
        pool, h100 = settled.lab.pool, GpuType.objects.create(name="h100")
        Node.objects.create(pool=pool, name="new-1", gpu_type=h100, gpus=8)
        page = settled.page("owner", f"/pools/{pool.name}/prices/h100/1/")
        assert "borrowing was free" in page

    def test_is_limited_to_members_of_the_pool(self, settled: Stage) -> None:
        path = f"/pools/{settled.lab.pool.name}/prices/v100/3/"
        answers = [settled.get(who, path).status_code for who in ("owner", "neighbour", "nobody")]
        assert answers == [200, 200, 404]
