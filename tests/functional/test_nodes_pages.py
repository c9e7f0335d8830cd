"""Test nodes that take no lease: drained for a reason, in maintenance, counted once, folded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.test import Client

from scheduling.models import Lease, MaintenanceWindow, Node, Round
from tenants.models import AuditRecord
from tests.functional.pool_stage import headline
from tests.functional.visitors import Town, reads, town
from tests.stages import staged

DAY = timedelta(days=1)


def played_town() -> Town:
    made = town()
    made.submit()
    made.play(2)
    return made


there = staged(played_town)


def page(client: Client, path: str, **query: str) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200
    return answer.content.decode()


class TestNodeDrainedByEngine:
    def test_shows_engine_reason_and_can_still_be_drained(self, there: Town) -> None:
        pool = there.cluster.pool
        path = f"/operate/pools/{pool.name}/nodes/"
        rows = Node.objects.filter(pool=pool, name="n0001")
        since = datetime(2026, 11, 26, 15, 30, tzinfo=UTC)
        rows.update(engine_state="drained", engine_reason="by Slurm: a <disk>", engine_since=since)
        shown = page(there.operator, path)
        assert headline(shown) == "1 of 2 nodes are schedulable."
        row = shown.split('id="node-n0001"')[1].split("</tr>")[0]
        assert "by Slurm: a &lt;disk&gt;, since" in row
        assert ">2026-11-26 15:30:00 UTC</time>" in row
        assert "drained" in row
        assert "?drain=n0001#drain" in row
        assert "Set by Slurm: a &lt;disk&gt;." in page(there.operator, "/operate/")
        assert ">Drained<" in page(there.owner, f"/pools/{pool.name}/")
        there.operator.post(path, {"do": "drain", "node": "n0001", "reason": "fans"})
        rows.update(engine_state="up", engine_reason="", engine_trouble="not drained there: no")
        row = page(there.operator, path).split('id="node-n0001"')[1].split("</tr>")[0]
        assert "fans" in row
        assert "engine refuses" in row
        assert "not drained there: no" in row
        rows.update(state="up", engine_state="down", engine_reason="by Slurm", engine_trouble="")
        assert "Node lost" in page(there.owner, f"/pools/{pool.name}/")
        assert "lost" in page(there.operator, path).split('id="node-n0001"')[1].split("</tr>")[0]


class TestNodesPage:
    def test_drain_requires_confirmation_and_reason(self, there: Town) -> None:
        path = f"/operate/pools/{there.cluster.pool.name}/nodes/"
        node = Node.objects.get(pool=there.cluster.pool, name="n0001")
        shown = page(there.operator, path, drain="n0001")
        assert "Drain n0001?" in shown
        assert 'name="reason"' in shown
        refused = there.operator.post(path, {"do": "drain", "node": "n0001", "reason": ""})
        assert refused.status_code == 422
        assert "Give a short reason" in refused.content.decode()
        assert "Drain n0001?" in refused.content.decode()
        node.refresh_from_db()
        assert node.state == Node.State.UP
        there.operator.post(path, {"do": "drain", "node": "n0001", "reason": "two <fans>"})
        shown = page(there.operator, path)
        row = shown.split('id="node-n0001"')[1].split("</tr>")[0]
        assert "two &lt;fans&gt;" in row
        assert AuditRecord.objects.get(action="node.drained").reason == "two <fans>"
        assert "Drain n0001?" not in page(there.operator, path, drain="n0001")

    def test_expired_lease_ends_at_the_next_round(self, there: Town) -> None:
        path = f"/operate/pools/{there.cluster.pool.name}/nodes/"
        Lease.objects.update(expires_at=there.cluster.at - timedelta(minutes=2))
        shown = page(there.operator, path)
        table = shown.split('id="nodes"')[1].split("</section>")[0]
        assert "round-changed from:body" in table
        assert "renews or ends at the next round" in table
        Node.objects.update(state="drained", effective_state="drained")
        table = page(there.operator, path).split('id="nodes"')[1]
        assert "ends at the next round" in table
        assert "renews or ends" not in table
        assert "2 min ago" not in table.split("</section>")[0]

    def test_repeated_drain_and_resume_change_nothing(self, there: Town) -> None:
        path = f"/operate/pools/{there.cluster.pool.name}/nodes/"
        pages = []
        for do, reason in (("drain", "fans"), ("drain", "disks"), ("resume", ""), ("resume", "")):
            form = {"do": do, "node": "n0001", "reason": reason}
            answer = there.operator.post(path, form, follow=True).content.decode()
            pages.append(answer)
        assert "n0001 takes no new lease." in pages[0]
        assert "n0001 was already drained. Nothing was changed." in pages[1]
        assert "n0001 takes no new lease." not in pages[1]
        assert "n0001 takes leases again" in pages[2]
        assert "n0001 was not drained. Nothing was changed." in pages[3]
        assert "n0001 takes leases again" not in pages[3]
        records = AuditRecord.objects.order_by("id").values_list("action", "reason")
        assert list(records) == [("node.drained", "fans"), ("node.resumed", "")]

    def test_counts_nodes_in_maintenance_like_rounds(self, there: Town) -> None:
        pool, at = there.cluster.pool, there.cluster.at
        for node in Node.objects.filter(pool=pool):
            begins = at + timedelta(minutes=1 if node.name == "n0001" else 600)
            MaintenanceWindow.objects.create(
                pool=pool, node=node, starts_at=begins, ends_at=begins + DAY, reason="new fans"
            )
        there.play(1)
        shown = page(there.owner, f"/pools/{pool.name}/")
        last = Round.objects.filter(pool=pool).latest("number")
        assert headline(shown).endswith(
            "3 are idle. 4 are unavailable (drained, lost or in maintenance)."
        )
        assert last.summary["idle"] == 3
        nodes = page(there.operator, f"/operate/pools/{pool.name}/nodes/")
        assert headline(nodes) == "1 of 2 nodes are schedulable."
        assert "in maintenance" in shown.split("<h2>GPU map</h2>")[1]

    def test_pool_page_groups_nodes_with_same_notice(self, there: Town) -> None:
        pool = there.cluster.pool
        ends = there.cluster.at + DAY
        for node in Node.objects.filter(pool=pool):
            MaintenanceWindow.objects.create(
                pool=pool, node=node, starts_at=there.cluster.at, ends_at=ends, reason="new fans"
            )
        Node.objects.filter(pool=pool, name="n0001").update(state=Node.State.DRAINED)
        for who in (there.operator, there.owner):
            shown = page(who, f"/pools/{pool.name}/")
            assert shown.count("new fans") == 1
            assert "n0000, n0001</b>" in shown
            assert ">Drained<" not in shown

    def test_folds_nodes_that_need_no_attention(self, there: Town) -> None:
        pool = there.cluster.pool
        gpu_type = there.cluster.gpu_type
        Node.objects.bulk_create(
            Node(pool=pool, name=f"z{n:03d}", gpu_type=gpu_type, gpus=4) for n in range(58)
        )
        Node.objects.filter(pool=pool, name="z057").update(state=Node.State.DRAINED)
        shown = page(there.operator, f"/operate/pools/{pool.name}/nodes/")
        before, folded = shown.split('id="d-nodes"')
        assert before.count('<tr id="node-') == 25
        assert 'id="node-z057"' in before
        assert "Show 35 more nodes that take leases" in folded
        assert folded.split("</details>")[0].count('<tr id="node-') == 35
        assert "of 240 GPUs" in before

    def test_reads_maintenance_in_one_query(self, there: Town) -> None:
        pool, at = there.cluster.pool, there.cluster.at
        for node in Node.objects.filter(pool=pool):
            MaintenanceWindow.objects.create(
                pool=pool, node=node, starts_at=at, ends_at=at + DAY, reason="new fans"
            )
        path = f"/operate/pools/{pool.name}/nodes/"
        asked = [sql for sql in reads(there.operator, path) if "_maintenancewindow" in sql]
        assert len(asked) == 1
        assert "Leases still hold <b>1 GPU</b> on nodes" in page(there.operator, path)
