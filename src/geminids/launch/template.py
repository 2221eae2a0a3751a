r"""A template around the prompt: `{{name}}` is a value, `\{{name}}` stays `{{name}}`, other braces stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from geminids.launch.prompt import PromptProblem, without_at

__all__ = ["KNOWN_NAMES", "PROMPT", "fill_template"]

# What every orchestrator has; whoever names one of them must have given it.
KNOWN_NAMES = ("agentId", "agent.name", "tenantId", "tenant.name", "runId")
PROMPT = "prompt"

_NAME = r"[A-Za-z_][\w-]*+(?:\.[\w-]++)*+"
# {{{x}}} is another's syntax. Possessive throughout: what is no name is left at once, however long it is.
_PLACE = re.compile(rf"(?:(\\)|(?<!\{{))\{{\{{[ \t]*+({_NAME})[ \t]*+\}}\}}(?!\}})")
_WHOLE_NAME = re.compile(_NAME)
_MOST_TOLD = 50


def fill_template(template: str, prompt: str, values: Mapping[str, str]) -> str:
    """The template with its values and the prompt; without `{{prompt}}` the prompt comes after a blank line.

    Values come from outside, so they are text and nothing else: no braces of theirs are looked at, their `@path`
    puts no file in, and they cannot begin a `/command`. The template's own words and the prompt keep their meaning.

    >>> fill_template("You are {{agent.name}}. {{prompt}}", "Say hello.", {"agent.name": "Ada"})
    'You are Ada. Say hello.'
    """
    _check(template, values)
    pieces = list(_pieces(template, prompt, values))
    if prompt.strip() and not any(kind == PROMPT for kind, _ in pieces):
        pieces += [("own", "\n\n"), (PROMPT, prompt)]
    first = next(((kind, text) for kind, text in pieces if text.strip()), None)
    text = "".join(text for _, text in pieces)
    acts = first is not None and first[0] == "value" and first[1].lstrip().startswith("/")
    return " " + text if acts else text


def _pieces(template: str, prompt: str, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    at = 0
    for place in _PLACE.finditer(template):
        escaped, name = place.groups()
        yield "own", template[at : place.start()]
        if escaped:
            yield "own", place[0][1:]
        elif name == PROMPT:
            yield PROMPT, prompt
        else:
            yield "value", without_at(values[name])
        at = place.end()
    yield "own", template[at:]


def _check(template: str, values: Mapping[str, str]) -> None:
    for name in values:
        if not _WHOLE_NAME.fullmatch(name):
            hint = "A name has letters, digits, _ and -, and dots between its parts."
            raise PromptProblem(f"variables: {name!r} cannot be a name", hint, "bad_option")
        if name == PROMPT:
            hint = "Give that variable another name."
            raise PromptProblem("variables: {{prompt}} stands for the run's own prompt", hint, "bad_option")
    asked = dict.fromkeys(place[2] for place in _PLACE.finditer(template) if not place[1])
    missing = [name for name in asked if name not in values and name != PROMPT]
    unknown = [name for name in missing if name not in KNOWN_NAMES]
    if unknown:
        there = _nearest(unknown, {*KNOWN_NAMES, *values, PROMPT})
        hint = rf"Known are {_listed(there)}. Give others as variables; \{{{{name}}}} stays as it is."
        raise PromptProblem(f"template: unknown: {_listed(unknown)}", hint, "bad_option")
    if missing:
        hint = f"Give it as a variable: variables={{{missing[0]!r}: …}}, or --var {missing[0]}=…"
        raise PromptProblem(f"template: no value was given for {_listed(missing)}", hint, "bad_option")
    for name in asked:
        if "\0" in values.get(name, ""):
            hint = "Take NUL characters out of it."
            raise PromptProblem(f"variables: {name} holds a NUL character", hint, "bad_option")


def _nearest(unknown: Iterable[str], known: set[str]) -> list[str]:
    """The known names, those first that look most like one of the unknown."""
    import difflib  # imported late: only for a mistake

    wrong = list(unknown)[:_MOST_TOLD]

    def likeness(name: str) -> float:
        return max(difflib.SequenceMatcher(None, name.lower(), one.lower()).ratio() for one in wrong)

    return sorted(sorted(known), key=likeness, reverse=True)


def _listed(names: list[str]) -> str:
    told = ", ".join(f"{{{{{name}}}}}" for name in names[:_MOST_TOLD])
    return f"{told} and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else told
