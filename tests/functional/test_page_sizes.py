"""Limits of the main pages: words that are visible before any click, and bytes of the GPU map."""

from __future__ import annotations

import pytest

from portal.charts.nodemap import MapLease, MapNode, map_shapes, node_map
from portal.charts.tenants import TenantBadge
from tests.functional.page_text import visible_words
from tests.functional.pool_stage import Stage

LIMITS = {"/t/alpha/": 200, "/pools/": 65, "/pools/{}/": 180, "/pools/{}/prices/": 135}


class TestVisibleWords:
    @pytest.mark.parametrize("path", LIMITS)
    def test_of_main_pages_are_few(self, settled: Stage, path: str) -> None:
        page = settled.page("owner", path.format(settled.pool))
        words = visible_words(page[page.index("<main") :].partition("</main>")[0])
        assert len(words) <= LIMITS[path], " ".join(words)

    def test_do_not_include_folded_parts_and_notes(self) -> None:
        page = (
            "<p>one <span popover>note</span>two</p><details><summary>three</summary><p>folded"
            "</p></details><details open><summary>four</summary>five</details><svg><title>six"
            "</title><use/><g></g>six</svg><p hidden>seven</p><br>eight"
        )
        assert visible_words(page) == ["one", "two", "three", "four", "five", "eight"]


class TestGpuMap:
    def test_takes_at_most_70_bytes_per_gpu(self) -> None:
        """60 nodes of 8 GPUs with 162 leases, as philly in the demo: 4 and 2 x 2, or 3 + 5."""
        badges = [TenantBadge(f"Tenant ({n:06x})", n, "AB") for n in range(11)]
        gangs = [
            ((0, 1, 2, 3), (4, 5), (6, 7)),
            ((0, 1, 2), (3, 4, 5, 6, 7)),
            ((0, 3, 4), (1, 2), (5, 6, 7)),
        ]
        nodes = [
            MapNode(
                f"node-{n:02}",
                8,
                tuple(
                    MapLease(slots, badges[(n + m) % 11], f"Tenant ({n:06x}), {len(slots)} GPUs", m)
                    for m, slots in enumerate(gangs[n % 3])
                ),
            )
            for n in range(60)
        ]
        assert sum(len(node.leases) for node in nodes) == 160
        size = len(node_map(nodes).encode()) + len(map_shapes().encode())
        assert size / 480 <= 70
