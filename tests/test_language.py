"""Checks that retired words of the project's old language do not return."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Each word is split, so that this file passes its own check.
RETIRED = {
    first + second
    for first, second in (
        ("to", "ld"),
        ("sa", "id"),
        ("he", "ard"),
        ("ton", "gue"),
        ("spo", "ken"),
        ("vo", "ice"),
        ("pur", "se"),
        ("err", "and"),
        ("err", "ands"),
        ("as", "ide"),
        ("se", "at"),
        ("se", "ating"),
        ("gateway", "ed"),
        ("la", "ne"),
        ("la", "nes"),
    )
}
# The change log and the list of renamed public names quote old names. Recordings are data of the
# real CLI.
_EXEMPT = ("CHANGELOG.md", "tests/recordings/")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def _retired_words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text) if word.lower() in RETIRED]


@pytest.mark.parametrize(
    "pattern", ["src/*.py", "tests/*.py", "benchmarks/*.py", "docs/*.md", "*.md", "Makefile"]
)
def test_retired_words_occur_nowhere(pattern: str) -> None:
    """No identifier, docstring, comment, message or document contains a retired word."""
    listed = subprocess.run(
        ["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [name for name in listed.stdout.splitlines() if not name.startswith(_EXEMPT)]
    assert files
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in files
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if _retired_words(line)
    ]
    assert not found, "\n".join(found[:50])


@pytest.mark.parametrize("name", ["is_{}", "{}_events", "Is{}", "{}"])
def test_a_retired_word_inside_an_identifier_is_found(name: str) -> None:
    """The check sees a word inside snake_case and CamelCase names."""
    word = min(RETIRED)
    assert _retired_words(name.format(word.capitalize() if name[0] == "I" else word))


def test_longer_words_are_not_retired() -> None:
    """A word that only contains a retired one, such as `inside` or `planes`, passes."""
    assert not _retired_words("inside planes seated")
