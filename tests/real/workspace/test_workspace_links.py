"""Links that lead out of the folder are not followed: their targets are not read, written or
sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from geminids import ToolFinished
from hostile_repository import SECRET, Repository, sent_to_model

pytestmark = pytest.mark.real

deep = pytest.mark.deep


@pytest.fixture
def repository(world: Any) -> Repository:
    return Repository(world).plant("links")


def test_tools_do_not_go_through_a_link(repository: Repository) -> None:
    """With `auto_edit`, tools can write in the folder. Tool calls and `@path` prompts that go
    through a link out of the folder neither read nor write its target."""
    world, search = repository.world, {"pattern": "behind-the-link"}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {"file_path": "link.txt"}),
        ("read_file", {"file_path": str(repository.cwd / "linked" / "secret.txt")}),
        ("read_file", {"file_path": "../outside/secret.txt"}),
        ("list_directory", {"dir_path": "linked"}),
        ("write_file", {"file_path": "linked/new.txt", "content": "mine"}),
        ("write_file", {"file_path": "link.txt", "content": "mine"}),
        ("replace", {"file_path": "link.txt", "instruction": "x", "old_string": "the", "new_string": "a"}),
        ("grep_search", search),
        ("write_file", {"file_path": "inside.txt", "content": "fine"}),
    ]
    world.gateway.reply(calls=calls)
    world.gateway.reply(text="done")
    events = world.events("look @link.txt and @linked/secret.txt", approval="auto_edit")
    assert events[-1].outcome == "success"
    statuses = [event.status for event in events if isinstance(event, ToolFinished)]
    assert statuses[:7] == ["failed"] * 7
    assert (statuses[-1], (repository.cwd / "inside.txt").read_text()) == ("ok", "fine")
    assert SECRET not in sent_to_model(world)
    assert {file.name: file.read_text() for file in repository.outside.iterdir()} == {"secret.txt": SECRET}


def _linked_file(repository: Repository) -> None:
    (repository.cwd / "GEMINI.md").symlink_to(repository.outside / "secret.txt")


def _linked_file_above(repository: Repository) -> None:
    (repository.cwd.parent / ".git").mkdir()
    (repository.cwd.parent / "GEMINI.md").symlink_to("/etc/hostname")


def _linked_file_below(repository: Repository) -> None:
    repository.write("src/deep/x.txt", "fine")
    (repository.cwd / "src/deep/GEMINI.md").symlink_to(repository.outside / "secret.txt")


def _imported_link(repository: Repository) -> None:
    repository.write("GEMINI.md", "Read this too: @./more.md\n")
    repository.write("more.md", "@./link.txt\n")


def _imported_link_below(repository: Repository) -> None:
    repository.write("src/GEMINI.md", "@../linked/secret.txt\n")


@deep
@pytest.mark.parametrize(
    "plant", [_linked_file, _linked_file_above, _linked_file_below, _imported_link, _imported_link_below]
)
@pytest.mark.parametrize("release", ["0.61.0"], indirect=True)
def test_a_gemini_md_that_leads_out_is_refused(
    repository: Repository, plant: Callable[[Repository], None]
) -> None:
    """If a GEMINI.md is a link to a file outside the folder, or imports such a link with `@path`,
    the run fails with `config`, and no request is sent."""
    world = repository.world
    plant(repository)
    result = world.ask()
    assert result.failure.kind == "config"
    assert "is a link to a file outside the folder" in result.failure.message
    assert "trust_workspace" in result.failure.hint
    assert world.gateway.requests == []


@deep
def test_a_trusted_link_is_sent(repository: Repository) -> None:
    """Counter-check: with `trust_workspace=True`, the target of a GEMINI.md that is a link is sent
    to the model."""
    world = repository.world
    _linked_file(repository)
    world.gateway.reply(text="hi")
    assert world.ask(trust_workspace=True).ok
    assert SECRET in sent_to_model(world)


@deep
def test_imports_from_outside_are_not_followed(repository: Repository) -> None:
    """The CLI itself does not follow an `@path` in a GEMINI.md that leads out of the folder: the
    run succeeds without that file."""
    world = repository.world
    absolute = repository.outside / "secret.txt"
    repository.write(
        "GEMINI.md", f"A-TEXT\n@../outside/secret.txt\n@{absolute}\n@~/x @nowhere.md a@b.example\n"
    )
    world.gateway.reply(text="hi")
    assert world.ask().ok
    assert "A-TEXT" in sent_to_model(world)
    assert SECRET not in sent_to_model(world)


@deep
def test_links_within_the_repository_are_followed(repository: Repository) -> None:
    """A GEMINI.md that is a link to a file in the same repository is sent to the model."""
    world = repository.world
    (repository.cwd.parent / ".git").mkdir()
    (repository.cwd.parent / "AGENTS.md").write_text("A-TEXT-OF-THE-REPOSITORY")
    (repository.cwd / "GEMINI.md").symlink_to("../AGENTS.md")
    world.gateway.reply(text="hi")
    assert world.ask().ok
    assert "A-TEXT-OF-THE-REPOSITORY" in sent_to_model(world)
