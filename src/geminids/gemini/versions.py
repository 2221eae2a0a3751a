"""Parse and compare the version numbers of Gemini CLI and Node, by the rules of semantic versioning
(semver).
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Version"]

_SEMVER = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


class Version(NamedTuple):
    """A version number. Versions are compared as in semver (semantic versioning): a preview is
    lower than its release.

    `final` is False for a preview. `pre` is the part after the hyphen, in a form that can be
    compared.

    >>> Version.parse("0.41.0-preview.2") < Version.parse("0.41.0") < Version.parse("0.41.2")
    True
    >>> Version.parse("latest") is None
    True
    """

    major: int
    minor: int
    patch: int = 0
    final: bool = True
    pre: tuple[tuple[int, int, str], ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> Version | None:
        """Convert a text to a version number. Return None if the text is not a version number, for
        example "latest".
        """
        match = _SEMVER.fullmatch((text or "").strip())
        if match is None:
            return None
        major, minor, patch, pre = match.groups()
        parts = tuple(_rank(part) for part in pre.split(".")) if pre else ()
        return cls(int(major), int(minor), int(patch or 0), not parts, parts)

    @property
    def core(self) -> tuple[int, int, int]:
        """The three numbers of the version (major, minor, patch). A preview has the same numbers as
        its release.
        """
        return (self.major, self.minor, self.patch)

    def __str__(self) -> str:
        pre = ".".join(word or str(number) for _, number, word in self.pre)
        return f"{self.major}.{self.minor}.{self.patch}" + (f"-{pre}" if pre else "")


def _rank(part: str) -> tuple[int, int, str]:
    # In semver, a number is lower than a word, and numbers are compared by value.
    return (0, int(part), "") if part.isdigit() else (1, 0, part)
