"""Agent skills: what we say that the CLI sees is what it sees."""

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
from geminids.gemini.skills.places import lint_path
from geminids.gemini.skills.record import untrusted_skills

pytestmark = pytest.mark.real

EVERY = [pytest.param("0.61.0"), pytest.param("0.54.4", marks=pytest.mark.deep)]
# Front matters of all kinds, well-formed and not; each becomes a skill of its own.
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
# Whole files, for what is wrong around the front matter.
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


# Names that are hidden from a reader that looks at lines alone, or that knows half of YAML.
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
# Pieces that random heads are made of, within what we say that we read as js-yaml does.
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


def skill(folder: Path, head: str | bytes, file: str = "SKILL.md") -> Path:
    """Write a skill; `head` is its front matter, or the whole file as bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(
        head if isinstance(head, bytes) else f"---\n{head}\n---\nThe body.\n".encode()
    )
    return folder


def named(name: str, what: str = "d") -> str:
    return f"name: {name}\ndescription: {what}"


def furnish(world: Any) -> None:
    """Every tier, with shadowing, links, broken files and extensions of all kinds."""
    home, work, away = world.home, world.cwd, world.root / "away"
    for name, head in HEADS.items():
        skill(home / ".gemini/skills" / name, head)
    for name, data in FILES.items():
        skill(home / ".gemini/skills" / name, data)
    user = home / ".gemini/skills"
    skill(user, named("at-the-top"))
    skill(user / "outer/inner", named("too-deep"))
    skill(user / "lower", named("lower-case"), "skill.md")
    (user / "folder/SKILL.md").mkdir(parents=True)
    (user / "linked").symlink_to(skill(away / "linked", named("linked")))
    (user / "link-to-nowhere").symlink_to(away / "nowhere")
    (user / "file-link").mkdir()
    (user / "file-link/SKILL.md").symlink_to(skill(away / "other", named("file-link")) / "SKILL.md")
    (user / "dead-link").mkdir()
    (user / "dead-link/SKILL.md").symlink_to(away / "nowhere.md")
    (user / "a-file").write_text("x")
    for number, tier in enumerate(
        (user, home / ".agents/skills", work / ".gemini/skills", work / ".agents/skills")
    ):
        skill(tier / f"only-{number}", named(f"only-{number}"))
        for name in ("everywhere", f"shared-{number}", f"shared-{number - 1}"):
            skill(tier / name, named(name, f"of tier {number}"))
    skill(user / "skill-creator", named("skill-creator", "mine"))
    skill(work / ".gemini/skills/off", named("Switched-Off"))
    extend(home, "good")
    extend(home, "elsewhere", link=away / "elsewhere")
    extend(home, "turned-off")
    extend(home, "bad name!")
    skill(home / ".gemini/extensions/no-config/skills/lost", named("lost"))
    rules = {"turned-off": {"overrides": ["!/*"]}, "good": {"overrides": ["!/*", f"{work}/*"]}}
    (home / ".gemini/extensions/extension-enablement.json").write_text(json.dumps(rules))
    for folder, what in (("same-b", "b"), ("same-a", "a"), ("same-c", "c")):
        skill(user / folder, named("same", what))
    settings = {"skills": {"disabled": ["switched-off", "only-1"]}}
    (home / ".gemini/settings.json").write_text(json.dumps(settings))


def extend(home: Path, name: str, link: Path | None = None) -> None:
    folder = home / ".gemini/extensions" / name.replace(" ", "-").strip("!")
    folder.mkdir(parents=True)
    if link is not None:
        origin = {"source": str(link), "type": "link"}
        (folder / ".gemini-extension-install.json").write_text(json.dumps(origin))
    place = link or folder
    skill(place / "skills/one", named(f"{folder.name}-skill", "in ${extensionPath}${/}x"))
    skill(place / "skills/two", named("everywhere", "of an extension"))
    (place / "gemini-extension.json").write_text(json.dumps({"name": name, "version": "1.0.0"}))


def the_cli(world: Any) -> Gemini:
    return find(world.version, environ={}, places=world.places)


def listed(world: Any) -> dict[str, tuple[str, str, bool]]:
    """What `gemini skills list` says: (description, file, is off) by name."""
    gemini = the_cli(world)
    argv = [*gemini.command(world.places), "skills", "list", "--all"]
    env = {"PATH": os.environ["PATH"], "HOME": str(world.home), "TMPDIR": str(world.tmp)}
    env |= {
        "GEMINI_API_KEY": "none",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "NO_COLOR": "1",
    }
    ran = subprocess.run(argv, cwd=world.cwd, env=env, stdin=-3, capture_output=True, check=True)
    said = ran.stdout.decode() if b"Discovered Agent Skills" in ran.stdout else ran.stderr.decode()
    row = re.compile(
        r"^(.*) \[(Enabled|Disabled)\](?: \[Built-in\])?\n  Description: ([\s\S]*?)\n  Location:    (.*)$",
        re.MULTILINE,
    )
    return {name: (what, file, state == "Disabled") for name, state, what, file in row.findall(said)}


def ours(world: Any) -> tuple[Skill, ...]:
    gemini = the_cli(world)
    settings = json.loads((world.home / ".gemini/settings.json").read_text())
    folder = built_in_folder(gemini)
    return find_skills(world.cwd, world.home, settings=settings, built_in=folder)


def rivals(found: tuple[Skill, ...]) -> dict[str, list[Skill]]:
    """By name, those of the highest tier: between two of one tier, the CLI takes either."""
    winners = {skill.name: skill for skill in found if skill.wins}
    return {name: [s for s in found if (s.name, s.tier) == (name, one.tier)] for name, one in winners.items()}


def assert_agreed(found: tuple[Skill, ...], theirs: dict[str, tuple[str, str, bool]]) -> None:
    """The same names; and to each the same description, file and switch."""
    mine = rivals(found)
    assert set(mine) == set(theirs)
    for name, said in theirs.items():
        assert said in [(one.description, one.file, one.off is not None) for one in mine[name]]


@pytest.mark.parametrize("version", EVERY)
def test_our_list_is_the_clis_list(make_world: Any, version: str) -> None:
    """Name by name, with description, file and switch; and each of the tiers has its part in it."""
    world = make_world(version)
    furnish(world)
    found = ours(world)
    theirs = listed(world)
    assert_agreed(found, theirs)
    assert len(theirs) > 25
    tiers = {skill.tier for skill in found if skill.wins}
    assert {"extension", "user", "user-agents", "workspace", "workspace-agents"} <= tiers
    assert "built-in" in {skill.tier for skill in found}
    shadowed = [skill for skill in found if skill.name == "everywhere" and not skill.wins]
    assert shadowed and all(skill.shadowed_by == theirs["everywhere"][1] for skill in shadowed)


@pytest.mark.deep
def test_random_heads_are_read_as_the_cli_reads_them(make_world: Any) -> None:
    """Of hundreds of front matters, well-formed and not, the names and descriptions are the CLI's."""
    world = make_world("0.61.0")
    chance = random.Random(11)
    for number in range(600):
        middle = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 8)))
        heads = (
            f"name: n{number}\ndescription: {middle}",
            f"{middle}\nname: n{number}\ndescription: d",
            middle,
        )
        skill(world.home / f".gemini/skills/{number:03}", heads[number % 3])
    (world.home / ".gemini/settings.json").write_text("{}")
    theirs = listed(world)
    assert_agreed(ours(world), theirs)
    assert len(theirs) > 300


@pytest.mark.parametrize("version", EVERY)
def test_a_name_that_we_are_sure_of_can_be_turned_off(make_world: Any, version: str) -> None:
    """What the CLI still has of a hostile folder, after all names that we read are disabled, we did not call sure."""
    world = make_world(version)
    heads = (*HOSTILE, *HEADS.values())
    for number, head in enumerate(heads):
        skill(world.cwd / f".gemini/skills/{number:02}", head)
    for number, head in enumerate(heads):
        skill(world.cwd / f".agents/skills/{number:02}", f"{head}\nlicense: x")
    strange = untrusted_skills(world.cwd, world.places, home=world.home)
    settings = {"skills": {"disabled": [skill.name for skill in strange]}}
    (world.home / ".gemini").mkdir(exist_ok=True)
    (world.home / ".gemini/settings.json").write_text(json.dumps(settings))
    left = {file for _, file, off in listed(world).values() if not off and file.startswith(str(world.cwd))}
    unsure = {skill.file for skill in strange if not skill.sure}
    assert left - unsure == set()
    assert left  # there is no other way to turn these off
    assert len(strange) > len(unsure) > 10  # both kinds are there


@pytest.mark.parametrize("version", EVERY)
def test_what_lint_calls_unseen_is_unseen(make_world: Any, version: str) -> None:
    """Each skill of which lint says so is not on the CLI's list, and each of which it does not is."""
    world = make_world(version)
    furnish(world)
    folder = world.home / ".gemini/skills"
    found = lint_path(str(folder))
    hidden = {one.file for one in found if one.unseen}
    mine = ours(world)
    elsewhere = {skill.file for skill in mine} - {one.file for same in rivals(mine).values() for one in same}
    contested = {one.file for same in rivals(mine).values() if len(same) > 1 for one in same}
    seen = {file for _, file, _ in listed(world).values() if file.startswith(f"{folder}/")}
    files = {str(file) for file in folder.rglob("*") if file.name.lower() == "skill.md" and not file.is_dir()}
    files |= {str(folder / "linked/SKILL.md")}  # behind a link
    assert hidden & seen == set()
    assert files - hidden - seen - contested <= elsewhere
    assert {one.file for one in found if one.code == "shadowed"} <= contested
    assert len(hidden) > 10


@pytest.mark.parametrize("version", EVERY)
def test_skills_of_a_run(make_world: Any, version: str) -> None:
    """A skill given to a run is told to the model, and its body comes when it is activated; so are the user's own."""
    world = make_world(version)
    brought = skill(world.root / "brought/tide-table", named("tide-table", "Knows the tides of Aldebaran."))
    (brought / "SKILL.md").write_text((brought / "SKILL.md").read_text() + "High water is at 7:77.\n")
    skill(world.home / ".gemini/skills/mine", named("mine", "My own one."))
    # Both are the user's own of the same name, one of them in the higher of the two tiers.
    skill(world.home / ".gemini/skills/a-tide", named("tide-table", "An older one."))
    skill(world.home / ".agents/skills/tide-table", named("tide-table", "Another one."))
    world.gateway.when("hello", calls=[("activate_skill", {"name": "tide-table"})])
    world.gateway.when("hello", text="Done.")
    result = world.ask(skills=(str(brought),), approval="yolo")
    assert result.ok, result.failure
    told = json.dumps(world.gateway.requests[0].body["systemInstruction"])
    assert "Knows the tides of Aldebaran." in told and "My own one." in told
    assert "An older one." not in told and "Another one." not in told
    answer = json.dumps(world.gateway.requests[-1].tool_results)
    assert "High water is at 7:77." in answer and "<activated_skill" in answer


@pytest.mark.parametrize("version", EVERY)
def test_an_added_skill_is_in_a_run(make_world: Any, version: str) -> None:
    """A run that does not trust its folder has the skill that its owner added there."""
    world = make_world(version)
    source = skill(world.root / "source", named("tide-table", "Knows the tides."))
    (source / "SKILL.md").write_text((source / "SKILL.md").read_text() + "High water is at 7:77.\n")
    add_skill(str(source), str(world.cwd), world.places)
    world.gateway.when("hello", calls=[("activate_skill", {"name": "tide-table"})])
    world.gateway.when("hello", text="Done.")
    assert world.ask(approval="yolo").ok
    assert "Knows the tides." in json.dumps(world.gateway.requests[0].body["systemInstruction"])
    assert "High water is at 7:77." in json.dumps(world.gateway.requests[-1].tool_results)


@pytest.mark.deep
def test_a_run_without_skills_has_none_of_another_run(world: Any) -> None:
    """What was given to one run is not in the next."""
    brought = skill(world.root / "brought/tide-table", named("tide-table", "Knows the tides."))
    assert world.ask(skills=(str(brought),)).ok
    assert world.ask().ok
    told = [json.dumps(request.body.get("systemInstruction")) for request in world.gateway.requests]
    assert ["Knows the tides." in one for one in told] == [True, False]
