"""Addresses of the API, each described once: path, parameters, schema, cursor and access follow.

A view's docstring and class variables are its description; `page` of a list and `show` of
anything else ask a selector.
"""

from __future__ import annotations

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
    """Return a parameter of an address."""
    return OpenApiParameter(name, kind, OpenApiParameter.QUERY, description=about, **more)


CURSOR = query("cursor", "The `next` of the previous page.")
LIMIT = query("limit", "Rows per page, 1 to 200.", OpenApiTypes.INT)
PAGE = (CURSOR, LIMIT)


# The struct of an answer, or what describes it where there is no struct yet.
Row = type[msgspec.Struct] | type[s.Serializer[object]]


def serializer_of(row: Row) -> type[s.Serializer[object]]:
    """Return what describes an answer."""
    return row if issubclass(row, s.Serializer) else answer_serializer(row)


def described(
    operation: str,
    takes: type[Wanted] | type[s.Serializer[object]] | None,
    gives: Row | None,
    status: int = 200,
    *parameters: OpenApiParameter,
) -> Callable[[View], View]:
    """Describe a method that writes: its name, the body that it takes and what it answers."""
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
    """What is read at `address`; its description is the docstring.

    `operation` is its name there, `parameters` are what it may be asked with.
    `who` finds it, and `shows` are the fields of a tenant's rows that stand in it, as `Job.name`,
    for whoever may see them: tests ask for it as everybody by these.
    """

    operation: ClassVar[str]
    parameters: ClassVar[Sequence[OpenApiParameter]] = ()
    shows: ClassVar[tuple[str, ...]] = ()
    # Of each kind: what describes its answer.
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
        """Return what the request asks by a parameter; empty: nothing."""
        return str(self.request.query_params.get(name, ""))


class Shown(Described):
    """One thing, an `answer`."""

    answer: ClassVar[Row]
    # Its own method, by the words of its address: a struct, what JSON has of it, or a response.
    show: Callable[..., msgspec.Struct | dict[str, Any] | Response]

    @classmethod
    def answered(cls) -> type[s.Serializer[object]]:
        return serializer_of(cls.answer)

    def get(self, request: Request, **place: Any) -> Response:  # noqa: ARG002 - DRF's signature
        """Answer with it."""
        shown = self.show(**place)
        if isinstance(shown, Response):
            return shown
        return Response(shown if isinstance(shown, dict) else plain(shown))


class Page(NamedTuple):
    """Rows of a list, or of a part of it.

    Rows without a struct are JSON already. `following`: the key after which the next page begins;
    None: there is none. `etag`: what edits of these rows are based on; empty: nothing is.
    `head` and `tail`: what else there is, before and after the rows.
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
    """Return the page of rows that were read with one more than its limit.

    `key` of its last row is where the next page begins; `shown` makes answers of rows.
    """
    part = rows[:limit]
    following = key(part[-1]) if len(rows) > limit else None
    return Page(part if shown is None else map(shown, part), following)


class Listed(Described):
    """A list: `row` is what it lists, `about` says what a page is of."""

    row: ClassVar[Row]
    about: ClassVar[str]
    # What a page has beside its rows.
    beside: ClassVar[Mapping[str, s.Field[Any, Any, Any, Any]]] = {}
    # A list's own method: what the request asks for, by the words of its address.
    page: Callable[..., Page]
    _route = ""

    @classmethod
    def answered(cls) -> type[s.Serializer[object]]:
        return page_serializer(cls.row, cls.about, **cls.beside)

    def get(self, request: Request, **place: Any) -> Response:  # noqa: ARG002 - DRF's signature
        """Answer with a page."""
        page = self.page(**place)
        following = page.following and make_cursor(self._route, *page.following)
        headers = {"ETag": page.etag} if page.etag else None
        rows = [row if isinstance(row, dict) else plain(row) for row in page.rows]
        body = {**page.head, "results": rows, **page.tail, "next": following}
        return Response(body, headers=headers)

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
def page_serializer(
    row: Row, about: str, **beside: s.Field[Any, Any, Any, Any]
) -> type[s.Serializer[object]]:
    """Return what describes a page of such rows, and what stands beside them."""
    one = serializer_of(row)
    name = one.__name__.removesuffix("Row").removesuffix("Json")
    fields = {"results": one(many=True), **beside, "next": s.CharField(allow_null=True)}
    return type(f"{name}Page", (s.Serializer,), {"__doc__": about, **fields})


def addressed(modules: Iterable[ModuleType]) -> list[type[ApiView]]:
    """Return the views of modules that have an address."""
    everything = ((one, module) for module in modules for one in vars(module).values())
    return [
        one
        for one, module in everything
        if isinstance(one, type) and issubclass(one, ApiView)
        if one.__module__ == module.__name__ and "address" in vars(one)
    ]


def urls_of(views: Iterable[type[ApiView]], **wired: object) -> list[URLPattern]:
    """Return the addresses of views. Each gets of `wired` what it has a place for.

    Only those without a parameter have names: Django warns of a colon in a name.
    """

    def of(one: type[ApiView]) -> dict[str, object]:
        return {name: value for name, value in wired.items() if hasattr(one, name)}

    def name_of(address: str) -> str | None:
        return None if "<" in address else f"api-{address}"

    return [path(one.address, one.as_view(**of(one)), name=name_of(one.address)) for one in views]
