"""Resources of the API.

Each is declared once: its path, parameters, schema, cursor and access follow from the declaration.

A view's docstring and class variables are its description. A list's `page`, and the `show` of other
views, call a selector.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from inspect import getdoc
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec
from django.urls import URLPattern, path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.answers import plain
from tenants.api.answer_schemas import answer_serializer
from tenants.api.base import ApiView
from tenants.api.cursors import make_cursor, read_cursor, read_limit
from tenants.api.request_schemas import request_serializer
from tenants.input.requests import Request as Wanted

T = TypeVar("T")
View = TypeVar("View", bound=Callable[..., Response])


def query(
    name: str, about: str, kind: OpenApiTypes = OpenApiTypes.STR, **more: Any
) -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.QUERY, description=about, **more)


CURSOR = query("cursor", "The `next` of the previous page.")
LIMIT = query("limit", "Rows per page, 1 to 200.", OpenApiTypes.INT)
PAGE = (CURSOR, LIMIT)


# The struct of an answer, or its serializer if it has no struct yet.
Row = type[msgspec.Struct] | type[s.Serializer[object]]


def serializer_of(row: Row) -> type[s.Serializer[object]]:
    """Return the serializer that describes an answer."""
    return row if issubclass(row, s.Serializer) else answer_serializer(row)


def described(
    operation: str,
    takes: type[Wanted] | type[s.Serializer[object]] | None,
    gives: Row | None,
    status: int = 200,
    *parameters: OpenApiParameter,
) -> Callable[[View], View]:
    """Describe a method that writes: its name, its body and its response."""
    body = takes if takes is None or issubclass(takes, s.Serializer) else _body_of(takes)
    made: Callable[[View], View] = extend_schema(
        operation_id=operation,
        request=body,
        responses={status: None if gives is None else serializer_of(gives)},
        parameters=list(parameters),
    )
    return made


_body_of = cache(request_serializer)


class Described(ApiView):
    """A resource that is read at `address`; its docstring is the description.

    `operation` is its name in the description, `parameters` its query parameters. `who` may see it.
    `shows` are the fields of tenants' rows in the response, such as `Job.name`; tests check their
    visibility for all kinds of users.
    """

    operation: ClassVar[str]
    parameters: ClassVar[Sequence[OpenApiParameter]] = ()
    shows: ClassVar[tuple[str, ...]] = ()
    # Defined by each subclass: the serializer of its response.
    answered: ClassVar[Callable[[], type[s.Serializer[object]]]]

    def __init_subclass__(cls) -> None:
        """Make the description of a view that has an address."""
        super().__init_subclass__()
        if "address" not in cls.__dict__:
            return
        cls.query = tuple(one.name for one in cls.parameters)
        made = extend_schema(
            operation_id=cls.operation,
            description=getdoc(cls),
            responses={200: cls.answered()},
            parameters=list(cls.parameters),
        )
        extend_schema_view(get=made)(cls)

    def param(self, name: str) -> str:
        """Return a query parameter; empty if it is missing."""
        return str(self.request.query_params.get(name, ""))


class Shown(Described):
    """A single object, an `answer`."""

    answer: ClassVar[Row]
    # The view's own method, with the parameters of its path: returns a struct, JSON, or a response.
    show: Callable[..., msgspec.Struct | dict[str, Any] | Response]

    @classmethod
    def answered(cls) -> type[s.Serializer[object]]:
        return serializer_of(cls.answer)

    def get(self, request: Request, **place: Any) -> Response:  # noqa: ARG002 - DRF's signature
        """Respond with the object."""
        shown = self.show(**place)
        if isinstance(shown, Response):
            return shown
        return Response(shown if isinstance(shown, dict) else plain(shown))


class Page(NamedTuple):
    """A page of a list.

    Rows without a struct are JSON already. `following`: the key after which the next page starts,
    or None on the last page. `etag`: the ETag on which edits of these rows are based, or
    empty. `head` and `tail`: other fields, before and after the rows.
    """

    rows: Iterable[Any]
    following: Sequence[int] | None = None
    etag: str = ""
    head: Mapping[str, Any] = {}
    tail: Mapping[str, Any] = {}


def page_of(
    rows: Sequence[T],
    limit: int,
    key: Callable[[T], Sequence[int]],
    shown: Callable[[T], object] | None = None,
) -> Page:
    """Return a page from its rows, of which one more than the limit was read to detect a next page.

    `key` of its last row is the start of the next page; `shown` converts rows to answers.
    """
    part = rows[:limit]
    following = key(part[-1]) if len(rows) > limit else None
    return Page(part if shown is None else map(shown, part), following)


class Listed(Described):
    """A list: `row` is the type of its rows, `about` describes a page."""

    row: ClassVar[Row]
    about: ClassVar[str]
    # Fields of a page other than its rows.
    beside: ClassVar[Mapping[str, s.Field[Any, Any, Any, Any]]] = {}
    # The list's own method, with the parameters of its path: returns the requested page.
    page: Callable[..., Page]
    _route = ""

    @classmethod
    def answered(cls) -> type[s.Serializer[object]]:
        return page_serializer(cls.row, cls.about, **cls.beside)

    def get(self, request: Request, **place: Any) -> Response:  # noqa: ARG002 - DRF's signature
        """Respond with a page."""
        page = self.page(**place)
        following = page.following and make_cursor(self._route, *page.following)
        headers = {"ETag": page.etag} if page.etag else None
        rows = [row if isinstance(row, dict) else plain(row) for row in page.rows]
        body = {**page.head, "results": rows, **page.tail, "next": following}
        return Response(body, headers=headers)

    @property
    def limit(self) -> int:
        """Return the maximum number of rows of the page."""
        return read_limit(self.request)

    def after(self, *route: object, parts: int = 1) -> list[int] | None:
        """Return the key after which the page starts, or None for the first page.

        `route` separates cursors of different lists.
        """
        self._route = ".".join(map(str, route))
        return read_cursor(self.request, self._route, parts=parts)

    def before(self, *route: object) -> int | None:
        """Return the single number before which the page starts, or None for the first page."""
        key = self.after(*route)
        return key[0] if key else None


@cache
def page_serializer(
    row: Row, about: str, **beside: s.Field[Any, Any, Any, Any]
) -> type[s.Serializer[object]]:
    """Return the serializer of a page with rows of this type and other fields."""
    one = serializer_of(row)
    name = one.__name__.removesuffix("Row").removesuffix("Json")
    fields = {"results": one(many=True), **beside, "next": s.CharField(allow_null=True)}
    return type(f"{name}Page", (s.Serializer,), {"__doc__": about, **fields})


def addressed(modules: Iterable[ModuleType]) -> list[type[ApiView]]:
    """Return the views in the modules that have an address."""
    everything = ((one, module) for module in modules for one in vars(module).values())
    return [
        one
        for one, module in everything
        if isinstance(one, type) and issubclass(one, ApiView)
        if one.__module__ == module.__name__ and "address" in vars(one)
    ]


def urls_of(views: Iterable[type[ApiView]], **wired: object) -> list[URLPattern]:
    """Return the URL patterns of views.

    Each view gets the values of `wired` for which it has an attribute.

    Only paths without parameters get names, because Django warns of a colon in a name.
    """

    def of(one: type[ApiView]) -> dict[str, object]:
        return {name: value for name, value in wired.items() if hasattr(one, name)}

    def name_of(address: str) -> str | None:
        return None if "<" in address else f"api-{address}"

    return [path(one.address, one.as_view(**of(one)), name=name_of(one.address)) for one in views]
