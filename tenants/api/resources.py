"""Lists of the API, each described once: address, page, cursor, schema and access follow.

A list is a view whose docstring and class variables are its description, and whose `page` asks a
selector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

from django.urls import URLPattern, path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.answers import Answer, plain
from tenants.api.answer_schemas import answer_serializer
from tenants.api.base import ApiView
from tenants.api.cursors import make_cursor, read_cursor, read_limit


def query(name: str, about: str, kind: OpenApiTypes = OpenApiTypes.STR) -> OpenApiParameter:
    """Return a parameter of an address."""
    return OpenApiParameter(name, kind, OpenApiParameter.QUERY, description=about)


CURSOR = query("cursor", "The `next` of the page before.")
LIMIT = query("limit", "Rows of a page, 1 to 200.", OpenApiTypes.INT)
PAGE = (CURSOR, LIMIT)


# The struct of a row, or what describes it where there is no struct yet.
Row = type[Answer] | type[s.Serializer[object]]


class Page(NamedTuple):
    """Rows of a list, or of a part of it.

    Rows without a struct are JSON already. `following`: the key after which the next page begins;
    None: there is none. `etag`: what edits of these rows are based on; empty: nothing is.
    """

    rows: Iterable[Any]
    following: Sequence[int] | None = None
    etag: str = ""


class Listed(ApiView):
    """A list at `address`, below the API's root; its description is the docstring.

    `operation` is its name there, `row` what it lists, `about` says what a page is of, `parameters`
    are what it may be asked with.
    `who` finds it, and `shows` are the fields of a tenant's rows that stand in it, as `Job.name`,
    for whoever may see them: tests ask for it as everybody by these.
    """

    address: ClassVar[str]
    operation: ClassVar[str]
    row: ClassVar[Row]
    about: ClassVar[str]
    parameters: ClassVar[tuple[OpenApiParameter, ...]] = ()
    shows: ClassVar[tuple[str, ...]] = ()
    # A list's own method: what the request asks for, by the words of its address.
    page: Callable[..., Page]
    _route = ""

    def __init_subclass__(cls) -> None:
        """Make the description of a list that has an address."""
        super().__init_subclass__()
        if "address" not in cls.__dict__:
            return
        cls.query = tuple(one.name for one in cls.parameters)
        described = extend_schema(
            operation_id=cls.operation,
            description=cls.__doc__,
            responses={200: page_serializer(cls.row, cls.about)},
            parameters=list(cls.parameters),
        )
        extend_schema_view(get=described)(cls)

    def get(self, request: Request, **place: Any) -> Response:  # noqa: ARG002 - DRF's signature
        """Answer with a page."""
        page = self.page(**place)
        following = page.following and make_cursor(self._route, *page.following)
        headers = {"ETag": page.etag} if page.etag else None
        rows = [row if isinstance(row, dict) else plain(row) for row in page.rows]
        return Response({"results": rows, "next": following}, headers=headers)

    def param(self, name: str) -> str:
        """Return what the request asks by a parameter; empty: nothing."""
        return str(self.request.query_params.get(name, ""))

    @property
    def limit(self) -> int:
        """How many rows the page may have."""
        return read_limit(self.request)

    def after(self, *route: object, parts: int = 1) -> list[int] | None:
        """Return the key after which the page begins; None: it is the first one.

        `route` keeps cursors of different lists apart.
        """
        self._route = ".".join(map(str, route))
        return read_cursor(self.request, self._route, parts=parts)

    def before(self, *route: object) -> int | None:
        """Return the key of one number before which the page begins; None: it is the first one."""
        key = self.after(*route)
        return key[0] if key else None


@cache
def page_serializer(row: Row, about: str) -> type[s.Serializer[object]]:
    """Return what describes a page of such rows."""
    one = row if issubclass(row, s.Serializer) else answer_serializer(row)
    name = one.__name__.removesuffix("Row").removesuffix("Json")
    fields = {"results": one(many=True), "next": s.CharField(allow_null=True)}
    return type(f"{name}Page", (s.Serializer,), {"__doc__": about, **fields})


def list_urls(lists: Iterable[type[Listed]], **wired: object) -> list[URLPattern]:
    """Return the addresses of lists. Each gets of `wired` what it has a place for."""

    def of(one: type[Listed]) -> dict[str, object]:
        return {name: value for name, value in wired.items() if hasattr(one, name)}

    return [path(one.address, one.as_view(**of(one)), name=f"api-{one.address}") for one in lists]
