"""Bundles of rounds, from which any reader can recompute the rounds, and the pseudonyms in them."""

import gzip
import hashlib
import re
from datetime import date

import structlog
from django.http import HttpResponse
from django.utils.http import parse_etags
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from evenshare_core.chain.records import read_record
from evenshare_core.disclosure.answers import DayNamesBody
from evenshare_core.disclosure.bundle import bundle_schema
from scheduling.api.base import SchedulingView
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.rounds.bundles import (
    bundle_sha256,
    day_names,
    own_form,
    packed_bundle,
    read_round_record,
)
from scheduling.selectors.rounds.lists import find_round
from scheduling.selectors.rounds.stored import DamagedRoundError
from scheduling.selectors.visibility import read_visibility
from tenants.answers import plain
from tenants.api.base import ApiView, Who
from tenants.api.problems import Problem, bad_field, not_there
from tenants.api.resources import Shown
from tenants.rate import Rate, take
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

# Per user: a burst as large as the rounds of a day, then 20 bundles per second.
BUNDLES = Rate(per_s=20, full=1000)
RETRY_S = 5
NUMBER_END = 2**62
SCHEMA_LINK = '</api/v1/bundle-schema>; rel="describedby"; type="application/schema+json"'
# Matches "gzip" in Accept-Encoding (RFC 9110), unless its weight is 0.
_TAKES_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))", re.IGNORECASE)
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
DAY = OpenApiParameter(
    "day", OpenApiTypes.DATE, description="UTC day of pool time; by default the newest."
)


class RoundBundleShow(SchedulingView):
    address = "rounds/<slug:name>/<int:number>/bundle"

    @extend_schema(
        operation_id="round_bundle",
        responses={
            (200, "application/json"): OpenApiTypes.OBJECT,
            304: OpenApiResponse(description="Not modified: If-None-Match names its ETag."),
        },
    )
    def get(self, request: Request, name: str, number: int) -> HttpResponse:
        """Download all data from which a round was decided, and its decision, under pseudonyms.

        The pool's log commits to these bytes. They are the same for every reader, and may be
        compressed. If the pool shows only own rows, you get the round's record and your tenants'
        parts of the bundle (`form` is `own`). GET /bundle-schema describes the format.
        """
        facts = self.pool(name)
        take(f"bundle:{self.person.pk}", BUNDLES)
        with site_scope():
            visibility = read_visibility(facts.id, self.access)
            sha256 = bundle_sha256(facts.id, number) if number < NUMBER_END else None
            if sha256 is None:
                raise _absent(facts, number)
            try:
                if visibility.hides:
                    body = own_form(facts.id, number, visibility) or b""
                    sha256 = hashlib.sha256(body).hexdigest()
                    packed = b""
                else:
                    body, packed = b"", _packed_unless_known(request, facts, number, sha256)
            except DamagedRoundError as error:
                raise _unreadable(number, error) from error
        return _answer(request, sha256, body, packed)


def _packed_unless_known(request: Request, facts: PoolFacts, number: int, sha256: str) -> bytes:
    if _is_known(request, sha256):
        return b""
    return packed_bundle(facts.id, number) or b""


def _answer(request: Request, sha256: str, body: bytes, packed: bytes) -> HttpResponse:
    """Return a bundle, unpacked for clients without gzip; 304 if the client has it already."""
    takes_gzip = bool(_TAKES_GZIP.search(request.headers.get("Accept-Encoding", "")))
    if _is_known(request, sha256):
        answer = HttpResponse(status=304)
        del answer["Content-Type"]
    elif packed and takes_gzip:
        answer = HttpResponse(packed, content_type="application/json")
        answer["Content-Encoding"] = "gzip"
    else:
        body = gzip.decompress(packed) if packed else body
        answer = HttpResponse(body, content_type="application/json")
    # A strong ETag identifies the transferred bytes. A compressed answer gets a weak ETag, because
    # it may be compressed here or by a proxy (portal.site.packing).
    answer["ETag"] = f'W/"{sha256}"' if takes_gzip else f'"{sha256}"'
    answer["Vary"] = "Accept-Encoding"
    answer["Cache-Control"] = "private, no-cache"
    answer["Link"] = SCHEMA_LINK
    return answer


def _is_known(request: Request, sha256: str) -> bool:
    given = parse_etags(request.headers.get("If-None-Match", ""))
    return sha256 in {one.removeprefix("W/").strip('"') for one in given}


def _absent(facts: PoolFacts, number: int) -> Problem:
    """Return why a round has no bundle: it is not sealed yet, is damaged, or is too old."""
    if number >= NUMBER_END or find_round(facts.id, number) is None:
        return not_there()
    raw = read_round_record(facts.id, number)
    if raw is None:
        text = (
            f"Round {number} of {facts.name} is not sealed. A new round is sealed within seconds."
        )
        return Problem("not_sealed", text, retry_after_s=RETRY_S)
    if damage := read_record(raw).damage:
        return Problem("damaged", f"It was sealed as damaged, without a bundle: {damage}.")
    return Problem("not_kept", f"The bundle of round {number} is no longer kept; its record is.")


def _unreadable(number: int, error: DamagedRoundError) -> Problem:
    """Return the problem of a bundle whose record exists, but whose file is missing or damaged."""
    log.error("bundle.unreadable", round=number, why=str(error))
    return Problem(
        "unreadable",
        f"The bundle of round {number} cannot be read from its file. It is not expired: an"
        " operator can see the cause and must restore it from a backup.",
    )


class DayNamesShow(Shown, SchedulingView):
    """List the pseudonyms of a day's bundles: your tenants' keys, and the names you may see."""

    address = "chain/<slug:name>/names"
    operation = "chain_names"
    who = Who.POOL
    answer = DayNamesBody
    parameters = (DAY,)
    shows = ("Tenant.slug", "Tenant.name")

    def show(self, name: str) -> Response:
        facts = self.pool(name)
        day = _day(self.param("day"))
        with site_scope():
            known = day_names(facts, day, read_visibility(facts.id, self.access))
        if known is None:
            raise Problem("not_sealed", "No round of this day is sealed.")
        return Response(plain(known), headers={"Cache-Control": "no-store"})


def _day(text: str) -> date | None:
    if not text:
        return None
    wrong = bad_field("day", "is not a day", "Use a day such as 2026-11-25.")
    if not _DAY.fullmatch(text):
        raise wrong
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise wrong from error


class BundleSchema(ApiView):
    """The JSON Schema of bundles; no sign-in is needed."""

    address = "bundle-schema"
    schema = None
    authentication_classes = ()
    permission_classes = (AllowAny,)

    def get(self, request: Request) -> Response:  # noqa: ARG002 - DRF's signature
        """Return the JSON Schema of a round's bundle; docs/bundle.schema.json is the same."""
        return Response(bundle_schema())
