"""Recomputation in a child process with a limit on CPU time.

A hostile bundle, or a solver that never ends, must not hang the command. A limit on wall time would
report proven rounds as unproven on a busy machine (docs/adr/0220).
"""

import os
import pickle
import signal
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
# CPU seconds allowed per round. The slowest measured rounds take less than one second.
LIMIT_S = 600


def in_child(work: Callable[[], Result], limit_s: int) -> Result | None:
    """Return the result of the work; None if it used more than `limit_s` seconds of CPU time.

    With a limit of 0, or without `fork` on this system, there is no limit and no child. An error of
    the work is raised here.

    Raises:
        ChildProcessError: the child ended for another reason.
    """
    if not limit_s or not hasattr(os, "fork"):
        return work()
    here, there = os.pipe()
    child = os.fork()
    if not child:
        os.close(here)
        _run(work, limit_s, there)
    os.close(there)
    is_over = False
    try:
        with os.fdopen(here, "rb") as pipe:
            data = pipe.read()
        is_over = True
    finally:
        if not is_over:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in {signal.SIGXCPU, signal.SIGKILL}:
        return None
    if status:
        raise ChildProcessError(f"the recomputing process ended with status {status}")
    result, problem = pickle.loads(data)  # noqa: S301 - of our own child
    if problem is not None:
        raise problem
    return result  # type: ignore[no-any-return]  # as the work returned it


def _run(work: Callable[[], Result], limit_s: int, there: int) -> None:
    """Do the work in the child, and exit without the parent's cleanup."""
    import resource  # noqa: PLC0415 - not there on systems without fork

    status = 1
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
        try:
            data = pickle.dumps((work(), None))
        except Exception as error:  # noqa: BLE001 - the parent raises it
            data = pickle.dumps((None, error))
        with os.fdopen(there, "wb") as pipe:
            pipe.write(data)
        status = 0
    finally:
        os._exit(status)
