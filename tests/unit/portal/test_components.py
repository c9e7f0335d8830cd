"""Test the template tags: output, escaping, and correct sums."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.template import Context, Template
from django.template.loader import render_to_string
from django.test import RequestFactory

from portal.charts.notes import CertificatePanel, Instant, Note, Promise, count_note, credit_note
from portal.charts.page import LIVE, RoundLine
from portal.charts.tenants import TenantBadge
from tests.architecture.sources import ROOT, files

HOSTILE = "<script>alert('x')</script>"
ESCAPED = "&lt;script&gt;"
AT = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def shown(source: str, **context: object) -> str:
    return Template("{% load evenshare %}" + source).render(Context(context))


class TestNotes:
    def test_compute_their_totals(self) -> None:
        count = count_note("In use", [("own", 48), ("borrowed", 13)])
        money = credit_note("Owed", [("earned", Decimal("96.10")), ("paid", Decimal("-308.50"))])
        assert count.total is not None
        assert count.total.value == "61"
        assert money.total is not None
        assert money.total.value == "\N{MINUS SIGN}212.40"

    def test_open_by_button_with_their_id(self) -> None:
        html = shown("{% note 61 about %}", about=count_note("In use", [("own", 61)]))
        target = html.split('popovertarget="')[1].split('"')[0]
        assert f'popover id="{target}"' in html

    def test_keep_id_across_renderings(self) -> None:
        about = count_note("In use", [("own", 61)])
        assert shown("{% note 61 a %}", a=about) == shown("{% note 61 a %}", a=about)

    def test_have_unique_ids_in_one_page(self) -> None:
        about = count_note("In use", [("own", 61)])
        request = RequestFactory().get("/")
        html = shown("{% note 61 a %}{% note 61 a %}", a=about, request=request)
        ids = [part.split('"')[0] for part in html.split('popover id="')[1:]]
        assert len(set(ids)) == 2

    def test_are_plain_without_explanation(self) -> None:
        assert shown("{% note words None %}", words="61") == "61"

    def test_escape_html(self) -> None:
        html = shown("{% note w a %}", w=HOSTILE, a=Note(HOSTILE, text=HOSTILE))
        assert HOSTILE not in html
        assert html.count(ESCAPED) == 4  # number, label, title, sentence


class TestTags:
    @pytest.mark.parametrize(
        "source",
        [
            "{% state 'ok' h %}",
            "{% state h 'words' %}",
            "{% reason 'price' h %}",
            "{% tenant mark %}",
            "{% tenant mark href=h %}",
            "{% command h %}",
            "{% section h sub=h href=h link=h id=h live_url=h %}x{% endsection %}",
            "{% banner 'warn' h href=h %}{{ h }}{% endbanner %}",
            "{% price one unit=h %}",
            "{% share_bar mark 1 2 3 4 %}",
        ],
    )
    def test_escape_html(self, source: str) -> None:
        mark = TenantBadge(HOSTILE, 0, "<b")
        assert "<script>" not in shown(source, h=HOSTILE, mark=mark, one=Decimal(1))

    def test_section_refreshes_with_round(self) -> None:
        html = shown('{% section "12 wait" id="queue" live_url="/jobs" %}x{% endsection %}')
        assert 'hx-get="/jobs" hx-select="#queue"' in html
        assert "round-changed from:body" in html
        assert "hx-get" not in shown('{% section "12 wait" id="queue" %}x{% endsection %}')

    def test_price_of_own_quota_is_words(self) -> None:
        assert "own quota" in shown("{% price None %}")

    def test_when_shows_both_clocks_and_scale(self) -> None:
        instant = Instant(AT - timedelta(seconds=3), AT, wall=AT, scale=60)
        html = shown("{% when i %}", i=instant)
        assert ">3 s ago<" in html
        assert "pool time 2026-01-05 08:59:57 UTC" in html
        assert "wall time 2026-01-05 09:00:00 UTC" in html
        assert "clock \N{MULTIPLICATION SIGN}60" in html

    def test_certificate_lists_broken_promises_first(self) -> None:
        cert = CertificatePanel(
            "Certificate", (Promise("A", "holds"), Promise("B", "violated")), "ab" * 32, "verify"
        )
        html = shown("{% certificate c %}", c=cert)
        assert html.index(">B<") < html.index(">A<")
        assert "1 promise is broken." in html


class TestPages:
    def test_round_line_etag_changes_only_with_round(self) -> None:
        line = RoundLine("philly", LIVE, 7, "/line", age_s=1, next_s=4, interval_s=5)
        later = RoundLine("philly", LIVE, 7, "/line", age_s=3, next_s=2, interval_s=5)
        other = RoundLine("philly", LIVE, 8, "/line")
        assert line.etag == later.etag != other.etag
        assert later.ticks == 7

    def test_round_line_renders_before_first_round(self) -> None:
        line = RoundLine(HOSTILE, "none", None, "/line")
        html = render_to_string("components/round_line.html", {"round_line": line})
        assert 'data-round=""' in html
        assert HOSTILE not in html

    @pytest.mark.parametrize("code", [400, 403, 404, 500])
    def test_error_pages_need_no_context(self, code: int) -> None:
        html = render_to_string(f"{code}.html")
        assert f"Error {code}" in html

    def test_have_no_inline_styles_or_scripts(self) -> None:
        pages = [
            path.read_text("utf-8")
            for path in files()
            if path.suffix in (".html", ".py")
            if path.is_relative_to(ROOT / "templates")
            or path.is_relative_to(ROOT / "portal/charts")
        ]
        assert not [text for text in pages if " style=" in text or "<style" in text]
        scripts = [tag for text in pages for tag in text.split("<script")[1:]]
        assert not [tag for tag in scripts if not tag.startswith((" src=", "\n"))]
