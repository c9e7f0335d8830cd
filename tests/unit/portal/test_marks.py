"""Test the builders of SVG: well-formed, escaped, and consistent in what each mark means."""

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from evenshare_core.domain.reasons import Reason
from evenshare_core.fairness.rho import standing
from portal.charts import (
    bars,
    glyphs,
    labels,
    nodemap,
    roundstrip,
    scale,
    svg,
    tenants,
    timeline,
)

HOSTILE = "<script>alert('x')</script>\"&"
T0 = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
MARK = tenants.TenantBadge(HOSTILE, 3, "<b", you=True)


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def drawn(markup: svg.Markup) -> ET.Element:
    """Parse the markup, which fails if it is broken or if text was injected."""
    root = ET.fromstring(markup)  # noqa: S314 - as above
    assert not [element for element in root.iter() if element.tag == "script"]
    assert not [element for element in root.iter() if "style" in element.attrib]
    return root


def classes(root: ET.Element) -> list[str]:
    return [css for element in root.iter() for css in element.get("class", "").split()]


class TestMarkup:
    def test_escapes_text_and_attributes(self) -> None:
        made = svg.tag("g", HOSTILE, data_name=HOSTILE)
        root = drawn(made)
        assert root.text == HOSTILE
        assert root.get("data-name") == HOSTILE

    def test_concatenation_yields_plain_string(self) -> None:
        joined = svg.tag("b", "x") + "<i>"
        assert not isinstance(joined, svg.Markup)
        assert svg.join([joined]) == "&lt;b&gt;x&lt;/b&gt;&lt;i&gt;"

    def test_trims_numbers(self) -> None:
        assert svg.number(1.500001) == "1.5"
        assert svg.number(-0.001) == "0"
        assert svg.number(20) == "20"


def node(**changes: object) -> nodemap.MapNode:
    lease = nodemap.MapLease((0, 1, 2, 3), MARK, HOSTILE, borrowed=1)
    made = nodemap.MapNode("p100-07", 8, (lease,))
    return replace(made, **changes)  # type: ignore[arg-type]  # a test's free-form fields


def cells_of(root: ET.Element) -> set[tuple[int, int]]:
    """Return the cells (column, row) that the leases of a node cover, each of 20 x 18."""
    cells = []
    for shape in root.iter("use"):
        left, top = (int(shape.get("x", "")) - 1) // 20, (int(shape.get("y", "")) - 13) // 18
        columns, rows = map(int, shape.get("href", "")[2:])
        cells += [(left + column, top + row) for column in range(columns) for row in range(rows)]
    for outline in (e for e in root.iter("path") if not e.get("class")):
        cells += enclosed(outline.get("d", ""))
    assert len(cells) == len(set(cells)), "a cell is covered twice"
    return set(cells)


def enclosed(outline: str) -> list[tuple[int, int]]:
    """Return the cells within closed loops: an odd number of walls is left of them."""
    walls = Counter[tuple[int, int]]()
    for loop in outline.split("M")[1:]:
        start, *steps = re.findall(r"[hv]?-?[0-9][0-9 ]*", loop)
        x, y = map(int, start.split())
        closing = -sum(int(step[1:]) for step in steps if step[0] == "v")
        for step in [*steps, f"v{closing}"]:
            length = int(step[1:])
            if step[0] == "h":
                x += length
                continue
            rows = range(*sorted(((y - 13) // 18, (y + length - 13) // 18)))
            walls.update(((x - 1) // 20, row) for row in rows)
            y += length
    return [
        (column, row)
        for column in range(20)
        for row in range(nodemap.ROWS)
        if sum(count for (x, at), count in walls.items() if at == row and x <= column) % 2
    ]


def initials(root: ET.Element) -> list[str | None]:
    """Return the texts of leases on a map."""
    return [text.text for group in root.iter("g") for text in group.iter("text")]


def count_shapes(root: ET.Element, css: str) -> int:
    """Return the number of shapes in the paths of a class."""
    return sum(e.get("d", "").count("M") for e in root.iter("path") if e.get("class") == css)


class TestNodeMap:
    def test_escapes_names(self) -> None:
        root = drawn(nodemap.node_map([node(name=HOSTILE)]))
        assert f"{HOSTILE}: {HOSTILE}; 4 idle" in [element.text for element in root.iter("title")]

    def test_draws_each_slot_once(self) -> None:
        root = drawn(nodemap.node_map([node()]))
        assert cells_of(root) == {(0, 0), (0, 1), (1, 0), (1, 1)}
        assert count_shapes(root, "idle") == 4
        assert count_shapes(root, "corner") == 1

    def test_frames_own_leases(self) -> None:
        assert "me" in classes(drawn(nodemap.node_map([node()])))

    def test_draws_square_gang_as_one_box_with_initials_once(self) -> None:
        root = drawn(nodemap.node_map([node()]))
        (shape,) = root.iter("use")
        (drawing,) = [
            e
            for e in drawn(nodemap.map_shapes()).iter("g")
            if f"#{e.get('id')}" == shape.get("href")
        ]
        (box,) = drawing.iter("rect")
        assert (box.get("x"), box.get("width"), box.get("height")) == ("0", "40", "36")
        assert count_shapes(drawing, "joint") == 2
        assert initials(root) == ["<b"]

    @pytest.mark.parametrize(("borrowed", "corners"), [(0, 0), (1, 1), (3, 3), (4, 4)])
    def test_draws_corner_of_each_borrowed_gpu(self, borrowed: int, corners: int) -> None:
        lease = nodemap.MapLease((0, 1, 2, 3), MARK, "held", borrowed)
        root = drawn(nodemap.node_map([node(leases=(lease,))]))
        (shape,) = root.iter("use")
        shapes = {f"#{e.get('id')}": e for e in drawn(nodemap.map_shapes()).iter("g")}
        both = [root, shapes[shape.get("href", "")]]
        assert sum(count_shapes(one, "corner") for one in both) == corners

    @pytest.mark.parametrize(
        ("slots", "edges"),
        [((0, 1, 2), (5, 1)), ((0, 3), (7, 1)), ((1, 2, 3, 4), (7, 1)), ((0, 7), (6, 2))],
    )
    def test_frames_lease_of_any_shape(
        self, slots: tuple[int, ...], edges: tuple[int, int]
    ) -> None:
        lease = nodemap.MapLease(slots, MARK, "held")
        root = drawn(nodemap.node_map([node(leases=(lease,))]))
        assert cells_of(root) == {divmod(slot, nodemap.ROWS) for slot in slots}
        (frame,) = [e for e in root.iter("path") if not e.get("class")]
        assert (
            frame.get("d", "").count("h") + frame.get("d", "").count("v"),
            frame.get("d", "").count("z"),
        ) == edges
        assert initials(root) == ["<b"]

    @pytest.mark.parametrize("state", ["drained", "down"])
    def test_hatches_blocked_nodes(self, state: str) -> None:
        root = drawn(nodemap.node_map([node(leases=(), state=state)]))
        assert "blk" in classes(root)
        assert state in [element.text for element in root.iter("text")]

    @pytest.mark.parametrize("gpus", [1, 3, 4, 16])
    def test_draws_any_node_size(self, gpus: int) -> None:
        root = drawn(nodemap.node_map([node(gpus=gpus, leases=())]))
        assert count_shapes(root, "idle") == gpus

    def test_draws_held_back_gpus_apart_from_idle_ones(self) -> None:
        kept = nodemap.MapHeldBack(3, MARK, HOSTILE, href="/jobs/2")
        root = drawn(nodemap.node_map([node(held_back=(kept,))]))
        assert len(cells_of(root)) == 4
        assert [count_shapes(root, css) for css in ("kept", "idle")] == [3, 1]
        assert [link.get("href") for link in root.iter("a")] == ["/jobs/2"]
        title = root.find("li/svg/title")
        assert title is not None
        assert title.text == f"p100-07: {HOSTILE}; {HOSTILE}; 1 idle"
        many = [node(held_back=(kept,)), *[node()] * nodemap.COMPACT_FROM]
        assert classes(drawn(nodemap.node_map(many))).count("kept") == 3

    def test_draws_no_more_held_back_gpus_than_are_free(self) -> None:
        kept = nodemap.MapHeldBack(9, MARK, "held")
        root = drawn(nodemap.node_map([node(held_back=(kept,))]))
        assert [count_shapes(root, css) for css in ("kept", "idle")] == [4, 0]

    def test_shrinks_if_there_are_many_nodes(self) -> None:
        many = nodemap.node_map([node(name=f"n{n}") for n in range(nodemap.COMPACT_FROM + 1)])
        assert drawn(many).get("class") == "nodes small"
        assert initials(drawn(many)) == []

    def test_links_only_own_leases(self) -> None:
        lease = nodemap.MapLease((0,), MARK, href="/jobs/1")
        root = drawn(nodemap.node_map([node(leases=(lease,))]))
        assert [link.get("href") for link in root.iter("a")] == ["/jobs/1"]

    def test_is_empty_without_nodes(self) -> None:
        assert len(drawn(nodemap.node_map([]))) == 0


class TestTenantBadges:
    def test_small_tenants_share_badge_except_own(self) -> None:
        names = [f"t{n}" for n in range(20)]
        made = {
            name: tenants.TenantBadge(name, place % tenants.BADGES, "ab", you=name == "t19")
            for place, name in enumerate(names)
        }
        use = {name: 20 - place for place, name in enumerate(names)}
        grouped = tenants.group_small(made, use, limit=12)
        kept = [name for name in names if grouped[name].index != tenants.OTHERS]
        assert kept == [*names[:10], "t19"]
        assert tenants.group_small(made, use, limit=20) == made

    def test_swatch_escapes_text(self) -> None:
        assert "<b" in [element.text for element in drawn(tenants.swatch(MARK)).iter("text")]


class TestRoundStrip:
    def test_links_each_round(self) -> None:
        made = [roundstrip.RoundBar(n, n % 3, 8, href=f"/rounds/{n}") for n in range(60)]
        root = drawn(roundstrip.round_strip(made))
        assert len(list(root.iter("a"))) == 60

    def test_draws_no_bar_for_rounds_without_unused_gpus(self) -> None:
        made = [roundstrip.RoundBar(n, n % 2, href=f"/rounds/{n}") for n in range(1, 9)]
        links = [one.get("href") for one in drawn(roundstrip.round_strip(made)).iter("a")]
        assert links == [f"/rounds/{n}" for n in (1, 3, 5, 7, 8)]

    def test_marks_only_last_round(self) -> None:
        made = [roundstrip.RoundBar(n, n % 3, 8, href=f"/rounds/{n}") for n in range(60)]
        root = drawn(roundstrip.round_strip(made))
        assert classes(root).count("now") == 1

    def test_marks_last_round_if_nothing_is_free(self) -> None:
        assert classes(drawn(roundstrip.round_strip([roundstrip.RoundBar(1, 0)]))).count("now") == 1

    def test_is_only_axis_without_rounds(self) -> None:
        assert "axis" in classes(drawn(roundstrip.round_strip([])))


def job(**changes: object) -> timeline.JobTimeline:
    made = timeline.JobTimeline(
        start=T0,
        end=at(120),
        now=at(110),
        segments=(
            timeline.Segment("turn", at(0), at(20), HOSTILE),
            timeline.Segment("run", at(20), at(110), "p100-07", (at(35), at(50))),
        ),
        cuts=(timeline.Cut(at(60)),),
        gpus=(timeline.GpuSpan(at(20), at(110), 5, 3),),
        gpus_of=8,
        prices=(timeline.PricePoint(at(0), Decimal("1.45")),),
        max_price=Decimal("1.65"),
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # a test's free-form fields


class TestTimeline:
    def test_draws_three_tracks(self) -> None:
        found = classes(drawn(timeline.timeline(job())))
        assert {"run", "turn", "cut-line", "own", "bor", "la", "limit"} <= set(found)

    def test_omits_tracks_without_data(self) -> None:
        found = classes(drawn(timeline.timeline(job(gpus=(), prices=(), max_price=None))))
        assert not {"own", "bor", "la", "limit"} & set(found)

    def test_escapes_labels(self) -> None:
        texts = [element.text for element in drawn(timeline.timeline(job(label=HOSTILE))).iter()]
        assert HOSTILE in texts

    def test_labels_do_not_overlap(self) -> None:
        """Each preemption still has its vertical line."""
        cuts = tuple(timeline.Cut(at(20 + minute)) for minute in (1, 3, 5, 60, 61))
        root = drawn(timeline.timeline(job(cuts=cuts)))
        assert classes(root).count("cut-line") == len(cuts)
        spans = []
        for element in root.iter("text"):
            if "ba" in element.get("class", "").split():
                x, wide = float(element.get("x", "0")), scale.text_width(element.text or "")
                spans.append(
                    (x - wide, x) if element.get("text-anchor") == "end" else (x, x + wide)
                )
        spans.sort()
        assert len(spans) >= 2
        assert all(before[1] <= after[0] for before, after in pairwise(spans))

    def test_shows_message_if_empty(self) -> None:
        assert "Nothing has happened" in timeline.timeline(job(end=T0))


class TestTimelineLabels:
    @pytest.mark.parametrize("length", [1, 7, 61, 1441, 100_003])
    @pytest.mark.parametrize("share", [0.0, 0.5, 0.93, 0.999])
    def test_stay_inside_drawing(self, length: int, share: float) -> None:
        late = at(length * share)
        segments = (
            timeline.Segment("turn", at(0), late, "queued 3 h"),
            timeline.Segment("blocked", late, at(length), "no node fits 12 min"),
        )
        changes = {
            "segments": segments,
            "cuts": (timeline.Cut(late),),
            "gpus": (timeline.GpuSpan(at(0), late, 5, 3), timeline.GpuSpan(late, at(length), 8)),
        }
        root = drawn(timeline.timeline(job(end=at(length), now=at(length), **changes)))
        for element in root.iter("text"):
            wide = scale.text_width(element.text or "")
            x = float(element.get("x", "0"))
            left = {"middle": x - wide / 2, "end": x - wide}.get(element.get("text-anchor", ""), x)
            assert left >= -1, element.text
            assert left + wide <= timeline.WIDTH + 1, element.text


class TestRho:
    def test_within_two_percent_is_at_fair_share(self) -> None:
        words = {rho: standing(rho) for rho in (0.5, 0.979, 0.98, 0.99, 1, 1.02, 1.021, 3)}
        assert [words[rho] for rho in (0.98, 0.99, 1, 1.02)] == ["at"] * 4
        assert (words[0.5], words[0.979], words[1.021], words[3]) == (
            *("below", "below", "above", "above"),
        )


class TestLabels:
    def test_avoid_curves(self) -> None:
        curve = [(0.0, 50.0), (100.0, 50.0), (100.0, 10.0), (300.0, 10.0)]
        on, clear = (200.0, 14.0, "end"), (200.0, 60.0, "end")
        assert labels.crossed("12 borrowed", on, [curve])
        assert not labels.crossed("12 borrowed", clear, [curve])
        element = drawn(labels.label("12 borrowed", [on, clear], [curve], css="b"))
        assert element.get("y") == "60"

    def test_detect_vertical_lines(self) -> None:
        assert labels.crossed("quota 43", (10, 50, "start"), [[(20, 0), (20, 100)]])

    def test_are_placed_even_if_curves_are_everywhere(self) -> None:
        curves = [[(0.0, y), (400.0, y)] for y in range(0, 240, 4)]
        drawn(labels.label("x", [(10, 10, "start"), (10, 30, "start")], curves, css="b"))


class TestReasons:
    @pytest.mark.parametrize("code", [reason.value for reason in Reason])
    def test_each_has_icon(self, code: str) -> None:
        assert glyphs.reason_icon(code) != glyphs.reason_icon("unknown")


class TestBars:
    @pytest.mark.parametrize("left", [-5, 0, 450, 900, 5000])
    def test_lease_bar_stays_in_frame(self, left: float) -> None:
        root = drawn(bars.lease_bar(left, 900, 300))
        widths = [float(element.get("width", "0")) for element in root.iter("rect")]
        assert all(0 <= width <= bars.LEASE_WIDTH for width in widths)

    def test_lease_bar_shows_remaining_protection(self) -> None:
        shield = next(
            element
            for element in drawn(bars.lease_bar(750, 900, 300)).iter("rect")
            if element.get("class") == "shield"
        )
        assert float(shield.get("width", "0")) == pytest.approx(20)  # 150 s of 900 s on 120 px

    def test_share_bar_hatches_use_above_quota(self) -> None:
        over = classes(drawn(bars.share_bar(MARK, 61, 48, 113, most=140)))
        under = classes(drawn(bars.share_bar(MARK, 35, 48, 35, most=140)))
        assert "bor" in over
        assert not {"bor", "asked"} & set(under)

    def test_hash_has_one_bar_per_digit(self) -> None:
        digest = "0123456789abcdef" * 4
        assert len(list(drawn(bars.hash_bars(digest)).iter("rect"))) == 64
        assert bars.hash_groups(digest).split() == ["01234567", "89abcdef"] * 4
        assert not list(drawn(bars.hash_bars("")).iter("rect"))

    def test_unknown_progress_is_dash(self) -> None:
        assert drawn(bars.progress(None)).text == "\N{EN DASH}"

    def test_every_state_and_reason_has_icon(self) -> None:
        for kind in [*glyphs.STATES, HOSTILE]:
            drawn(glyphs.state_icon(kind))
        for code in ("price_above_max", "gang_needs_nodes", HOSTILE):
            drawn(glyphs.reason_icon(code))
