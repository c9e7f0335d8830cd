"""The operator's list of tenants, and the creation of a tenant."""

from collections.abc import Callable, Iterable

from django.db import IntegrityError
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.answers import plain
from tenants.api.operate import IF_MATCH, OperateView, answer, etag_of, request_of
from tenants.api.problems import bad_field
from tenants.api.resources import Listed, Page, described
from tenants.models import Tenant
from tenants.requests import TenantRequest
from tenants.scopes import site_scope
from tenants.selectors.tenants import TenantRow, tenant_sizes
from tenants.services.people import open_tenant


def no_books() -> Iterable[str]:
    """Return no books: the default if nothing is injected."""
    return ()


class TenantList(Listed, OperateView):
    """List the tenants by slug."""

    address = "operate/tenants"
    operation = "operate_tenant_list"
    row = TenantRow
    about = "All tenants."
    shows = ("Tenant.slug", "Tenant.name")
    # Books of the pools, which are in an outer app.
    books: Callable[[], Iterable[str]] = staticmethod(no_books)

    def page(self) -> Page:
        with site_scope():
            rows = tenant_sizes()
        return Page(rows, etag=_tag(rows))

    @described("operate_tenant_open", TenantRequest, TenantRow, 201, IF_MATCH)
    def post(self, request: Request) -> Response:
        """Create a tenant with an empty budget in each book; people and quotas are added later."""
        wanted = request_of(TenantRequest, request.data)
        try:
            with site_scope():
                # A concurrent creation waits here. Afterwards its ETag is outdated, so it is
                # refused.
                list(Tenant.objects.select_for_update(no_key=True).order_by("id"))
                self.require_match(_tag(tenant_sizes()))
                open_tenant(actor=self.actor, request=wanted, books=self.books())
                rows = tenant_sizes()
        # two creations at once on a site without a tenant, where no row can be locked
        except IntegrityError as error:
            raise bad_field("slug", "is taken") from error
        made = next(row for row in rows if row.slug == wanted.slug)
        return answer(plain(made), _tag(rows), 201)


def _tag(rows: Iterable[TenantRow]) -> str:
    return etag_of([[row.slug, row.name, row.initials] for row in rows])
