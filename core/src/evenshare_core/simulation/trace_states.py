"""Final states of a trace's jobs in several schedulers, and their meaning in a simulation."""

from functools import lru_cache

from evenshare_core.simulation.trace_reads import Remark

_SUCCEEDED = frozenset(
    ("COMPLETED", "COMPLETE", "PASS", "SUCCEEDED", "SUCCESS", "TERMINATED", "FINISHED", "DONE")
)
_FAILED = frozenset(
    (
        "FAILED", "FAIL", "ERROR", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE",
        "LAUNCH_FAILED", "RECONFIG_FAIL", "PREEMPTED", "REVOKED",
    )
)  # fmt: skip # a table
_CANCELLED = frozenset(("CANCELLED", "CANCELED", "KILLED"))
_UNFINISHED = frozenset(
    (
        "RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "COMPLETING", "CONFIGURING", "RESIZING",
        "SIGNALING", "STAGE_OUT", "STOPPED", "SPECIAL_EXIT", "REQUEUE_FED", "REQUEUE_HOLD",
        "RESV_DEL_HOLD", "QUEUED", "WAITING",
    )
)  # fmt: skip # a table
_MEANS = {
    **dict.fromkeys(_FAILED, Remark.FAILED),
    **dict.fromkeys(_CANCELLED, Remark.CANCELLED),
    **dict.fromkeys(_UNFINISHED, Remark.UNFINISHED),
}
_KNOWN = sorted(_SUCCEEDED | _MEANS.keys())
# 143 is 128 + 15, as in a shell: SIGTERM ends a cancelled job.
_EXIT_CODES = {Remark.FAILED: 1, Remark.CANCELLED: 143, Remark.UNFINISHED: 1}


@lru_cache(maxsize=256)
def state_word(text: str) -> str:
    """Return a state without the text that follows it, such as `by 1000` in `CANCELLED by 1000`.

    A narrow column shortens states and marks them with a plus sign: `OUT_OF_ME+`.
    """
    word = text.upper().partition(" ")[0]
    if word.endswith("+"):
        return next((known for known in _KNOWN if known.startswith(word[:-1])), word)
    return word


def end_of(text: str) -> tuple[Remark | None, int]:
    """Return the remark on a state, and the exit code of its job.

    A success and an empty state have no remark.
    """
    word = state_word(text)
    if not word or word in _SUCCEEDED:
        return None, 0
    remark = _MEANS.get(word, Remark.UNKNOWN_STATE)
    return remark, _EXIT_CODES.get(remark, 0)
