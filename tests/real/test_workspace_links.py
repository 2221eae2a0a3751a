"""Links out of the folder: what lies behind them is neither read nor written, and in no request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from geminids import ToolFinished
from hostile import SECRET, Repository, said_to_the_model

pytestmark = pytest.mark.real

deep = pytest.mark.deep


@pytest.fixture
def repository(world: Any) -> Repository:
    return Repository(world).plant("links")


def test_tools_do_not_go_through_a_link(repository: Repository) -> None:
    """`auto_edit` may read and write in the folder; through a link that leads out of it, it may not."""
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
    done = [event.status for event in events if isinstance(event, ToolFinished)]
    assert done[:7] == ["failed"] * 7
    assert (done[-1], (repository.cwd / "inside.txt").read_text()) == ("ok", "fine")
    assert SECRET not in said_to_the_model(world)
    assert {file.name: file.read_text() for file in repository.outside.iterdir()} == {"secret.txt": SECRET}


def _itself(repository: Repository) -> None:
    (repository.cwd / "GEMINI.md").symlink_to(repository.outside / "secret.txt")


def _above(repository: Repository) -> None:
    (repository.cwd.parent / ".git").mkdir()
    (repository.cwd.parent / "GEMINI.md").symlink_to("/etc/hostname")


def _below(repository: Repository) -> None:
    repository.write("src/deep/x.txt", "fine")
    (repository.cwd / "src/deep/GEMINI.md").symlink_to(repository.outside / "secret.txt")


def _by_import(repository: Repository) -> None:
    repository.write("GEMINI.md", "Read this too: @./more.md\n")
    repository.write("more.md", "@./link.txt\n")


def _by_import_below(repository: Repository) -> None:
    repository.write("src/GEMINI.md", "@../linked/secret.txt\n")


@deep
@pytest.mark.parametrize("plant", [_itself, _above, _below, _by_import, _by_import_below])
@pytest.mark.parametrize("release", ["0.61.0"], indirect=True)
def test_a_text_that_leads_out_is_refused(
    repository: Repository, plant: Callable[[Repository], None]
) -> None:
    """A GEMINI.md that is a link to elsewhere, or brings in such a link by `@path`: no run, and nothing is sent."""
    world = repository.world
    plant(repository)
    result = world.ask()
    assert result.failure.kind == "config"
    assert "is a link to a file outside the folder" in result.failure.message
    assert "trust_workspace" in result.failure.hint
    assert world.gateway.requests == []


@deep
def test_trusted_the_text_is_sent(repository: Repository) -> None:
    """The other side: with `trust_workspace` what lies behind a GEMINI.md that is a link reaches the model."""
    world = repository.world
    _itself(repository)
    world.gateway.reply(text="hi")
    assert world.ask(trust_workspace=True).ok
    assert SECRET in said_to_the_model(world)


@deep
def test_a_text_elsewhere_is_not_brought_in(repository: Repository) -> None:
    """`@../outside` and `@/absolute` in a GEMINI.md: the CLI itself does not follow them."""
    world = repository.world
    absolute = repository.outside / "secret.txt"
    repository.write(
        "GEMINI.md", f"A-TEXT\n@../outside/secret.txt\n@{absolute}\n@~/x @nowhere.md a@b.example\n"
    )
    world.gateway.reply(text="hi")
    assert world.ask().ok
    assert "A-TEXT" in said_to_the_model(world)
    assert SECRET not in said_to_the_model(world)


@deep
def test_links_within_the_folder_are_fine(repository: Repository) -> None:
    """A GEMINI.md that is a link to a file of the same repository is read as ever."""
    world = repository.world
    (repository.cwd.parent / ".git").mkdir()
    (repository.cwd.parent / "AGENTS.md").write_text("A-TEXT-OF-THE-REPOSITORY")
    (repository.cwd / "GEMINI.md").symlink_to("../AGENTS.md")
    world.gateway.reply(text="hi")
    assert world.ask().ok
    assert "A-TEXT-OF-THE-REPOSITORY" in said_to_the_model(world)
