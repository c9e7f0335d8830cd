"""Test the GPUs of a machine as read through a fake of NVIDIA's library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from portal.embedded.slots import CPU, CPU_SLOTS, Slots, probe, type_slug

STAND_IN = """
#include <string.h>
static const char *names[] = {NAMES};
int nvmlInit_v2(void) { return STATUS; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = sizeof names / sizeof *names; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)names[i]; return 0; }
int nvmlDeviceGetName(void *d, char *text, unsigned n) { strncpy(text, d, n); return 0; }
"""


def library(folder: Path, names: list[str], status: int = 0) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here, so no stand-in for the driver's library")
    listed = ", ".join(f'"{name}"' for name in names)
    source = STAND_IN.replace("NAMES", listed).replace("STATUS", str(status))
    (folder / "nvml.c").write_text(source)
    made = folder / "libnvml.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-w", "-o", str(made), str(folder / "nvml.c")], check=True
    )
    return str(made)


class TestMachine:
    def test_without_driver_lends_cpu_slots(self) -> None:
        assert probe("libno-such-library.so.1") == Slots(CPU, CPU_SLOTS)

    def test_with_failing_driver_lends_cpu_slots(self, tmp_path: Path) -> None:
        assert probe(library(tmp_path, ["NVIDIA H200"], status=9)) == Slots(CPU, CPU_SLOTS)

    def test_with_unrelated_library_lends_cpu_slots(self) -> None:
        assert probe("libc.so.6") == Slots(CPU, CPU_SLOTS)

    def test_lends_its_gpus(self, tmp_path: Path) -> None:
        assert probe(library(tmp_path, ["NVIDIA H200"] * 8)) == Slots("h200", 8)

    def test_with_several_gpu_types_lends_only_first(self, tmp_path: Path) -> None:
        names = ["Tesla V100-SXM2-16GB", "Tesla V100-SXM2-16GB", "NVIDIA A100"]
        assert probe(library(tmp_path, names)) == Slots("v100-sxm2-16gb", 2)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("Tesla T4", "t4"),
        ("NVIDIA", "nvidia"),
        ("", "gpu"),
        ("\U0001f4a5", "gpu"),
    ],
)
def test_gpu_type_is_slug(name: str, slug: str) -> None:
    assert type_slug(name) == slug
