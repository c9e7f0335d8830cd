import os
from pathlib import Path
from tests.functional.test_pseudo_locale import *
import pytest

OUT = os.environ["PSEUDO_OUT"]


def write(loose, who):
    Path(OUT + who).write_text(
        "".join(
            f"{path}\t{text[:400]}\n"
            for text, path in sorted(loose.items(), key=lambda one: one[1])
        )
    )


class TestPages:
    @pytest.mark.parametrize("actor", ["owner", "operator"])
    def test_a(self, matrix, actor):
        paths = [
            fill(template_of(a, r), matrix.words)
            for a, r in TABLE.items()
            if "GET" in r.methods and not is_api(a)
        ]
        write(loose_texts(matrix.client(actor, api=False), paths), "matrix_" + actor)

    @pytest.mark.parametrize("role", ["manager", "operator", "nobody"])
    def test_odd(self, there, role):
        paths = [look.path for look in looks(there.states) if not is_api(look.address)]
        write(loose_texts(there.client(role, api=False), paths), "odd_" + role)
