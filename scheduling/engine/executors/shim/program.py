"""Starts a program in its own process group, with a clean environment and default signals."""

import ctypes
import errno
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

NOT_FOUND, NOT_STARTED = 127, 126

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None)


class Program(NamedTuple):
    """A started program, and the read end of the pipe for its output (-1 without a pipe).

    If the program could not be started, `refusal` is the exit code and `problem` the reason.
    """

    pid: int
    output: int
    refusal: int | None = None
    problem: str = ""


def start_program(spec: Mapping[str, Any], *, output: int = -1) -> Program:
    """Fork, and execute `argv` with `env`, `cwd` and `nice`.

    `output`: the descriptor for its output.
    """
    output_read = -1
    output_write = output
    if output < 0:
        output_read, output_write = os.pipe()
    error_read, error_write = os.pipe()
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(spec, me, output_write, error_write)
    os.close(error_write)
    if output < 0:
        os.close(output_write)
        os.set_blocking(output_read, False)
    # A successful exec closes this pipe; otherwise it carries the error.
    with os.fdopen(error_read, "rb") as errors:
        problem = errors.read().decode(errors="replace")
    if not problem:
        return Program(pid, output_read)
    cause, _, text = problem.partition(" ")
    name = (spec["argv"] or [""])[0]
    refusal = NOT_FOUND if int(cause) in (errno.ENOENT, errno.ENOTDIR) else NOT_STARTED
    return Program(pid, output_read, refusal, f"cannot start {name[:200]!r}: {text}")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def inherited(prefixes: Sequence[str]) -> dict[str, str]:
    """Return this process's variables whose names have one of the prefixes."""
    return {key: value for key, value in os.environ.items() if key.startswith(tuple(prefixes))}


def program_environment(spec: Mapping[str, Any]) -> dict[str, str]:
    return {**spec["env"], **inherited(spec.get("inherit") or ("\0",))}


def _become(spec: Mapping[str, Any], parent: int, output: int, error: int) -> NoReturn:
    """Set up the child process: a new process group, and death with its parent.

    Then run the program.
    """
    try:
        os.setpgid(0, 0)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(NOT_STARTED)
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(int(spec["nice"]))
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.chdir(spec["cwd"])
        if not spec["argv"]:
            raise FileNotFoundError(errno.ENOENT, "no command was given")
        argv = spec["argv"]
        os.execvpe(argv[0], argv, program_environment(spec))  # noqa: S606 - a list, never a shell's text
    except OSError as problem:
        where = f" ({problem.filename})" if problem.filename == spec["cwd"] else ""
        os.write(error, f"{problem.errno or errno.EINVAL} {problem.strerror}{where}".encode())
    except ValueError as problem:  # NUL bytes or lone surrogates in an argument
        os.write(error, f"{errno.EINVAL} {problem}".encode(errors="replace"))
    finally:
        os._exit(NOT_STARTED)
