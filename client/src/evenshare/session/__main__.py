"""`python -m evenshare.session [--root FOLDER]`: serves the notebook or the shell of a lease."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from evenshare.runtime.contract import CHECKPOINTED, ContractError

from .contract import NOTEBOOK, SessionContract, read_contract
from .notebook import NotebookServer
from .shell import ShellServer

USAGE = 64


def main() -> int:
    """Serve a session until it ends; return the exit code of its job."""
    parser = argparse.ArgumentParser(prog="python -m evenshare.session", allow_abbrev=False)
    parser.add_argument("--root", type=Path, help="the notebook's folder; default: the job's")
    options = parser.parse_args()
    try:
        contract = read_contract(os.environ)
    except ContractError as problem:
        sys.stderr.write(f"evenshare: {problem}\n")
        return USAGE
    if os.environ.get("EVENSHARE_NODE_RANK") not in (None, "0"):
        return _wait(contract)
    if contract.kind == NOTEBOOK:
        return NotebookServer(contract, options.root or contract.folder).run()
    return asyncio.run(ShellServer(contract).run())


def _wait(contract: SessionContract) -> int:
    """Hold the other nodes of a gang: only the first one serves."""
    is_over: list[int] = []
    signal.signal(contract.signal, lambda number, _: is_over.append(number))
    while not is_over:
        time.sleep(1)
    return CHECKPOINTED


if __name__ == "__main__":
    sys.exit(main())
