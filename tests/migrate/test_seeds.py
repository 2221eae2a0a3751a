"""docs/reference/seeds.md: every row of the specification has a proof that exists and runs."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from pathlib import Path

import pytest

from proofs import ROOT, SEEDS_PAGE, named_tests, reject_skipped_proof

REQUIREMENTS = ROOT.parent / "shared" / "REQUIREMENTS.md"
COUNTS = {"L": 16, "S": 9, "A": 8, "C": 8, "U": 8, "X": 19}
_ROW = re.compile(r"^\| ([LSACUX]\d+) \| (.*?) \| (.*?) \| (.*?) ?\|$", re.MULTILINE)
_NOT_IN_CI = {"skip", "skipif", "xfail", "matrix"}


def rows() -> dict[str, tuple[str, str, str]]:
    """The rows of the page by id: what, name, proof."""
    return {number: (what, name, proof) for number, what, name, proof in _ROW.findall(SEEDS_PAGE.read_text())}


def test_the_page_has_every_row() -> None:
    """The page has each row of the specification, once and in order."""
    expected = [f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)]
    assert [number for number, *_ in _ROW.findall(SEEDS_PAGE.read_text())] == expected


def test_the_ids_are_those_of_the_requirements() -> None:
    """The ids are those of REQUIREMENTS.md."""
    if not REQUIREMENTS.exists():
        pytest.skip("../shared/REQUIREMENTS.md is not beside this clone")
    ids = re.findall(r"^\| ([LSACUX]\d+) \|", REQUIREMENTS.read_text(), re.MULTILINE)
    assert set(rows()) == set(ids)


def test_each_row_has_a_proof_or_says_that_it_is_not_done() -> None:
    """A row names a test of the real CLI, or says "not done" and why."""
    unproven = [
        number
        for number, (what, name, proof) in rows().items()
        if not re.search(r"`tests/\S+\.py::test_\w+`", proof) and "not done: " not in f"{what} {name}"
    ]
    assert unproven == []


def test_each_named_test_exists_and_runs_in_ci() -> None:
    """Each named test exists, and no marker keeps it from running in CI."""
    problems = [f"{name}: {why}" for name in sorted(named_tests()) if (why := _why_not_run(name)) is not None]
    assert len(named_tests()) > 50
    assert problems == []


def test_a_missing_or_skipped_test_is_found() -> None:
    """The check reports a test that does not exist, and one with a marker that skips it."""
    assert _why_not_run("tests/migrate/test_seeds.py::test_nothing") == "there is no such test"
    assert _why_not_run("tests/migrate/test_none.py::test_nothing") == "there is no such test"
    assert _why_not_run("tests/migrate/test_seeds.py::_never_run") == "it is marked skip"


@pytest.mark.parametrize(("named", "outcome"), [(True, "failed"), (False, "skipped")])
def test_a_proof_that_is_skipped_in_a_run_fails(named: bool, outcome: str) -> None:
    """If a named test is skipped while it runs, it fails; another test may be skipped."""
    if not REQUIREMENTS.exists():
        pytest.skip("../shared is not beside this clone")
    name = min(named_tests()) if named else "tests/test_other.py::test_other"
    report = pytest.TestReport(name, ("", 0, ""), {}, "skipped", ("", 0, "no reason"), "call")
    reject_skipped_proof(report, name)
    assert report.outcome == outcome


@pytest.mark.parametrize(
    "name", sorted({name for _, name, _ in rows().values()} if SEEDS_PAGE.exists() else ())
)
def test_each_public_name_exists(name: str) -> None:
    """Each name that begins with `geminids.` can be imported."""
    for dotted in re.findall(r"`(geminids(?:\.\w+)+)", name):
        module, _, attribute = dotted.rpartition(".")
        assert _exists(module, attribute), f"{dotted} does not exist"


def _exists(module: str, attribute: str) -> bool:
    try:
        importlib.import_module(f"{module}.{attribute}")
    except ImportError:
        pass
    else:
        return True
    try:
        owner = importlib.import_module(module)
    except ImportError:  # the module is a class: `geminids.Pool.chat`
        outer, _, inner = module.rpartition(".")
        owner = getattr(importlib.import_module(outer), inner)
    return hasattr(owner, attribute)


def _why_not_run(name: str) -> str | None:
    path, _, function = name.partition("::")
    markers = _functions(ROOT / path).get(function)
    if markers is None:
        return "there is no such test"
    return next((f"it is marked {marker}" for marker in sorted(markers & _NOT_IN_CI)), None)


@functools.cache
def _functions(path: Path) -> dict[str, set[str]]:
    """The functions of a test module, with the names of their markers."""
    if not path.exists():
        return {}
    tree = ast.parse(path.read_text())
    of_module: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            ast.unparse(target) == "pytestmark" for target in node.targets
        ):
            of_module = _markers(node.value)
    return {
        node.name: of_module.union(*map(_markers, node.decorator_list))
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _markers(node: ast.expr) -> set[str]:
    outer = node.func if isinstance(node, ast.Call) else node
    nodes = node.elts if isinstance(node, ast.List | ast.Tuple) else [outer]
    return {each.attr for each in nodes if isinstance(each, ast.Attribute)}


@pytest.mark.skip(reason="an example for test_a_missing_or_skipped_test_is_found")
def _never_run() -> None: ...
