"""English text → words, as Universal Dependencies divides it: `do n't`, `it 's`, `well - known`."""

import re

CLITIC = r"['’](?:s|re|ve|ll|d|m)\b"
WORD = re.compile(
    rf"""
    (?:https?://|www\.)\S*[\w/]         # an address
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+
    | (?:[A-Za-z]\.){{2,}}              # U.S., a.m.
    | \b(?:Mr|Mrs|Ms|Dr|St|Prof|Jr|Sr|vs|etc|Inc|Ltd|Corp|Co|Gen|Sen|Gov)\.
    | \d+(?:[.,:/]\d+)*(?:th|st|nd|rd|s)?\b
    | \bcan(?=not\b)                    # can not
    | \w+?(?=n['’]t\b) | n['’]t\b       # do n't
    | {CLITIC}
    | \w+(?:['’](?!(?:s|re|ve|ll|d|m)\b)\w+)*  # o'clock
    | ([^\w\s])\1*                      # the same sign again: ...
    """,
    re.IGNORECASE | re.VERBOSE,
)


def words_of(text: str) -> list[str]:
    """The words and signs of an English sentence.

    >>> print(*words_of("Don't stop: it's 3.5 km to Mr. Li's well-known café..."))
    Do n't stop : it 's 3.5 km to Mr. Li 's well - known café ...
    """
    return [found[0] for found in WORD.finditer(text)]
