"""No public name disappears unless it is listed: commands, flags, options, events, endings and
Python names."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

from public_surface import Surface, surface

ROOT = Path(__file__).parents[1]
RECORDINGS = ROOT / "tests" / "recordings"
RECORDED: Surface = json.loads((RECORDINGS / "public_surface.json").read_text())["surface"]
Changes = dict[str, list[dict[str, str]]]
CHANGES: Changes = tomllib.loads((RECORDINGS / "public_surface_changes.toml").read_text())
NAMES = [name for name, kind in RECORDED["python"].items() if kind in ("class", "function", "value")]


def test_no_public_name_is_lost() -> None:
    """Each recorded name exists with the same description, unless public_surface_changes.toml lists
    a change."""
    names = [_rename(name, CHANGES) for name in NAMES]
    problems = find_losses(RECORDED, surface(ROOT, names), CHANGES)
    assert not problems, "\n".join(["", *problems])


def test_the_changelog_names_each_new_name() -> None:
    """CHANGELOG.md contains each new name, and each listed change has a reason."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    missing = [
        rename["new"]
        for rename in CHANGES.get("renamed", ())
        if not re.search(rf"(?<!\w){re.escape(_last_word(rename['new']))}(?!\w)", changelog)
    ]
    assert missing == []
    assert all(change["reason"] for changes in CHANGES.values() for change in changes)


def test_every_listed_change_is_needed() -> None:
    """Each entry of public_surface_changes.toml is needed: without it a loss is found."""
    names = [_rename(name, CHANGES) for name in NAMES]
    present = surface(ROOT, names)
    needless = []
    for kind, changes in CHANGES.items():
        for change in changes:
            rest = {**CHANGES, kind: [other for other in changes if other is not change]}
            if find_losses(_affected_by(change), present, rest) == []:
                needless.append(f"{kind}: {change}")
    assert needless == []


def _affected_by(change: dict[str, str]) -> Surface:
    """The recorded names that a listed change can be about. It makes the test 50 times faster."""
    key = change.get("old") or change["name"]
    word = _last_word(key)
    return {
        section: {
            name: description
            for name, description in entries.items()
            if word in description or any(_is_below(each, key) for each in _names_of(name))
        }
        for section, entries in RECORDED.items()
    }


@functools.cache
def _names_of(name: str) -> tuple[str, ...]:
    """The recorded name, and the name after each rename that applies to it."""
    names = [name]
    for rename in CHANGES.get("renamed", ()):
        if (new := _rename(names[-1], {"renamed": [rename]})) != names[-1]:
            names.append(new)
    return tuple(names)


def test_losses_are_found() -> None:
    """A missing flag, a missing field and a changed default give one line each; a listed change
    gives none."""
    present = deepcopy(RECORDED)
    del present["commands"]["geminids run --model"]
    del present["events"]["finished.answer"]
    present["python"]["geminids.Options.grace"] = "float = 7.0"
    assert find_losses(RECORDED, present, {}) == [
        "commands: geminids run --model is missing",
        "events: finished.answer is missing",
        "python: geminids.Options.grace was 'float = 5.0' and is 'float = 7.0'",
    ]
    listed: dict[str, Any] = {
        "removed": [{"section": "commands", "name": "geminids run --model"}],
        "changed": [{"section": "python", "name": "geminids.Options.grace"}],
        "renamed": [{"old": "finished.answer", "new": "finished.reply"}],
    }
    assert find_losses(RECORDED, present, listed) == [
        "events: finished.answer is missing (listed as finished.reply)"
    ]
    present["events"]["finished.reply"] = "str"
    assert find_losses(RECORDED, present, listed) == []


def find_losses(recorded: Surface, present: Surface, changes: Changes) -> list[str]:
    """Return one line for each recorded name that is missing or changed, and not listed."""
    removed = [(change["section"], change["name"]) for change in changes.get("removed", ())]
    changed = {(change["section"], change["name"]) for change in changes.get("changed", ())}
    losses = []
    for section, entries in recorded.items():
        for name, description in entries.items():
            if any(where == section and _is_below(name, gone) for where, gone in removed):
                continue
            new = _rename(name, changes)
            if new not in present[section]:
                losses.append(
                    f"{section}: {name} is missing" + (f" (listed as {new})" if new != name else "")
                )
            elif (
                present[section][new] != _rename_words(description, changes)
                and (section, name) not in changed
            ):
                losses.append(f"{section}: {name} was {description!r} and is {present[section][new]!r}")
    return losses


def _rename(name: str, changes: Changes) -> str:
    for rename in changes.get("renamed", ()):
        if _is_below(name, rename["old"]):
            name = rename["new"] + name[len(rename["old"]) :]
    return name


def _rename_words(description: str, changes: Changes) -> str:
    """Replace renamed types, flags and variables in a description."""
    for rename in changes.get("renamed", ()):
        old, new = _last_word(rename["old"]), _last_word(rename["new"])
        if old[0].isupper() or old.startswith("-"):
            description = re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", new, description)
    return description


def _is_below(name: str, upper: str) -> bool:
    return name.startswith(upper) and name[len(upper) : len(upper) + 1] in ("", ".", "(", "=", " ")


def _last_word(name: str) -> str:
    return re.split(r"[. (=]", name.rstrip(")"))[-1]
