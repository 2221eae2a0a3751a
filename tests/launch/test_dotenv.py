"""`.env` files are read as the CLI reads them, and no name that it would find is missed."""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from geminids.launch.environment import names_in, read_dotenv


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1\nB = 2 # two\n", {"A": "1", "B": "2"}),
        ("export A='x # y'\r\nB=\"one\\ntwo\"\r", {"A": "x # y", "B": "one\ntwo"}),
        ('A="over\nmany\nlines"\nB=`it\'s`', {"A": "over\nmany\nlines", "B": "it's"}),
        ("A: 1\nB:2\n", {"A": "1"}),
        ("A=\n# B=2\nno line\n", {"A": ""}),
        ("\ufeffA=1\nA=2\n", {"A": "2"}),
        ("A\n=1\nx\u2028B=2\n", {"A": "1", "B": "2"}),
        ("", {}),
    ],
)
def test_variables_are_read(text: str, found: dict[str, str]) -> None:
    """Quotes, comments, `export`, many lines, and what JavaScript takes for a blank or the end of a line."""
    assert read_dotenv(text) == found
    assert set(names_in(text)) >= set(found)


def test_a_name_in_a_value_counts_too() -> None:
    """Rather one name too many: where a quote is not closed, what looks like a value is none."""
    assert names_in("A='\nB=2\nC=3") == ("A", "B", "C")


@pytest.mark.parametrize("text", ["\n" * 10**6, " " * 10**6, "a" * 10**6, "a\n" * 300_000, "\t\n" * 500_000])
def test_a_file_made_to_be_slow(text: str) -> None:
    """Time grows with the length, not with its square: a hostile file cannot hold up a start."""
    begin = time.monotonic()
    names_in(text)
    assert time.monotonic() - begin < 5


_PIECES = (
    "A",
    "B_1",
    "c.d-e",
    "export",
    "=",
    ":",
    "'",
    '"',
    "`",
    "#",
    "\\",
    "\\n",
    "\\'",
    "x",
    "é",
    "A=",
    "\nB=",
)
_BLANKS = " \t\n\r\u2028\ufeff\u00a0\x85\x1c\n="
_PARSE = """\
const dotenv = require(process.argv[1]);
const read = JSON.parse(require('fs').readFileSync(0, 'utf8')).map(text => dotenv.parse(text));
process.stdout.write(JSON.stringify(read));
"""


@pytest.mark.deep
@pytest.mark.real
def test_it_reads_what_dotenv_reads(installs: Any, node: Path) -> None:
    """The package that the CLI uses is the judge: the same values for twenty thousand texts, and no name missed."""
    from geminids.gemini.install.cli import install

    install("0.24.0", places=installs)  # the newest that has it as a package of its own
    package = installs.releases / "0.24.0" / "node_modules" / "dotenv"
    chance = random.Random(5)
    texts = ["".join(chance.choices([*_PIECES, *_BLANKS], k=chance.randint(1, 14))) for _ in range(20_000)]
    argv = [str(node), "-e", _PARSE, str(package)]
    done = subprocess.run(argv, input=json.dumps(texts).encode(), capture_output=True, check=True, timeout=60)
    theirs = json.loads(done.stdout)
    assert [text for text, found in zip(texts, theirs, strict=True) if read_dotenv(text) != found] == []
    assert [text for text, found in zip(texts, theirs, strict=True) if set(found) - set(names_in(text))] == []
