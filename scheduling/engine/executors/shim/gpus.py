"""Readings of a program's GPUs from `nvidia-smi`, by a helper process that never blocks the shim.

A driver that hangs also hangs the process that queries it, even past SIGKILL. So the helper is not
a child of the shim. It starts before the shim adopts orphans, keeps none of the shim's files open,
and ends when the shim closes its pipe. After FAILURES consecutive wrong answers it is not queried
again.
"""

import contextlib
import csv
import json
import math
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

TOOL = "nvidia-smi"
QUERY = (
    "--query-gpu=index,uuid,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)
VARIABLE = "CUDA_VISIBLE_DEVICES"
MOST_GPUS = 32
ANSWER_S = 5.0
# After writing its output or being killed, a tool ends within this time; otherwise it hangs in the
# kernel.
END_S = 5.0
# A helper that has not answered for this long is itself hanging.
HELPER_S = 30.0
FAILURES = 3
MOST_BYTES = 2**16
_MOST_MIB = 2**24
_COLUMNS = 5


class GpuReading(NamedTuple):
    """A reading of a GPU: use in per cent, used and total memory in MiB; None if not reported."""

    busy: float | None
    used_mib: int | None
    total_mib: int | None


def visible_gpus(named: str | None) -> list[str]:
    """Return the indices and UUIDs in CUDA_VISIBLE_DEVICES.

    As in CUDA, the first invalid entry ends the list. Parts of a GPU (MIG) are left out: they
    report no utilisation.
    """
    gpus: list[str] = []
    for word in (named or "").split(","):
        name = word.strip()
        if not (name.isascii() and (name.isdecimal() or name.startswith("GPU-"))):
            break
        if name not in gpus:
            gpus.append(name)
    return gpus[:MOST_GPUS]


class GpuAsker:
    """The shim's side of the helper: queries it and reads its answers, without blocking.

    `state`: `none` (the program has no GPU), `absent` (no nvidia-smi on the node), `asked` (no
    answer yet), `ok`, `failed` (it is no longer queried).
    """

    def __init__(self, environment: Mapping[str, str], path: str) -> None:
        wanted = visible_gpus(environment.get(VARIABLE))
        tool = shutil.which(TOOL, path=path) if wanted else None
        self.gpus = len(wanted)
        self.state = "asked" if tool else "absent" if wanted else "none"
        self._orders = self._answers = -1
        self._failures = 0
        self._waits, self._asked_at = False, 0.0
        self._heard = b""
        if tool:
            try:
                self._orders, self._answers = _start_helper(tool, wanted, path)
            except OSError:  # too many processes or files: the job runs without GPU readings
                self.state = "failed"

    def ask(self) -> None:
        """Request a reading, unless one is pending."""
        if self._orders < 0:
            return
        if self._waits:
            if time.monotonic() - self._asked_at > HELPER_S:
                self._give_up()
            return
        try:
            os.write(self._orders, b"?")
        except OSError:
            self._give_up()
            return
        self._waits, self._asked_at = True, time.monotonic()

    def answer(self) -> list[GpuReading] | None:
        """Return the readings for the last request, or None if there is no usable answer."""
        if not self._waits or self._answers < 0:
            return None
        try:
            data = os.read(self._answers, MOST_BYTES)
        except BlockingIOError:
            return None
        self._heard += data
        if data and not self._heard.endswith(b"\n"):
            return None
        line, self._heard, self._waits = self._heard, b"", False
        readings = json.loads(line or b"null")
        if readings is None:
            self._fail()
            return None
        self._failures = 0
        self.state = "ok"
        return [GpuReading(*one) for one in readings]

    def close(self) -> None:
        """Stop querying; the helper then ends."""
        for end in (self._orders, self._answers):
            if end >= 0:
                os.close(end)
        self._orders = self._answers = -1

    def _fail(self) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            self._give_up()

    def _give_up(self) -> None:
        self.state = "failed"
        self.close()


def read_gpus(text: str, wanted: Sequence[str]) -> list[GpuReading] | None:
    """Return the readings of the wanted GPUs, in their order, or None if none can be read."""
    rows: list[list[str]] = []
    for row in csv.reader(text.splitlines()):
        cells = [cell.strip() for cell in row]
        if len(cells) == _COLUMNS and cells[0].isdecimal():
            rows.append(cells)
    readings = []
    for name in wanted:
        own = next((row for row in rows if _is_named(row, name)), None)
        if own is None:  # the GPU is no longer on the bus; the others keep their positions
            readings.append(GpuReading(None, None, None))
            continue
        used, total = _amount(own[3], _MOST_MIB), _amount(own[4], _MOST_MIB)
        readings.append(
            GpuReading(
                _amount(own[2], 100),
                None if used is None else round(used),
                None if total is None else round(total),
            )
        )
    says = any(one.busy is not None or one.used_mib is not None for one in readings)
    return readings if says else None


def _is_named(row: list[str], name: str) -> bool:
    return row[0] == name if name.isdecimal() else row[1].startswith(name)


def _amount(text: str, most: float) -> float | None:
    """Return a number, or None for texts like `[N/A]`."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= most else None


def _start_helper(tool: str, wanted: Sequence[str], path: str) -> tuple[int, int]:
    """Start the helper so that it is no child of ours; return the pipes to and from it."""
    orders_read, orders_write = os.pipe()
    answers_read, answers_write = os.pipe()
    middle = os.fork()
    if middle == 0:
        with contextlib.suppress(BaseException):
            if os.fork() == 0:
                _serve(tool, wanted, path, orders_read, answers_write)
        os._exit(0)
    os.waitpid(middle, 0)
    os.close(orders_read)
    os.close(answers_write)
    os.set_blocking(answers_read, False)
    os.set_blocking(orders_write, False)
    return orders_write, answers_read


def _serve(tool: str, wanted: Sequence[str], path: str, orders: int, answers: int) -> NoReturn:
    """Run the helper: answer each byte that the shim sends, until the shim closes the pipe."""
    try:
        signal.set_wakeup_fd(-1)
        for ours in (signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(ours, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _keep_only(orders, answers)
        asked: subprocess.Popen[bytes] | None = None
        while os.read(orders, 1):
            if asked is not None and asked.poll() is None:
                os.write(answers, b"null\n")
                continue
            asked, text = _ask_tool(tool, path, orders)
            os.write(answers, json.dumps(read_gpus(text, wanted)).encode() + b"\n")
    finally:
        os._exit(0)


def _keep_only(orders: int, answers: int) -> None:
    """Close the shim's files, since other processes wait until all copies are closed."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    kept = {orders, answers}
    for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - names only
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    os.chdir("/")


def _ask_tool(tool: str, path: str, orders: int) -> tuple["subprocess.Popen[bytes]", str]:
    """Run nvidia-smi; return its process and its output, empty if it failed."""
    process = subprocess.Popen(
        [tool, *QUERY],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": path, "LANG": "C"},
        start_new_session=True,
    )
    assert process.stdout is not None  # noqa: S101 - for the type checker: it is a pipe
    data = _read_within(process.stdout.fileno(), orders)
    process.stdout.close()
    if data is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        code = process.wait(END_S)
    except subprocess.TimeoutExpired:
        code = -1
        process.kill()
    return process, (data or b"").decode(errors="replace") if code == 0 else ""


def _read_within(output: int, orders: int) -> bytes | None:
    """Read to the end. Return None after a limit of time or size, or once the shim has ended."""
    deadline = time.monotonic() + ANSWER_S
    data = b""
    while (left_s := deadline - time.monotonic()) > 0 and len(data) <= MOST_BYTES:
        ready: Any = select.select([output, orders], [], [], left_s)[0]
        if orders in ready:
            return None
        if output in ready:
            piece = os.read(output, MOST_BYTES)
            if not piece:
                return data
            data += piece
    return None
