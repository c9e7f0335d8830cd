"""Whether the parts of a pool's rounds are installed: its policy and its executor."""

from evenshare_core.policies.registry import missing_text
from scheduling.engine.executors.base import missing_executor


def missing_part(policy: str, executor: str) -> str:
    """Return why no round can be decided, and which package is missing, or "" if none is."""
    return missing_text(policy) or missing_executor(executor)
