"""Numbers with their nouns, for text that people read."""


def plural(count: int, word: str, many: str | None = None) -> str:
    """Return a number with its noun: 1 -> "1 job"; 1200 -> "1,200 jobs".

    `many` is an irregular plural.
    """
    return f"{count:,} {word if count == 1 else many or word + 's'}"
