"""The one place where a solver of HiGHS is made: it never prints.

HiGHS 1.16 greets on stdout while it is made, before any option can be set, and would stand in the
JSON of a command. What says so is `setCallback`, which the library calls as it is made.
"""

from __future__ import annotations

import highspy


class SilentHighs(highspy.Highs):
    """A solver whose output is off from the beginning."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in the library
        self.setOptionValue("output_flag", False)

    def enableCallbacks(self) -> None:  # noqa: N802 - the library's name
        """Turn output off before the first callback is set, which is when the library greets."""
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]  # untyped in the library
