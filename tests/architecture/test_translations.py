"""Areas whose pages are translated have no text outside of translations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from portal.site.catalogs import templates

from .page_texts import early_translations, glued_translations, loose_strings, loose_texts
from .sources import APPS, ROOT, name_of, python_files

# Areas of pages. Charts have too many codes of SVG; a crawl of the pages finds their texts.
AREAS = (
    *("account", "common", "front", "jobs", "ledger", "operate", "overview", "pools"),
    *("rounds", "site"),
)
# The first parts of names of modules with texts of pages.
SHOWING = ("text", "views", "forms", "context", "error_views")


def showing(area: str) -> list[Path]:
    """Return the modules of an area whose texts pages show."""
    folder = ROOT / "portal" / area
    return [
        path
        for path in python_files(f"portal/{area}/")
        if path.relative_to(folder).parts[0].startswith(SHOWING)
    ]


class TestTemplates:
    def test_texts_attributes_and_arguments_of_tags_are_seen(self, tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        page.write_text(
            '<b title="A word {{ x }}" class="a b">{% translate "Fine" %} loose {{ x }}</b>'
            '<td data-label="GPUs"><code>fine</code>{# fine #}{{ x|default:"none" }}'
            "{% blocktranslate %}Fine {{ x }}{% endblocktranslate %}"
            '{% state "ok" "up" %}{% state "ok" _("up") %}{% include "b.html" with class="a b" %}'
            '{% section "Assumptions" id="chart-1" %}{% section title=_("Fine text") %}'
        )
        assert list(loose_texts(page)) == ["up", "Assumptions", "none", "A word ", "loose"]

    def test_names_and_codes_are_no_texts(self, tmp_path: Path) -> None:
        page = tmp_path / "page.html"
        page.write_text(
            '{% url "a b" %}{% when at "Wall" %}{% include "a.html" with field=x %}'
            '<i class="Ab cd" data-label="GPUs">Evenshare</i>{% command "manage.py seed demo" %}'
            '{{ x|date:"j M" }}'
        )
        assert not list(loose_texts(page))


def test_templates_include_only_their_area_or_components() -> None:
    folder = ROOT / "templates"
    included = re.compile(r'{% (?:include|extends) "([a-z]+)/')
    wrong = [
        f"{path.relative_to(folder)} includes {area}/"
        for path in folder.glob("*/*.html")
        for area in included.findall(path.read_text())
        if area not in (path.parent.name, "components")
    ]
    assert not wrong


class TestModules:
    @pytest.mark.parametrize(
        ("source", "texts"),
        [
            ('x = ["Loose", f"{1} loose", "two words"]', ["Loose", "{} loose", "two words"]),
            ('f(f"{_(1)} or {str(\'Ab cd\')}", text="word")', ["{} or {}", "Ab cd", "word"]),
            ('StateBadge("ok", "up"), LineItem("paid", "x")', ["up", "paid"]),
            ('format_html("<b class=\'a b\'>{}</b>", x), format_html("<i>Ok</i>")', ["<i>Ok</i>"]),
            ('" or ".join(x), {"Ab cd": "Cd ef"}, x["Ab cd"]', ["or", "Cd ef"]),
        ],
    )
    def test_texts_are_seen(self, tmp_path: Path, source: str, texts: list[str]) -> None:
        module = tmp_path / "module.py"
        module.write_text(source)
        assert [text.strip() for text in loose_strings(module)] == texts

    def test_names_and_codes_are_no_texts(self, tmp_path: Path) -> None:
        module = tmp_path / "module.py"
        module.write_text(
            '"""Fine."""\n'
            'X = gettext_noop("Ab cd"), ngettext("Ab cd", "Ab ce", 1), pgettext("a b", "Ab cd")\n'
            'f(reverse("Ab cd"), f"{1:%Y %m} GPU-h", "Retry-After", x == "GET", "A_B", "word")\n'
            'f(kind="Ab cd", y=f"late-{x}", z=x["Ab cd"], u="/Ab cd", v=x.get("Ab cd"))\n'
            'def f(x: "Ab cd") -> "Ab cd":\n    log.info("a b")\n    raise TypeError("a b")\n'
        )
        assert not list(loose_strings(module))

    def test_translations_at_the_import_and_of_glued_texts_are_seen(self, tmp_path: Path) -> None:
        module = tmp_path / "module.py"
        module.write_text(
            "from django.utils.translation import gettext as _, gettext_lazy, gettext_noop\n"
            'X = _("Early"), gettext_lazy("Fine"), gettext_noop("Fine")\n'
            'class A:\n    x = _("Early")\n'
            'def f():\n    return _("Fine")\n'
            'def g(): return _(f"{x} b"), _("a " + x), _("a" if x else "b"), _(NAMES[x])\n'
        )
        assert list(early_translations(module)) == [2, 4]
        assert list(glued_translations(module)) == [7, 7, 7]


class TestTranslations:
    def test_are_made_at_the_request_from_whole_texts(self) -> None:
        wrong = {
            name_of(path): lines
            for path in python_files(*(f"{app}/" for app in APPS))
            if (lines := [*early_translations(path), *glued_translations(path)])
        }
        assert not wrong


@pytest.mark.parametrize("area", AREAS)
class TestArea:
    def test_templates_are_translated(self, area: str) -> None:
        paths = templates(area)
        assert paths
        assert not {name_of(path): texts for path in paths if (texts := list(loose_texts(path)))}

    def test_modules_are_translated(self, area: str) -> None:
        paths = showing(area)
        assert paths
        assert not {name_of(path): texts for path in paths if (texts := list(loose_strings(path)))}
