"""Test that `evenshare_core.csv_cells` writes all CSV files, so that no cell is a formula."""

from __future__ import annotations

import re

from .sources import CORE, name_of, python_files

PRODUCT = (f"{CORE}/", "billing/", "scheduling/", "tenants/", "portal/", "client/src/")
WRITER = re.compile(r"\bcsv\.(DictW|w)riter\b|\bfrom csv import")


def test_product_writes_csv_only_through_shared_writer() -> None:
    texts = {name_of(path): path.read_text() for path in python_files(*PRODUCT)}
    assert [name for name, text in texts.items() if WRITER.search(text)] == []
    # A single function responds with CSV files, so each URL has its guards.
    assert [name for name, text in texts.items() if "text/csv" in text] == [
        "portal/common/files.py"
    ]
