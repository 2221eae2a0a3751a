"""Tests of prompt templates: names become values, other braces stay, and values have no special
meaning."""

from __future__ import annotations

import contextlib
import re
import string
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.launch.errors import PromptProblem
from geminids.launch.prompt.compose import KNOWN_NAMES, fill_template
from geminids.options.flag_names import with_flags

VALUES = {
    "agentId": "a1",
    "agent.name": "Ada",
    "tenantId": "t1",
    "tenant.name": "Acme",
    "runId": "run-1",
    "my-own_1.x": "own",
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{agentId}} {{agent.name}} {{tenantId}} {{tenant.name}} {{runId}}", "a1 Ada t1 Acme run-1\n\nhi"),
        ("{{ agentId }}{{\ttenantId}}: {{prompt}}", "a1t1: hi"),
        ("{{my-own_1.x}} {{prompt}}", "own hi"),
        ("{{prompt}} and {{prompt}}", "hi and hi"),
        ("before {{prompt}} after", "before hi after"),
        ("no place", "no place\n\nhi"),
        ("{{prompt}} {{color: 1}}", "hi {{color: 1}}"),
        ('<p style={{color: "red"}}>{{prompt}}</p>', '<p style={{color: "red"}}>hi</p>'),
        ("a{b:c} {x} {{}} {{ }} {{prompt}}", "a{b:c} {x} {{}} {{ }} hi"),
        ("{{{agentId}}} {{prompt}}", "{{{agentId}}} hi"),
        ("{% if x %}{{prompt}}{% endif %}", "{% if x %}hi{% endif %}"),
        ("value={{agentId}} {{prompt}}", "value=a1 hi"),
        (r"\{{agentId}} \{{anything}} {{prompt}}", "{{agentId}} {{anything}} hi"),
        (r"\{{color: 1}} {{prompt}}", r"\{{color: 1}} hi"),
        (r"{\{{agentId}} {{prompt}}", "{{{agentId}} hi"),
        ("{{agentId}", "{{agentId}\n\nhi"),
        ("{{1st}} {{a..b}} {{.a}} {{a b}} {{prompt}}", "{{1st}} {{a..b}} {{.a}} {{a b}} hi"),
    ],
)
def test_names_become_values_and_other_braces_stay(template: str, expected: str) -> None:
    """Known names and the caller's names become values, with blanks around them.

    CSS, JSX, Jinja, three braces and escapes stay.
    """
    assert fill_template(template, "hi", VALUES) == expected


@pytest.mark.parametrize("value", ["{{tenantId}}", "{{prompt}}", r"\{{agentId}}", "{{unknown}}", "}}{{", "{"])
def test_a_value_is_never_expanded_again(value: str) -> None:
    """A value with braces is not expanded again, neither alone nor together with the text around
    it."""
    filled = fill_template(
        "{{{agentId}} {{agentId}}tenantId}} {{prompt}}", "hi", {**VALUES, "agentId": value}
    )
    assert filled == f"{{{{{{agentId}}}} {value}tenantId}}}} hi"


def test_the_prompt_is_never_expanded() -> None:
    """Braces in the prompt are not expanded."""
    assert fill_template("{{prompt}}", "{{agentId}} {{nobody}}", VALUES) == "{{agentId}} {{nobody}}"


def test_an_unknown_name_is_reported_with_the_nearest_known_names() -> None:
    """All unknown names are reported at once, each once, and the hint lists the known names,
    nearest first."""
    with pytest.raises(PromptProblem) as caught:
        fill_template("{{tenant.nmae}} {{x.y}} {{x.y}} {{agentId}} {{prompt}}", "hi", VALUES)
    assert str(caught.value) == "`template`: unknown names: {{tenant.nmae}}, {{x.y}}"
    assert caught.value.hint.startswith("Known names: {{tenant.name}}, ")
    assert all(f"{{{{{name}}}}}" in caught.value.hint for name in (*VALUES, "prompt"))
    assert caught.value.kind == "bad_option"


@pytest.mark.parametrize("name", KNOWN_NAMES)
def test_a_known_name_without_a_value_is_reported(name: str) -> None:
    """A known name without a value is reported with the option that sets it, not as a misspelled
    name."""
    with pytest.raises(PromptProblem) as caught:
        fill_template(f"{{{{{name}}}}} {{{{prompt}}}}", "hi", {})
    assert str(caught.value) == f"`template`: no value for {{{{{name}}}}}"
    assert f"`variables={{{name!r}: '…'}}`" in caught.value.hint
    assert f"`--var {name}=…`" in with_flags(caught.value.hint)


@pytest.mark.parametrize(
    ("variables", "message"),
    [({"a b": "1"}, "is not a valid name"), ({"prompt": "1"}, "own prompt"), ({"x": "a\0b"}, "NUL")],
)
def test_invalid_variables_are_refused(variables: dict[str, str], message: str) -> None:
    """A variable is refused if its name cannot be used in a template, if it is `prompt`, or if its
    value contains NUL."""
    with pytest.raises(PromptProblem, match=message):
        fill_template("{{x}} {{prompt}}", "hi", {"x": "1", **variables})


@pytest.mark.parametrize(
    ("template", "value", "expected"),
    [
        ("{{x}} {{prompt}}", "@/etc/passwd", r"\@/etc/passwd hi"),
        ("{{x}}README.md {{prompt}}", "@", r"\@README.md hi"),
        ("{{x}} {{prompt}}", r"\@a", r"\@a hi"),
        ("{{x}} {{prompt}}", "/quit", " /quit hi"),
        (" {{x}}quit {{prompt}}", "/", "  /quit hi"),
        ("/review @a.md {{x}} {{prompt}}", "b", "/review @a.md b hi"),
        ("{{x}}/review", "", "/review\n\nhi"),
        ("me: {{x}} {{prompt}}", "/quit", "me: /quit hi"),
    ],
)
def test_a_value_has_no_special_meaning(template: str, value: str, expected: str) -> None:
    """`@path` and a leading `/` in a value are escaped; in the template itself they keep their
    meaning."""
    assert fill_template(template, "hi", {"x": value}) == expected


def test_the_prompt_keeps_its_meaning() -> None:
    """`@path` and a leading `/` in the prompt keep their meaning."""
    assert fill_template("{{prompt}}", "/help @a.md", {}) == "/help @a.md"


def test_an_empty_prompt_adds_nothing() -> None:
    """With an empty prompt the result is the template alone."""
    assert fill_template("Tidy up.", " ", {}) == "Tidy up."


def test_the_table_of_the_docs_is_true() -> None:
    """Each template in the table of docs/how-to/prompt.md gives the result that the table shows."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "prompt.md").read_text()
    rows = re.findall(r"^\| `(.*{{prompt}}.*)` \| `(.*)` \|$", page, re.MULTILINE)
    assert len(rows) == 7
    for template, filled in rows:
        assert fill_template(template, "hi", {"name": "Ada"}) == filled


texts = st.text(alphabet=st.sampled_from("{}\\@/ \tab.-_1é\0\n") | st.characters(), max_size=80)


@given(texts, texts, st.dictionaries(texts, texts, max_size=3))
def test_only_prompt_problems_are_raised(template: str, prompt: str, values: dict[str, str]) -> None:
    """Any template, prompt and values give a text or a `PromptProblem`, and no other exception."""
    with contextlib.suppress(PromptProblem):
        fill_template(template, prompt, values)


@given(texts.filter(lambda text: "{{" not in text))
def test_text_without_double_braces_is_unchanged(template: str) -> None:
    """A template without double braces is returned unchanged."""
    assert fill_template(template, "", {}) == template


@pytest.mark.parametrize(
    "piece", ["{", "{{", "{{a", "{{ ", "{{a.", "\\", "{{a-", "}}", "{{a}", "{{" + string.ascii_letters * 4]
)
def test_long_templates_take_linear_time(piece: Any) -> None:
    """A template of eight times the length takes less than forty times as long; quadratic time
    would be 64 times."""
    short, long = (piece * (size // len(piece)) for size in (50_000, 400_000))
    times = []
    for template in (short, long):
        # The CPU time of this thread does not depend on the load of the machine.
        start = time.thread_time()
        fill_template(template, "hi", VALUES)
        times.append(time.thread_time() - start)
    assert times[1] < max(40 * times[0], 0.5)
