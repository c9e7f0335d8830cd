"""Nodes for operators (list, add, change, drain, resume, remove) and their maintenance."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import chain

from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.base import OperatePoolView
from scheduling.engine.clock import read_clock
from scheduling.models import MaintenanceWindow, Pool
from scheduling.requests.nodes import (
    DrainRequest,
    NodeChangeRequest,
    NodeRequest,
    WindowRequest,
)
from scheduling.selectors.pools.nodes import NodeStatus, node_statuses, windows_ahead
from scheduling.services.nodes import (
    add_node,
    add_window,
    change_nodes,
    drain_node,
    end_window,
    remove_node,
    resume_node,
)
from tenants.answers import Answer, answer_of, plain
from tenants.api.operate import IF_MATCH, answer, etag_of, page, request_of
from tenants.api.problems import bad_field, not_there
from tenants.api.resources import Listed, Page, described, page_serializer, query
from tenants.requests import ReasonRequest
from tenants.scopes import site_scope

POOL = query(
    "pool", "A pool's name. If it is given, the answer has the ETag for edits of that pool."
)


class WindowRow(Answer, frozen=True):
    """Maintenance of a node; times are pool time."""

    id: int
    pool: str
    node: str
    starts_at: datetime
    ends_at: datetime
    reason: str


class NodeList(Listed, OperatePoolView):
    """List nodes with the leases on them."""

    address = "operate/nodes"
    operation = "operate_node_list"
    row = NodeStatus
    about = "Nodes of one pool, or of all."
    parameters = (POOL,)

    def page(self) -> Page:
        with site_scope():
            rows = [node_statuses(pool.pk, read_clock(pool.pk).pool_at) for pool in self.asked()]
        tag = _nodes_tag(rows[0]) if "pool" in self.request.query_params else ""
        return Page(chain.from_iterable(rows), etag=tag)

    @described("operate_node_add", NodeRequest, NodeStatus, 201, IF_MATCH)
    def post(self, request: Request) -> Response:
        """Add a node, which the next round uses. If-Match refers to the pool's list of nodes."""
        wanted = request_of(NodeRequest, request.data)
        _pool_there(wanted.pool)
        with self.edited(wanted.pool) as (pool, now):
            self.require_match(_nodes_tag(node_statuses(pool.pk, now)))
            add_node(actor=self.actor, pool=pool, request=wanted)
            return _one(pool, wanted.name, now, status=201)


class NodeEdit(OperatePoolView):
    """Base of changes of one node; If-Match refers to the pool's list of nodes."""

    def require_node(self, pool: Pool, node: str, now: datetime) -> None:
        """Raise 404 if the node does not exist, and 412 if the list changed since it was read."""
        rows = node_statuses(pool.pk, now)
        if node not in [row.name for row in rows]:
            raise not_there()
        self.require_match(_nodes_tag(rows))


class NodeOne(NodeEdit):
    address = "operate/nodes/<slug:name>/<slug:node>"

    @described("operate_node_change", NodeChangeRequest, NodeStatus, 200, IF_MATCH)
    def patch(self, request: Request, name: str, node: str) -> Response:
        """Set the CPUs and memory of a node that jobs may use, from the next round on."""
        with self.edited(name) as (pool, now):
            self.require_node(pool, node, now)
            wanted = request_of(NodeChangeRequest, request.data)
            change_nodes(actor=self.actor, pool=pool, names=(node,), request=wanted)
            return _one(pool, node, now)

    @described("operate_node_remove", None, None, 204, IF_MATCH)
    def delete(self, request: Request, name: str, node: str) -> Response:  # noqa: ARG002 - DRF's
        """Remove a drained, empty node from its pool; otherwise 409."""
        with self.edited(name) as (pool, now):
            self.require_node(pool, node, now)
            remove_node(actor=self.actor, pool=pool, name=node)
            return answer(None, _nodes_tag(node_statuses(pool.pk, now)), 204)


class NodeSwitch(NodeEdit):
    """Base of draining and resuming a node."""

    def switch(
        self,
        request: Request,
        place: tuple[str, str],
        change: Callable[..., object],
        wanted: type[ReasonRequest | DrainRequest],
    ) -> Response:
        """Change the state of a pool's node; the request gives the reason."""
        name, node = place
        with self.edited(name) as (pool, now):
            self.require_node(pool, node, now)
            reason = request_of(wanted, request.data).reason
            change(actor=self.actor, pool=pool, name=node, reason=reason)
            return _one(pool, node, now)


class NodeDrain(NodeSwitch):
    address = "operate/nodes/<slug:name>/<slug:node>/drain"

    @described("operate_node_drain", DrainRequest, NodeStatus, 200, IF_MATCH)
    def post(self, request: Request, name: str, node: str) -> Response:
        """Keep new leases off a node; leases on it end at their expiry."""
        return self.switch(request, (name, node), drain_node, DrainRequest)


class NodeResume(NodeSwitch):
    address = "operate/nodes/<slug:name>/<slug:node>/resume"

    @described("operate_node_resume", ReasonRequest, NodeStatus, 200, IF_MATCH)
    def post(self, request: Request, name: str, node: str) -> Response:
        """Allow leases on a node again, from the next round on."""
        return self.switch(request, (name, node), resume_node, ReasonRequest)


class WindowList(Listed, OperatePoolView):
    """List present and future maintenance; the next of each pool comes first."""

    address = "operate/maintenance"
    operation = "operate_maintenance_list"
    row = WindowRow
    about = "Current and future maintenance."
    parameters = (POOL,)

    def page(self) -> Page:
        with site_scope():
            rows = [_ahead(pool, read_clock(pool.pk).pool_at) for pool in self.asked()]
        tag = _windows_tag(rows[0]) if "pool" in self.request.query_params else ""
        return Page(chain.from_iterable(rows), etag=tag)

    @described(
        "operate_maintenance_plan", WindowRequest, page_serializer(row, about), 201, IF_MATCH
    )
    def post(self, request: Request) -> Response:
        """Plan maintenance: no lease that could overlap it starts on the node."""
        wanted = request_of(WindowRequest, request.data)
        _pool_there(wanted.pool)
        with self.edited(wanted.pool) as (pool, now):
            self.require_match(_windows_tag(_ahead(pool, now)))
            made = add_window(actor=self.actor, pool=pool, request=wanted, now=now)
            rows = page(plain(_window(pool, row)) for row in made)
            return answer(rows, _windows_tag(_ahead(pool, now)), 201)


class WindowOne(OperatePoolView):
    address = "operate/maintenance/<slug:name>/<int:number>"

    @described("operate_maintenance_end", None, None, 204, IF_MATCH)
    def delete(self, request: Request, name: str, number: int) -> Response:  # noqa: ARG002 - DRF's
        """Cancel future maintenance, or end current maintenance now."""
        with self.edited(name) as (pool, now):
            present = _ahead(pool, now)
            if number not in [row.id for row in present]:
                raise not_there()
            self.require_match(_windows_tag(present))
            end_window(actor=self.actor, pool=pool, window_id=number, now=now)
            return answer(None, _windows_tag(_ahead(pool, now)), 204)


def _pool_there(name: str) -> None:
    """Refuse an unknown pool in a body with 400; in a URL it would be a 404."""
    with site_scope():
        if not Pool.objects.filter(name=name).exists():
            raise bad_field("pool", "is not a pool")


def _one(pool: Pool, name: str, now: datetime, status: int = 200) -> Response:
    rows = node_statuses(pool.pk, now)
    row = next(row for row in rows if row.name == name)
    return answer(plain(row), _nodes_tag(rows), status)


def _nodes_tag(rows: Iterable[NodeStatus]) -> str:
    return etag_of(
        [[row.name, row.gpu_type, row.gpus, row.state, row.cpus, row.memory_mb] for row in rows]
    )


def _windows_tag(rows: Sequence[WindowRow]) -> str:
    return etag_of(plain(rows))


def _ahead(pool: Pool, now: datetime) -> list[WindowRow]:
    return [_window(pool, row) for row in windows_ahead(pool.pk, now)]


def _window(pool: Pool, row: MaintenanceWindow) -> WindowRow:
    return answer_of(WindowRow, row, pool=pool.name, node=row.node.name)
