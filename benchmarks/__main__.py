"""`python -m benchmarks [--write] [NAME ...]`: run the benchmarks, each in a separate process.

Each prints its figures, and a ratio to the plain method or a named peer in the same run. `--write`
puts the output into docs/performance.md.
"""

import argparse
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from evenshare_research.reproduce.runs import machine

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent / "docs" / "performance.md"
BENCHMARKS = (
    *("decide_ltgf", "decide_evenshare", "decide_gandiva_fair", "decide_policies"),
    *("decide_market", "forecast_market"),
    *("simulate", "load_traces", "certify", "disclose"),
    *("round_postgres", "bundles", "archive", "submit_http", "polls_http", "oef", "income"),
    "market_schedule",
    *("unisched_selector", "price_board", "estimation", "verify_rounds"),
)
BEGIN, END = "<!-- figures: written by `make bench` -->", "<!-- end of figures -->"


def run(name: str) -> str:
    """Run a benchmark, print its output as it comes, and return it."""
    lines = []
    with subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{name}"],
        cwd=HERE.parent,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None  # noqa: S101 - narrows the type; it is a pipe
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        raise SystemExit(f"benchmark {name} failed with {process.returncode}")
    return "".join(lines)


def write(printed: dict[str, str]) -> None:
    """Replace the figures in the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    today = datetime.now(UTC).date().isoformat()
    parts = [f"\n\nMeasured {today} on {machine()}.\n"]
    for name, out in printed.items():
        lines = "\n".join(line.rstrip() for line in out.rstrip().splitlines())
        parts.append(f"\n### `{name}`\n\n```\n{lines}\n```\n")
    DOCUMENT.write_text(head + BEGIN + "".join(parts) + "\n" + END + tail, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--write", action="store_true", help="update docs/performance.md")
    options = parser.parse_args()
    for name in options.names:
        if name not in BENCHMARKS:
            parser.error(f"no benchmark is named {name!r}; there are {', '.join(BENCHMARKS)}")
    print(f"on {machine()}\n")
    printed = {name: run(name) for name in options.names or BENCHMARKS}
    if options.write:
        write(printed)


if __name__ == "__main__":
    main()
