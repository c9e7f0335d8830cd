"""Test that no bundle, record or names answer has another tenant's private data, at any visibility.

Two tenants who combine all their answers learn no key, no name and no row of a third tenant. They
learn only what the bundle shows to every reader.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from evenshare_core.disclosure.bundle import read_bundle
from evenshare_core.disclosure.pseudonyms import job_name, lease_name, tenant_key, tenant_name
from evenshare_core.money.fixed_point import to_micro
from scheduling.models import Job, Lease, Pool, PseudonymKey, Round, RoundBundle
from tenants import transparency
from tenants.models import IdleOffer, PriceLimit
from tests.factories import Cluster
from tests.functional.addresses import bearer
from tests.functional.canaries import canaries, strange_ids
from tests.functional.two_tenants import LENDER, Pair, Side

PLAIN = {"Accept-Encoding": "identity"}


def get(side: Side, path: str) -> Any:
    return bearer(side.secret).get(f"/api/v1/{path}", headers=PLAIN)


def numbers(lab: Cluster) -> list[int]:
    return list(Round.objects.filter(pool=lab.pool).values_list("number", flat=True))


def answers(side: Side, labs: list[Cluster]) -> Iterator[tuple[str, str]]:
    """Return a tenant's answers about the chains of its pools: bundles of all rounds, and names."""
    for lab in labs:
        name = lab.pool.name
        paths = [f"chain/{name}/names"]
        paths += [f"rounds/{name}/{number}/bundle" for number in numbers(lab)]
        for path in paths:
            answer = get(side, path)
            assert answer.status_code == 200, path
            yield path, answer.content.decode()


def private_figures(side: Side) -> set[str]:
    """Return a tenant's private prices, in micro-credits as in bundles."""
    limits = PriceLimit.objects.filter(tenant=side.tenant).values_list("max_price", flat=True)
    floors = IdleOffer.objects.filter(tenant=side.tenant).values_list("floor_price", flat=True)
    jobs = Job.objects.filter(tenant=side.tenant).values_list("max_price", flat=True)
    amounts = {amount for amount in (*limits, *floors, *jobs) if amount is not None}
    assert len(amounts) >= 2
    return {str(to_micro(Decimal(amount))) for amount in amounts}


class TestBundle:
    @pytest.mark.parametrize("visibility", Pool.Visibility.values)
    def test_contains_nothing_of_the_other_tenant(self, pair: Pair, visibility: str) -> None:
        Pool.objects.update(visibility=visibility)
        wrong = []
        for me, other in pair.sides:
            hidden = {*strange_ids(me, other), *private_figures(other) - private_figures(me)}
            if visibility != Pool.Visibility.FULL:
                hidden |= {other.name, other.initials}
            for path, text in answers(me, me.pools):
                wrong += [f"{path}: {value}" for value in hidden if value in text]
                if other.word in text.lower():
                    wrong.append(f"{path}: {other.word}")
        assert not wrong, "\n".join(wrong)

    def test_contains_no_private_text_of_its_own_tenants(self, pair: Pair) -> None:
        """Names, commands and uids are not part of a round, for any requester."""
        Pool.objects.update(visibility="full")
        for me, _ in pair.sides:
            texts = set().union(*canaries(me).values()) - {me.slug}
            texts -= {lab.pool.name for lab in me.pools}
            long = {text for text in texts if len(text) > 8}
            for path, text in answers(me, me.pools):
                if "bundle" in path:
                    assert not [one for one in long if one in text], path
                    assert me.word not in text.lower().replace(f'"pool":"{me.word}-pool"', "")

    def test_is_identical_for_both_tenants_unless_rows_are_hidden(self, pair: Pair) -> None:
        for visibility, lab in product(("full", "pseudonyms"), pair.one.pools[:-1]):
            Pool.objects.update(visibility=visibility)
            for number in numbers(lab):
                path = f"rounds/{lab.pool.name}/{number}/bundle"
                assert get(pair.one, path).content == get(pair.two, path).content

    def test_own_rows_form_contains_no_rows_of_others(self, pair: Pair) -> None:
        Pool.objects.update(visibility="own")
        for me, other in pair.sides:
            for lab in me.pools[:-1]:
                (theirs,) = get(other, f"chain/{lab.pool.name}/names").json()["tenants"]
                names = {theirs["name"], *rows_of(other, bytes.fromhex(theirs["key"]))}
                text = "".join(text for path, text in answers(me, [lab]) if "bundle" in path)
                assert not [name for name in names if name in text]

    def test_returns_404_for_pools_of_others(self, pair: Pair) -> None:
        for me, other in pair.sides:
            name = other.alone.pool.name
            for path in (f"chain/{name}/names", f"rounds/{name}/1/bundle"):
                assert get(me, path).status_code == 404


def rows_of(side: Side, key: bytes) -> set[str]:
    """Return the pseudonyms of a tenant's jobs and leases, from the tenant's key."""
    jobs = Job.objects.filter(tenant=side.tenant).values_list("uid", flat=True)
    leases = Lease.objects.filter(tenant=side.tenant).values_list("id", flat=True)
    return {job_name(key, uid.hex) for uid in jobs} | {lease_name(key, id_) for id_ in leases}


class TestTwoTenantsTogether:
    @pytest.mark.parametrize("visibility", ["own", "pseudonyms"])
    def test_learn_no_key_or_hidden_name_of_a_third(self, pair: Pair, visibility: str) -> None:
        Pool.objects.update(visibility=visibility)
        lab = pair.one.pools[0]
        together = "".join(text for side, _ in pair.sides for _, text in answers(side, [lab]))
        secret = bytes(PseudonymKey.objects.get(pool=lab.pool).secret)
        third = tenant_key(secret, lab.tenants[LENDER].pk)
        assert secret.hex() not in together, "the key of the day is nobody's"
        assert third.hex() not in together
        assert LENDER not in together
        assert (tenant_name(third) in together) is (visibility != "own")

    def test_keys_identify_only_their_own_rows(self, pair: Pair) -> None:
        Pool.objects.update(visibility="pseudonyms")
        lab = pair.one.pools[0]
        sides = [side for side, _ in pair.sides]
        keys = [
            bytes.fromhex(get(side, f"chain/{lab.pool.name}/names").json()["tenants"][0]["key"])
            for side in sides
        ]
        everything = set(Job.objects.values_list("uid", flat=True))
        known: set[str] = set()
        for row in RoundBundle.objects.filter(pool=lab.pool):
            known |= set(read_bundle(gzip.decompress(bytes(row.data))).names.jobs)
        assert Job.objects.filter(tenant__slug=LENDER, pool=lab.pool).exists()
        for side, key in zip(sides, keys, strict=True):
            # With the uids of all jobs, a reader still finds only the jobs of the key's tenant.
            found = {uid for uid in everything if job_name(key, uid.hex) in known}
            assert found
            assert set(Job.objects.filter(uid__in=found).values_list("tenant", flat=True)) == {
                side.tenant.pk
            }

    def test_keys_differ_in_every_pool(self, pair: Pair) -> None:
        keys = set()
        for side, _ in pair.sides:
            for lab in side.pools:
                body = get(side, f"chain/{lab.pool.name}/names").json()
                keys |= {row["key"] for row in body["tenants"]}
        assert len(keys) == sum(len(side.pools) for side, _ in pair.sides)


class TestDayKey:
    def test_is_absent_from_records_and_answers_to_operators(self, pair: Pair) -> None:
        labs = [*pair.one.pools, pair.two.alone]
        secrets = {bytes(row.secret) for row in PseudonymKey.objects.all()}
        text = "".join(text for _, text in answers(pair.operator, labs))
        for lab in labs:
            entries = transparency.entries(transparency.round_log(lab.pool.name), 0, 1000)
            text += "".join(entry.record.decode() for entry in entries)
        assert secrets
        for secret in secrets:
            assert secret.hex() not in text
            for lab in labs:
                for tenant in lab.tenants.values():
                    assert tenant_key(secret, tenant.pk).hex() not in text
