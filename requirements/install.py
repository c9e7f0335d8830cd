"""Make or update .venv from a hashed lock: `python3 requirements/install.py core|demo|dev`.

Standard library only, and syntax that any Python 3 can read, because this is what
tells a newcomer that their Python is too old. It does nothing when the lock has not
changed since the last run. Each kind is a part of the next, and an environment keeps the
largest that it had: a `make run` must not pull pytest from under a `make test`.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "lock-stamp")
OLDEST = (3, 11)
NEEDED_MB = 700
KINDS = ("core", "demo", "dev")
PACKAGES = ("core", "client", "research")  # the last one for the demo and for developers


def main():
    wanted = sys.argv[1] if len(sys.argv) > 1 else "core"
    if wanted not in KINDS:
        stop("unknown lock %r: choose %s" % (wanted, " or ".join(KINDS)))
    if sys.version_info < OLDEST:
        stop(
            "Python %d.%d or newer is needed, this is %s (choose one with PYTHON=...)"
            % (OLDEST + (sys.version.split()[0],))
        )
    # Two commands at once (`make run` beside `make test`) must not build it twice.
    folder = os.open(HERE, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    had = read_stamp().partition(" ")[0]
    if had in KINDS:
        wanted = max(wanted, had, key=KINDS.index)
    if read_stamp() != stamp_of(wanted):
        install(wanted)


def install(wanted):
    check_machine()
    if not os.path.exists(PYTHON):
        say("making .venv with Python %s" % sys.version.split()[0])
        run([sys.executable, "-m", "venv", "--clear", VENV], "could not make .venv")
    say("installing requirements/%s.txt" % wanted)
    quiet = ["-q", "--disable-pip-version-check", "--no-input"]
    run(
        [PYTHON, "-m", "pip", "install"]
        + quiet
        + ["--require-hashes", "-r", os.path.join(HERE, "uv.txt")],
        "could not install uv",
    )
    run(
        [
            PYTHON,
            "-m",
            "uv",
            "pip",
            "sync",
            "-q",
            # Four processes start at once: they should not each compile everything.
            "--compile-bytecode",
            "--require-hashes",
            "--python",
            PYTHON,
            os.path.join(HERE, wanted + ".txt"),
            os.path.join(HERE, "uv.txt"),
        ],
        "could not install requirements/%s.txt" % wanted,
    )
    # From this checkout: the library, the `evenshare` command with the in-job runtime, baselines.
    for package in packages_of(wanted):
        run(
            [PYTHON, "-m", "uv", "pip", "install", "-q", "--offline", "--no-deps"]
            + ["--no-config", "--python", PYTHON, "-e", os.path.join(ROOT, package)],
            "could not install " + package,
        )
    with open(STAMP, "w") as stamp:
        stamp.write(stamp_of(wanted))


def check_machine():
    try:
        import ensurepip  # noqa: F401 - Debian splits it off with the venv module
        import venv  # noqa: F401 - only its presence matters
    except ImportError:
        stop(
            "Python's venv module is missing; on Debian or Ubuntu: "
            "apt-get install python%d.%d-venv" % sys.version_info[:2]
        )
    free_mb = shutil.disk_usage(ROOT).free // 2**20
    if free_mb < NEEDED_MB:
        stop(
            "the disk of %s has %d MB free, the installation needs %d MB"
            % (ROOT, free_mb, NEEDED_MB)
        )


def packages_of(wanted):
    """A site's own environment decides without baselines."""
    return PACKAGES[:2] if wanted == "core" else PACKAGES


def stamp_of(wanted):
    """Kind, interpreter, and digest of the locks and of this folder's path, which .pth files name.

    Nothing is installed again while it stays equal.
    """
    digest = hashlib.sha256(ROOT.encode())
    for name in (wanted, "uv"):
        with open(os.path.join(HERE, name + ".txt"), "rb") as lock:
            digest.update(lock.read())
    for package in packages_of(wanted):
        with open(os.path.join(ROOT, package, "pyproject.toml"), "rb") as project:
            digest.update(project.read())
    return "%s %d.%d %s" % ((wanted,) + sys.version_info[:2] + (digest.hexdigest(),))


def read_stamp():
    try:
        with open(STAMP) as stamp:
            return stamp.read() if os.path.exists(PYTHON) else ""
    except OSError:
        return ""


def run(command, failure):
    environment = dict(os.environ, VIRTUAL_ENV=VENV)
    if subprocess.call(command, env=environment) != 0:
        stop(failure + " (see above)")


def say(text):
    print("evenshare: " + text, flush=True)


def stop(text):
    sys.exit("evenshare: " + text)


if __name__ == "__main__":
    main()
