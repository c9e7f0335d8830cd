"""Test that probes, metrics and the console show findings of sealing with the round's name."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import psycopg
import pytest
from django.test import Client
from msgspec.structs import replace

from billing.checks import run_checks
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, decode, sha256_hex
from portal.site import health
from scheduling.models import PoolClock, RoundBlob
from scheduling.selectors.rounds.bundles import read_place, read_round_record
from tests.functional.pool_stage import Stage, stage
from tests.functional.test_metrics import sample, scrape
from tests.stages import Copy, copied, name_of_copy


def sealed_stage() -> Stage:
    """Create a pool whose rounds are all sealed, and pause its clock."""
    made = stage()
    made.lab.seal()
    PoolClock.objects.update(paused=True)
    return made


copy = copied(sealed_stage)
committed_db = name_of_copy


@pytest.fixture
def there(copy: Copy[Stage]) -> Stage:
    return copy.made


def chain() -> health.Check:
    (check,) = (one for one in health.readiness() if one.name == "chain")
    return check


def next_round(there: Stage) -> int:
    there.lab.submit("alpha", 1, 1000)
    round_ = there.lab.round(after_s=10).round
    assert round_ is not None
    return round_.number


def rewrite_sums(owner: psycopg.Connection[Any], number: int) -> int:
    """Change an initial sum of a stored round, with a matching hash and seal; return the sum."""
    (packed,) = RoundBlob.objects.filter(number=number).values_list("snapshot", flat=True)
    snapshot = decode(zlib.decompress(bytes(packed)), Snapshot)
    first, *rest = snapshot.service.claims
    claims = (replace(first, alloc_gpu_us=first.alloc_gpu_us + 777), *rest)
    data = canonical_bytes(replace(snapshot, service=replace(snapshot.service, claims=claims)))
    owner.execute(
        "UPDATE scheduling_roundblob SET snapshot = %s WHERE number = %s",
        [zlib.compress(data), number],
    )
    owner.execute(
        "UPDATE scheduling_round SET snapshot_sha256 = %s WHERE number = %s",
        [sha256_hex(data), number],
    )
    owner.execute(
        "UPDATE scheduling_round r SET seal = scheduling_round_seal(r) WHERE number = %s", [number]
    )
    return claims[0].alloc_gpu_us


class TestIntactChain:
    def test_health_check_is_ok_and_metrics_are_zero(self, there: Stage) -> None:
        assert chain().state is health.State.OK
        found = scrape(there.client(None))
        for name in ("rounds_unsealed", "unsealed_age_seconds", "chain_breaks", "chain_damaged"):
            assert sample(found, name, pool=there.pool) == 0


class TestRoundThatDoesNotFollow:
    @pytest.fixture
    def broken(self, there: Stage, owner: psycopg.Connection[Any]) -> int:
        """Rewrite a round with matching hashes, so that it starts from other fairness sums."""
        number = next_round(there)
        rewrite_sums(owner, number)
        there.lab.seal()
        return number

    def test_fails_readiness_with_pool_and_round(self, there: Stage, broken: int) -> None:
        check = chain()
        assert check.state is health.State.FAILING
        assert check.detail.startswith(f"{there.pool}, round {broken}: ")
        assert Client().get("/readyz").status_code == 503
        assert sample(scrape(there.client(None)), "chain_breaks", pool=there.pool) == 1

    def test_appears_in_record_on_page_and_in_operator_queue(
        self, there: Stage, broken: int
    ) -> None:
        place = read_place(there.lab.pool.pk, broken)
        assert place is not None
        assert place.breaks
        assert place.follows is False
        page = there.page("owner", there.url(f"rounds/{broken}/"))
        assert f"It does not follow from round {broken - 1}." in page
        assert "Chain broken" in there.page("operator", "/operate/")

    def test_hides_figures_if_tenants_see_own_rows_only(
        self, there: Stage, owner: psycopg.Connection[Any]
    ) -> None:
        there.see("own")
        number = next_round(there)
        rewritten = rewrite_sums(owner, number)
        there.lab.seal()
        place = read_place(there.lab.pool.pk, number)
        assert place is not None
        assert place.breaks == (f"It does not begin with what round {number - 1} left.",)
        assert str(rewritten) not in (read_round_record(there.lab.pool.pk, number) or b"").decode()
        assert f"round {number}: " in chain().detail

    def test_next_round_follows_again_and_alert_remains(self, there: Stage, broken: int) -> None:
        after = next_round(there)
        there.lab.seal()
        place = read_place(there.lab.pool.pk, after)
        assert place is not None
        assert place.follows
        assert f"round {broken}: " in chain().detail


class TestDamagedRound:
    def test_is_a_warning_naming_the_round(
        self, there: Stage, owner: psycopg.Connection[Any]
    ) -> None:
        number = next_round(there)
        owner.execute("UPDATE scheduling_roundblob SET snapshot = 'x' WHERE number = %s", [number])
        there.lab.seal()
        check = chain()
        assert check.state is health.State.WARNING
        assert check.detail.startswith(f"{there.pool}, round {number}: round {number} is damaged")
        assert sample(scrape(there.client(None)), "chain_damaged", pool=there.pool) == 1
        assert "Rounds sealed as damaged" in there.page("operator", "/operate/")
        assert "Sealed as damaged" in there.page("owner", there.url(f"rounds/{number}/"))


class TestLedgerCheck:
    """`check_ledger` compares rounds with the records of the log."""

    def test_remembers_break_after_old_bytes_are_restored(
        self, there: Stage, owner: psycopg.Connection[Any]
    ) -> None:
        """The old bytes are restored after the next round was sealed."""
        number = next_round(there)
        rows = RoundBlob.objects.filter(number=number)
        (packed,) = rows.values_list("snapshot", flat=True)
        sums = owner.execute(
            "SELECT snapshot_sha256, seal FROM scheduling_round WHERE number = %s", [number]
        ).fetchone()
        assert sums is not None
        rewrite_sums(owner, number)
        there.lab.seal()
        owner.execute(
            "UPDATE scheduling_roundblob SET snapshot = %s WHERE number = %s",
            [bytes(packed), number],
        )
        owner.execute(
            "UPDATE scheduling_round SET snapshot_sha256 = %s, seal = %s WHERE number = %s",
            [*sums, number],
        )
        broken = {row.name: row.violations for row in run_checks() if not row.ok}
        assert set(broken) == {"rounds_as_logged"}
        (text,) = broken["rounds_as_logged"]
        assert f"round {number} did not follow when it was sealed" in text

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("UPDATE scheduling_roundbundle SET data = %s WHERE number = 1", "its bundle"),
            ("DELETE FROM scheduling_roundbundle WHERE %s::bytea IS NOT NULL", "is missing"),
        ],
    )
    def test_names_bundle_that_differs_from_log(
        self, there: Stage, owner: psycopg.Connection[Any], change: str, said: str
    ) -> None:
        assert not [row for row in run_checks() if not row.ok]
        owner.execute(change, [gzip.compress(b"{}")])
        (row,) = (row for row in run_checks() if not row.ok)
        assert row.name == "rounds_as_logged"
        assert "round 1: its bundle" in row.violations[-1]
        assert said in row.violations[-1]


class TestSealing:
    def test_failure_is_a_warning_with_cause(
        self, there: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: Any, **__: Any) -> bytes:
            raise ZeroDivisionError("by chance")

        monkeypatch.setattr("scheduling.engine.seal.make_bundle", fails)
        number = next_round(there)
        there.lab.seal()
        check = chain()
        assert check.state is health.State.WARNING
        assert check.detail.startswith(f"{there.pool}, round {number}: not sealed for")
        assert "ZeroDivisionError: by chance" in check.detail
        assert "Rounds not sealed" in there.page("operator", "/operate/")
        assert sample(scrape(there.client(None)), "rounds_unsealed", pool=there.pool) == 1

    def test_delay_is_a_warning(self, there: Stage, owner: psycopg.Connection[Any]) -> None:
        number = next_round(there)
        assert chain().state is health.State.OK, "sealed in seconds"
        owner.execute(
            "UPDATE scheduling_round SET wall_at = clock_timestamp() - interval '1 hour'"
            " WHERE number = %s",
            [number],
        )
        check = chain()
        assert check.state is health.State.WARNING
        assert f"round {number}: not sealed for 36" in check.detail
