"""The program, isolated: it finds only its own package and the standard library."""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    # This folder comes last, so that its modules cannot hide the standard library.
    sys.path[:] = [*sys.path[1:], str(here.parent)]
    what, folder = sys.argv[1], Path(sys.argv[-1])
    if what == "--end":
        import_module(f"{here.name}.ending").end_all(
            Path(sys.argv[2]), at_once="--now" in sys.argv[3:]
        )
    elif what == "--gang":
        sys.exit(import_module(f"{here.name}.gang").lead(folder))
    elif what == "--task":
        sys.exit(import_module(f"{here.name}.task").attend(folder))
    else:
        if what == "--log":
            import_module(f"{here.name}.log").redirect_own_output(folder)
        import_module(f"{here.name}.holder").hold(folder)
