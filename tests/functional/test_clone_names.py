"""Names of clones: derived from the original, and unique."""

from __future__ import annotations

import pytest

from scheduling.models import Job
from scheduling.selectors.jobs.clones import free_job_name
from tests.functional.visitors import town

pytestmark = pytest.mark.usefixtures("committed_db")


class TestClone:
    @pytest.mark.parametrize(
        ("name", "taken", "clone"),
        [
            ("resnet-50", ["resnet-51"], "resnet-50-copy"),
            ("resnet-50", ["resnet-50-copy"], "resnet-50-copy-2"),
            ("resnet-50", ["resnet-50-copy", "resnet-50-copy-2"], "resnet-50-copy-3"),
            ("resnet-50-copy", [], "resnet-50-copy-2"),
            ("resnet-50-copy-2", [], "resnet-50-copy-3"),
            ("resnet-50-copy-9", ["resnet-50-copy-10"], "resnet-50-copy-11"),
            ("run-copy-1", [], "run-copy-1-copy"),
            ("photocopy", [], "photocopy-copy"),
            ("copy", [], "copy-copy"),
            ("a" * 58, [], f"{'a' * 58}-copy"),
            ("a" * 63, [], f"{'a' * 58}-copy"),
            ("a" * 63, [f"{'a' * 58}-copy"], f"{'a' * 56}-copy-2"),
            (f"{'a' * 58}-copy", [f"{'a' * 56}-copy-2"], f"{'a' * 56}-copy-3"),
            (f"{'a' * 57}-{'b' * 5}", [], f"{'a' * 57}-copy"),
        ],
    )
    def test_name_is_a_free_copy_name(self, name: str, taken: list[str], clone: str) -> None:
        place = town()
        original = place.submit()
        Job.objects.filter(pk=original.pk).update(name=name)
        for other in taken:
            job = place.submit()
            Job.objects.filter(pk=job.pk).update(name=other)
        assert free_job_name(place.tenant.pk, name) == clone
