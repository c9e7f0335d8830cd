"""The slots of this machine: GPUs if NVIDIA's NVML finds some, else CPU slots."""

import ctypes
import re
from dataclasses import dataclass

CPU, CPU_SLOTS = "cpu", 2
LIBRARY = "libnvidia-ml.so.1"
_NAME_BYTES = 96
_MAKERS = re.compile(r"^(nvidia|tesla|geforce|quadro)[ -]+", re.IGNORECASE)


@dataclass(frozen=True)
class Slots:
    """`count` slots of one type; slot n is NVML's GPU n."""

    gpu_type: str
    count: int


def probe(library: str = LIBRARY) -> Slots:
    """Return the slots of this machine, all of one type.

    On a machine with several GPU types, only the GPUs before the first one of a second type count.
    So a slot's number is the GPU's index.
    """
    names = gpu_names(library)
    if not names:
        return Slots(CPU, CPU_SLOTS)
    count = next((n for n, name in enumerate(names) if name != names[0]), len(names))
    return Slots(type_slug(names[0]), count)


def gpu_names(library: str = LIBRARY) -> list[str]:
    """Return the GPUs in NVML's order; empty if there is no driver or it does not answer."""
    try:
        nvml = ctypes.CDLL(library)
        if nvml.nvmlInit_v2() != 0:
            return []
    except (OSError, AttributeError):
        return []
    try:
        count = ctypes.c_uint(0)
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return []
        return [_name(nvml, index) for index in range(count.value)]
    finally:
        nvml.nvmlShutdown()


def type_slug(name: str) -> str:
    """Return `NVIDIA H200` as `h200`, `Tesla V100-SXM2-16GB` as `v100-sxm2-16gb`."""
    while _MAKERS.match(name):
        name = _MAKERS.sub("", name, count=1)
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:31] or "gpu"


def _name(nvml: ctypes.CDLL, index: int) -> str:
    device = ctypes.c_void_p()
    text = ctypes.create_string_buffer(_NAME_BYTES)
    if (
        nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) != 0
        or nvml.nvmlDeviceGetName(device, text, ctypes.c_uint(_NAME_BYTES)) != 0
    ):
        return ""
    return text.value.decode(errors="replace")
