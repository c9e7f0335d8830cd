"""The root of the REST API: its schema, and the answer to unknown URLs."""

from functools import cache
from typing import Any

from django.urls.converters import StringConverter
from django.utils.translation import override
from drf_spectacular.generators import SchemaGenerator
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from portal.site.api_examples import add_examples
from tenants.api.base import ApiView
from tenants.api.problems import not_there


class Public(ApiView):
    """A view for everyone: it returns no tenant's data."""

    authentication_classes = ()
    permission_classes = (AllowAny,)


class Schema(Public):
    """The description of the API."""

    schema = None

    def get(self, request: Request) -> Response:  # noqa: ARG002 - DRF's signature
        """Return the OpenAPI document."""
        return Response(described())


class Anything(StringConverter):
    """The rest of a URL, with any characters; `path` stops at a line's end."""

    regex = "(?s:.*)"


class Unknown(Public):
    """All other URLs of the API."""

    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse before anything is read."""
        del request, args, kwargs
        raise not_there()

    def get(self, *_: Any, **__: Any) -> Response:
        """Never reached; declares the methods."""
        raise not_there()

    post = put = patch = delete = get


@cache
def described() -> dict[str, Any]:
    """Return the OpenAPI document, generated once per process."""
    return document()


def document() -> dict[str, Any]:
    """Return the OpenAPI document of all URLs below /api/v1/, in English."""
    generator = SchemaGenerator()  # type: ignore[no-untyped-call]  # untyped library
    with override("en"):
        made: dict[str, Any] = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # as above
    return add_examples(made)
