"""Provide a pool in which one tenant borrows from another for hours, and its disclosed rounds."""

from __future__ import annotations

from dataclasses import dataclass

from billing.metering import meter_pool, settle_pool
from evenshare_core.disclosure.bundle import Disclosed, Naming, ids_of, make_bundle, read_bundle
from evenshare_core.disclosure.pseudonyms import day_of, job_name, tenant_key, tenant_name
from scheduling.models import Job, Round
from scheduling.selectors.rounds.stored import round_values
from tenants.models import Tenant, User
from tests.functional.api_stage import ApiStage, api_stage


def lending_stage() -> ApiStage:
    """Create a stage in which aa borrows from bb for 2.5 hours, of which two are settled.

    Tenant bb uses a part of its quota.
    """
    stage = api_stage()
    stage.cluster.submit("aa", 6, 100_000)
    stage.cluster.round()
    for turn in range(10):
        if turn in (2, 5):
            stage.cluster.submit("bb", 1, 2_000)
        stage.cluster.round(after_s=900)
    meter_pool(stage.cluster.pool.pk)
    settle_pool(stage.cluster.pool.pk)
    stage.person("otto", site_role=User.SiteRole.OPERATOR)
    return stage


def late_stage() -> ApiStage:
    """Create a stage in which aa borrows from bb and no round runs for 4.5 hours.

    All hours are settled.
    """
    stage = api_stage()
    stage.cluster.submit("aa", 6, 1_000_000)
    stage.cluster.round()
    for after_s in (900, 900, 16_200, 900, 900, 900, 900):
        stage.cluster.round(after_s=after_s)
    meter_pool(stage.cluster.pool.pk)
    settle_pool(stage.cluster.pool.pk)
    return stage


@dataclass
class Rounds:
    """The disclosed stored rounds of a pool, and the key of a tenant by day."""

    bundles: dict[int, bytes]
    keys: dict[str, bytes]

    @property
    def rounds(self) -> dict[int, Disclosed]:
        return {number: read_bundle(data) for number, data in self.bundles.items()}


def disclosed(live: ApiStage, slug: str) -> Rounds:
    owners = dict(Job.objects.values_list("pk", "tenant_id"))
    uids = dict(Job.objects.values_list("pk", "uid"))
    """What a tenant could read of each round."""
    bundles: dict[int, bytes] = {}
    keys: dict[str, bytes] = {}
    for row in Round.objects.filter(pool=live.cluster.pool):
        snapshot, decision = round_values(row)
        ids, day = ids_of(snapshot), day_of(snapshot.at_us)
        everybody = Tenant.objects.values_list("pk", flat=True)
        of = {id_: tenant_key(day.encode(), id_) for id_ in everybody}
        naming = Naming(
            tenants={id_: tenant_name(of[id_]) for id_ in ids.tenants},
            jobs={id_: job_name(of[owners[id_]], uids[id_].hex) for id_ in ids.jobs},
            leases={id_: f"{id_:016x}" for id_ in ids.leases},
            profiles={id_: f"{id_:016x}" for id_ in ids.profiles},
        )
        bundles[row.number] = make_bundle(
            snapshot, decision, pool=live.pool, naming=naming, certificate=None,
            superseded=[], versions={},
        )  # fmt: skip
        keys[day] = of[live.cluster.tenants[slug].pk]
    return Rounds(bundles, keys)
