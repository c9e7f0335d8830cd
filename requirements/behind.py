"""Print which of our requirements are locked at a version that is more than a release old.

Called by `make lock`, after it has resolved the locks: what is printed is held back by a bound in
`requirements/*.in`, or by a package that wants the older version.
"""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAME = re.compile(r"^[A-Za-z][A-Za-z0-9._-]*")
LOCKED = re.compile(r"(?m)^([a-z0-9-]+)(?:\[[^]]*\])?==([^ ;]+)")


def wanted() -> list[str]:
    """Return the names in `requirements/*.in`, as a lock spells them."""
    lines = [line for path in HERE.glob("*.in") for line in path.read_text().splitlines()]
    names = {found[0] for line in lines if (found := NAME.match(line))}
    return sorted(re.sub(r"[._]", "-", name.lower()) for name in names)


def releases_behind(versions: list[str], locked: list[str]) -> int:
    """Return how many of `versions`, newest first, are newer than what is locked.

    A lock may have several versions of a package, for several versions of Python.
    """
    return min((versions.index(one) for one in locked if one in versions), default=len(versions))


def known_versions(name: str) -> list[str]:
    """Return the final versions of a package, newest first, as the index has them.

    Raises:
        subprocess.CalledProcessError: the index does not know the package, or does not answer.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, _, found = done.stdout.partition("Available versions: ")
    return found.partition("\n")[0].split(", ")


def main() -> None:
    """Print a line for each package that is behind."""
    # What a site and the demo install is a part of dev.txt.
    locks = "\n".join((HERE / name).read_text() for name in ("dev.txt", "uv.txt"))
    found = LOCKED.findall(locks)
    for name in wanted():
        versions, locked = known_versions(name), [one for key, one in found if key == name]
        behind = releases_behind(versions, locked)
        if behind > 1:
            print(f"{name} {', '.join(locked)}: {behind} releases behind {versions[0]}")


if __name__ == "__main__":
    main()
