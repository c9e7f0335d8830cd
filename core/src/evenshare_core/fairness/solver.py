"""Creates every HiGHS solver, so that none of them prints.

HiGHS 1.16 prints a banner to stdout while it is created, before any option can be set. The banner
would corrupt the JSON output of a command. It is printed by `setCallback`, which the library calls
during creation.
"""

import highspy


class SilentHighs(highspy.Highs):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in the library
        self.setOptionValue("output_flag", False)

    def enableCallbacks(self) -> None:  # noqa: N802 - the library's name
        """Turn output off before the first callback is set, when the library prints its banner."""
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]  # untyped in the library
