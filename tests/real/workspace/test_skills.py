"""Agent skills: geminids finds the same skills as the real CLI, and a run has the right ones."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from geminids.gemini import Gemini, find
from geminids.gemini.skills.add import add_skill
from geminids.gemini.skills.find import Skill, built_in_folder, find_skills
from geminids.gemini.skills.lint_path import lint_path
from geminids.gemini.skills.record import untrusted_skills

pytestmark = pytest.mark.real

EVERY = [pytest.param("0.61.0"), pytest.param("0.54.4", marks=pytest.mark.deep)]
# Front matters of all kinds, well-formed and malformed. Each becomes one skill.
HEADS = {
    "plain": "name: plain\ndescription: some words",
    "quoted": "name: \"quoted\"\ndescription: 'it''s: fine'",
    "escapes": 'name: escapes\ndescription: "a\\tb \\u00e9"',
    "literal": "name: literal\ndescription: |-\n  one\n\n  two",
    "folded": "name: folded\ndescription: >\n  one\n  two\n\n  three",
    "wrapped": "name: wrapped\ndescription: one\n  two\n  three",
    "comment": "name: comment # not this\ndescription: words # nor this",
    "nested": "name: nested\ndescription: d\nmetadata:\n  author: x\n  tags:\n  - a\n  - b: c\nlicense: MIT",
    "flow": "name: flow\ndescription: d\ntags: [a, 'b',\n  {c: d}]",
    "anchor": "name: &n anchor\ndescription: d",
    "colon": "name: colon\ndescription: Use when: asked",
    "colons": "name: colons\ndescription: Use when: asked\n  and then: again\nother: x",
    "twice": "name: twice\nname: twice-again\ndescription: d",
    "broken": "name: broken\ndescription: [a",
    "tabbed": "name:\ttabbed\ndescription:\td",
    "number": "name: 123\ndescription: d",
    "date": "name: date\ndescription: 2024-01-01",
    "truth": "name: truth\ndescription: true",
    "yes": "name: yes\ndescription: no",
    "indented": "  name: indented\n  description: d",
    "unclean": "name: a/b:c*\ndescription: d",
    "spaced": "name: two words\ndescription: d",
    "big-letters": "name: Big-Letters\ndescription: d",
    "unicode": "name: größe\ndescription: 日本 😀",
    "empty": 'name: ""\ndescription: ""',
    "unnamed": "description: d",
    "undescribed": "name: undescribed",
    "null": "name:\ndescription: d",
    "list": "- name: list\n- description: d",
    "blank": "",
    "at-sign": "name: at-sign\ndescription: @home",
    "star": "name: star\ndescription: *.py files",
    "bang": "name: bang\ndescription: !important words",
    "dashes": "name: dashes\ndescription: d\n--- not the end",
}
# Whole SKILL.md files, for errors outside the front matter.
FILES = {
    "windows": b"---\r\nname: windows\r\ndescription: d\r\n---\r\nbody\r\n",
    "bom": b"\xef\xbb\xbf---\nname: bom\ndescription: d\n---\n",
    "latin": b"---\nname: latin\ndescription: caf\xe9\n---\n",
    "no-head": b"# Just text\n",
    "unclosed": b"---\nname: unclosed\ndescription: d\n",
    "at-the-end": b"---\nname: at-the-end\ndescription: d\n---",
    "late": b"\n---\nname: late\ndescription: d\n---\n",
    "nothing": b"",
    ".hidden": b"---\nname: hidden\ndescription: d\n---\n",
    "node_modules": b"---\nname: modules\ndescription: d\n---\n",
}


# Front matters whose name is missed by a reader that only looks at lines or knows only part of
# YAML.
HOSTILE = (
    "name: !!str evil-0\ndescription: d",
    "? name\n: evil-1\n? description\n: d",
    '"na\\x6de": evil-2\ndescription: d',
    "{name: evil-3, description: d}",
    "x: &a {name: evil-4}\n<<: *a\ndescription: d",
    "name: evil-5\n  and-more\ndescription: d",
    "x: &n evil-6\nname: *n\ndescription: d",
    'name: "evil\\u002d7"\ndescription: d',
    "name: >-\n  evil-8\ndescription: d",
    "name: decoy\nname: evil-9\ndescription: d",
    "name: EVIL-10\ndescription: d",
    "name: evil/11\ndescription: d",
    "name: evil-12\u2028\ndescription: d",
    "name: evil-13\rdescription: d",
    "description: |\n  name: decoy\n'name': evil-14",
    "&k name: evil-15\ndescription: d",
    'description: "x\nname: decoy\n"\nname : evil-16',
    "name: evil-17\ndescription: d\nx: " + "y" * 40_000,
)
# Pieces for random front matters. They stay within the YAML that our reader claims to read like
# js-yaml.
PIECES = [
    *(
        "name: ",
        "description: ",
        "x: ",
        "a",
        "foo bar",
        "\n",
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        "'it''s'",
        '"q \\n q"',
    ),
    *(
        "|",
        ">-",
        "|+",
        "\n\n",
        " # c",
        "#",
        ": ",
        ":",
        "[a, b]",
        "{a: b}",
        ",",
        "123",
        "true",
        "~",
        "2024-01-01",
    ),
    *("yes", "é😀", "\\", "x:\n  y: z\n  t: [1,\n  2]\n", "l:\n- a\n- b\n", "license: MIT\n"),
]


def write_skill(folder: Path, head: str | bytes, file: str = "SKILL.md") -> Path:
    """Write a skill file and return its folder. `head` is its front matter, or the whole file as
    bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(
        head if isinstance(head, bytes) else f"---\n{head}\n---\nThe body.\n".encode()
    )
    return folder


def front_matter(name: str, description: str = "d") -> str:
    return f"name: {name}\ndescription: {description}"


def write_all_skills(world: Any) -> None:
    """Write skills into every tier: with shadowed names, links, broken files and extensions."""
    home, work, away = world.home, world.cwd, world.root / "away"
    for name, head in HEADS.items():
        write_skill(home / ".gemini/skills" / name, head)
    for name, data in FILES.items():
        write_skill(home / ".gemini/skills" / name, data)
    user = home / ".gemini/skills"
    write_skill(user, front_matter("at-the-top"))
    write_skill(user / "outer/inner", front_matter("too-deep"))
    write_skill(user / "lower", front_matter("lower-case"), "skill.md")
    (user / "folder/SKILL.md").mkdir(parents=True)
    (user / "linked").symlink_to(write_skill(away / "linked", front_matter("linked")))
    (user / "link-to-nowhere").symlink_to(away / "nowhere")
    (user / "file-link").mkdir()
    (user / "file-link/SKILL.md").symlink_to(
        write_skill(away / "other", front_matter("file-link")) / "SKILL.md"
    )
    (user / "dead-link").mkdir()
    (user / "dead-link/SKILL.md").symlink_to(away / "nowhere.md")
    (user / "a-file").write_text("x")
    for number, tier in enumerate(
        (user, home / ".agents/skills", work / ".gemini/skills", work / ".agents/skills")
    ):
        write_skill(tier / f"only-{number}", front_matter(f"only-{number}"))
        for name in ("everywhere", f"shared-{number}", f"shared-{number - 1}"):
            write_skill(tier / name, front_matter(name, f"of tier {number}"))
    write_skill(user / "skill-creator", front_matter("skill-creator", "mine"))
    write_skill(work / ".gemini/skills/off", front_matter("Switched-Off"))
    write_extension(home, "good")
    write_extension(home, "elsewhere", link=away / "elsewhere")
    write_extension(home, "turned-off")
    write_extension(home, "bad name!")
    write_skill(home / ".gemini/extensions/no-config/skills/lost", front_matter("lost"))
    rules = {"turned-off": {"overrides": ["!/*"]}, "good": {"overrides": ["!/*", f"{work}/*"]}}
    (home / ".gemini/extensions/extension-enablement.json").write_text(json.dumps(rules))
    for folder, description in (("same-b", "b"), ("same-a", "a"), ("same-c", "c")):
        write_skill(user / folder, front_matter("same", description))
    settings = {"skills": {"disabled": ["switched-off", "only-1"]}}
    (home / ".gemini/settings.json").write_text(json.dumps(settings))


def write_extension(home: Path, name: str, link: Path | None = None) -> None:
    folder = home / ".gemini/extensions" / name.replace(" ", "-").strip("!")
    folder.mkdir(parents=True)
    if link is not None:
        origin = {"source": str(link), "type": "link"}
        (folder / ".gemini-extension-install.json").write_text(json.dumps(origin))
    place = link or folder
    write_skill(place / "skills/one", front_matter(f"{folder.name}-skill", "in ${extensionPath}${/}x"))
    write_skill(place / "skills/two", front_matter("everywhere", "of an extension"))
    (place / "gemini-extension.json").write_text(json.dumps({"name": name, "version": "1.0.0"}))


def find_cli(world: Any) -> Gemini:
    return find(world.version, environ={}, places=world.places)


def list_with_cli(world: Any) -> dict[str, tuple[str, str, bool]]:
    """Run `gemini skills list`. Return (description, file, whether it is disabled) by skill
    name."""
    gemini = find_cli(world)
    argv = [*gemini.command(world.places), "skills", "list", "--all"]
    env = {"PATH": os.environ["PATH"], "HOME": str(world.home), "TMPDIR": str(world.tmp)}
    env |= {
        "GEMINI_API_KEY": "none",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "NO_COLOR": "1",
    }
    completed = subprocess.run(argv, cwd=world.cwd, env=env, stdin=-3, capture_output=True, check=True)
    is_on_stdout = b"Discovered Agent Skills" in completed.stdout
    output = (completed.stdout if is_on_stdout else completed.stderr).decode()
    row = re.compile(
        r"^(.*) \[(Enabled|Disabled)\](?: \[Built-in\])?\n  Description: ([\s\S]*?)\n  Location:    (.*)$",
        re.MULTILINE,
    )
    return {
        name: (description, file, state == "Disabled")
        for name, state, description, file in row.findall(output)
    }


def list_with_geminids(world: Any) -> tuple[Skill, ...]:
    gemini = find_cli(world)
    settings = json.loads((world.home / ".gemini/settings.json").read_text())
    folder = built_in_folder(gemini)
    return find_skills(world.cwd, world.home, settings=settings, built_in=folder)


def candidates(skills: tuple[Skill, ...]) -> dict[str, list[Skill]]:
    """Return for each name its skills of the highest tier. The CLI may use any of them."""
    winners = {skill.name: skill for skill in skills if skill.wins}
    return {
        name: [skill for skill in skills if (skill.name, skill.tier) == (name, winner.tier)]
        for name, winner in winners.items()
    }


def assert_same_skills(skills: tuple[Skill, ...], of_cli: dict[str, tuple[str, str, bool]]) -> None:
    """Our list and the CLI's list have the same names, descriptions, files and disabled states."""
    our_candidates = candidates(skills)
    assert set(our_candidates) == set(of_cli)
    for name, entry in of_cli.items():
        assert entry in [
            (skill.description, skill.file, skill.off is not None) for skill in our_candidates[name]
        ]


@pytest.mark.parametrize("version", EVERY)
def test_our_list_is_the_clis_list(make_world: Any, version: str) -> None:
    """Our skill list has the same names, descriptions, files and disabled states as the CLI's list,
    with skills from every tier."""
    world = make_world(version)
    write_all_skills(world)
    skills = list_with_geminids(world)
    of_cli = list_with_cli(world)
    assert_same_skills(skills, of_cli)
    assert len(of_cli) > 25
    tiers = {skill.tier for skill in skills if skill.wins}
    assert {"extension", "user", "user-agents", "workspace", "workspace-agents"} <= tiers
    assert "built-in" in {skill.tier for skill in skills}
    shadowed = [skill for skill in skills if skill.name == "everywhere" and not skill.wins]
    assert shadowed and all(skill.shadowed_by == of_cli["everywhere"][1] for skill in shadowed)


@pytest.mark.deep
def test_random_heads_are_read_as_the_cli_reads_them(make_world: Any) -> None:
    """From 600 random front matters, well-formed and malformed, geminids reads the same names and
    descriptions as the CLI."""
    world = make_world("0.61.0")
    generator = random.Random(11)
    for number in range(600):
        middle = "".join(generator.choice(PIECES) for _ in range(generator.randint(1, 8)))
        heads = (
            f"name: n{number}\ndescription: {middle}",
            f"{middle}\nname: n{number}\ndescription: d",
            middle,
        )
        write_skill(world.home / f".gemini/skills/{number:03}", heads[number % 3])
    (world.home / ".gemini/settings.json").write_text("{}")
    of_cli = list_with_cli(world)
    assert_same_skills(list_with_geminids(world), of_cli)
    assert len(of_cli) > 300


@pytest.mark.parametrize("version", EVERY)
def test_a_name_that_we_are_sure_of_can_be_turned_off(make_world: Any, version: str) -> None:
    """After all skill names that geminids read from an untrusted folder are disabled, the CLI still
    enables only skills whose name geminids had marked as not sure."""
    world = make_world(version)
    heads = (*HOSTILE, *HEADS.values())
    for number, head in enumerate(heads):
        write_skill(world.cwd / f".gemini/skills/{number:02}", head)
    for number, head in enumerate(heads):
        write_skill(world.cwd / f".agents/skills/{number:02}", f"{head}\nlicense: x")
    untrusted = untrusted_skills(world.cwd, world.places, home=world.home)
    settings = {"skills": {"disabled": [skill.name for skill in untrusted]}}
    (world.home / ".gemini").mkdir(exist_ok=True)
    (world.home / ".gemini/settings.json").write_text(json.dumps(settings))
    enabled = {
        file
        for _, file, is_disabled in list_with_cli(world).values()
        if not is_disabled and file.startswith(str(world.cwd))
    }
    unsure = {skill.file for skill in untrusted if not skill.sure}
    assert enabled - unsure == set()
    assert enabled  # some names cannot be disabled by what geminids read
    assert len(untrusted) > len(unsure) > 10  # both kinds occur


@pytest.mark.parametrize("version", EVERY)
def test_lint_reports_exactly_the_unseen_skills(make_world: Any, version: str) -> None:
    """Lint reports no listed skill as unseen. Each skill file that the CLI does not list is
    reported as unseen or loses to another skill with the same name."""
    world = make_world(version)
    write_all_skills(world)
    folder = world.home / ".gemini/skills"
    problems = lint_path(str(folder))
    hidden = {problem.file for problem in problems if problem.unseen}
    skills = list_with_geminids(world)
    groups = candidates(skills).values()
    shadowed = {skill.file for skill in skills} - {skill.file for group in groups for skill in group}
    contested = {skill.file for group in groups if len(group) > 1 for skill in group}
    seen = {file for _, file, _ in list_with_cli(world).values() if file.startswith(f"{folder}/")}
    files = {str(file) for file in folder.rglob("*") if file.name.lower() == "skill.md" and not file.is_dir()}
    files |= {str(folder / "linked/SKILL.md")}  # behind a link
    assert hidden & seen == set()
    assert files - hidden - seen - contested <= shadowed
    assert {problem.file for problem in problems if problem.code == "shadowed"} <= contested
    assert len(hidden) > 10


@pytest.mark.parametrize("version", EVERY)
def test_skills_of_a_run(make_world: Any, version: str) -> None:
    """The model is offered the skills of the run and of the user. A skill of the run replaces a
    user's skill with the same name. The model receives a skill's body when it activates the
    skill."""
    world = make_world(version)
    run_skill = write_skill(
        world.root / "brought/tide-table", front_matter("tide-table", "Knows the tides of Aldebaran.")
    )
    (run_skill / "SKILL.md").write_text((run_skill / "SKILL.md").read_text() + "High water is at 7:77.\n")
    write_skill(world.home / ".gemini/skills/mine", front_matter("mine", "My own one."))
    # Two skills of the user with the same name, in the two tiers of the user.
    write_skill(world.home / ".gemini/skills/a-tide", front_matter("tide-table", "An older one."))
    write_skill(world.home / ".agents/skills/tide-table", front_matter("tide-table", "Another one."))
    world.gateway.when("hello", calls=[("activate_skill", {"name": "tide-table"})])
    world.gateway.when("hello", text="Done.")
    result = world.ask(skills=(str(run_skill),), approval="yolo")
    assert result.ok, result.failure
    system = json.dumps(world.gateway.requests[0].body["systemInstruction"])
    assert "Knows the tides of Aldebaran." in system and "My own one." in system
    assert "An older one." not in system and "Another one." not in system
    answer = json.dumps(world.gateway.requests[-1].tool_results)
    assert "High water is at 7:77." in answer and "<activated_skill" in answer


@pytest.mark.parametrize("version", EVERY)
def test_an_added_skill_is_in_a_run(make_world: Any, version: str) -> None:
    """A run in an untrusted folder has a skill that the user added to that folder with
    `add_skill`."""
    world = make_world(version)
    source = write_skill(world.root / "source", front_matter("tide-table", "Knows the tides."))
    (source / "SKILL.md").write_text((source / "SKILL.md").read_text() + "High water is at 7:77.\n")
    add_skill(str(source), str(world.cwd), world.places)
    world.gateway.when("hello", calls=[("activate_skill", {"name": "tide-table"})])
    world.gateway.when("hello", text="Done.")
    assert world.ask(approval="yolo").ok
    assert "Knows the tides." in json.dumps(world.gateway.requests[0].body["systemInstruction"])
    assert "High water is at 7:77." in json.dumps(world.gateway.requests[-1].tool_results)


@pytest.mark.deep
def test_a_run_without_skills_has_none_of_another_run(world: Any) -> None:
    """A skill that was passed to one run is not offered in the next run."""
    run_skill = write_skill(world.root / "brought/tide-table", front_matter("tide-table", "Knows the tides."))
    assert world.ask(skills=(str(run_skill),)).ok
    assert world.ask().ok
    systems = [json.dumps(request.body.get("systemInstruction")) for request in world.gateway.requests]
    assert ["Knows the tides." in one for one in systems] == [True, False]
