"""Write the public surface of geminids as JSON: all names of commands, settings, events and Python
objects.

    python tests/shared/public_surface.py PATH_OF_A_CHECKOUT > tests/recordings/public_surface.json

Each section maps a name to its description (a type, a default). `tests/test_public_surface.py`
compares the recorded surface with the current one. The Python names are those of `geminids` and
those that the documents import.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

Surface = dict[str, dict[str, str]]

# The environment variables of geminids, and those of other programs that it reads. Variables that
# geminids passes between its own processes are not public.
_VARIABLE = re.compile(
    r"(?!GEMINI_CLI_GEMINIDS_)(GEMINIDS|GEMINI|GOOGLE|GCE|CLOUDSDK|PAPERCLIP|XDG)_[A-Z_]*[A-Z]|CODE_ASSIST_ENDPOINT|"
    r"(NO|HTTPS?|ALL)_PROXY|(no|https?|all)_proxy|SSL_CERT_(FILE|DIR)|NODE_EXTRA_CA_CERTS|NO_COLOR|NO_GCE_CHECK"
)
_ERROR_CODE = re.compile(r"GEMINI_\w+_ERROR|GEMINI_TIMED_OUT")  # looks like a variable
_PROTOCOLS = ("__aenter__", "__aiter__", "__await__", "__call__", "__enter__", "__iter__")
_IMPORT = re.compile(r"^(?:>>> )?from (geminids[\w.]*) import (\([^)]*\)|[^\n(]+)", re.MULTILINE)
_MENTION = re.compile(r"\bgeminids(?:\.\w+)+")
_EXIT_CODES = re.compile(r"Exit codes?[^:]*:\s*([^.]+)\.")


def surface(root: Path, names: Iterable[str]) -> Surface:
    """Return the public surface of the checkout at `root`, from which `geminids` must be imported.

    `names` are the dotted names of the public Python objects."""
    return {
        "commands": dict(_commands()),
        "configuration": dict(_configuration()),
        "endings": dict(_endings()),
        "events": dict(_events()),
        "package": dict(_package(root)),
        "python": dict(_python(names)),
        "variables": dict.fromkeys(_variables(root), ""),
    }


def documented_names(root: Path) -> list[str]:
    """Return the dotted names of all public Python objects.

    These are all names of `geminids.__all__`, and those that README and docs import or mention."""
    import geminids

    text = _documents(root)
    names = {f"geminids.{name}" for name in geminids.__all__}
    modules = {"geminids.adapters", "geminids.config", "geminids.sessions"}
    for module, imported in _IMPORT.findall(text):
        imported_names = {f"{module}.{name}" for name in re.findall(r"\w+", imported)}
        modules |= {name for name in imported_names if inspect.ismodule(resolve(name))}
        names |= imported_names
        if hasattr(import_module(module), "__path__"):
            modules.add(module)
    names |= {f"{module}.{name}" for module in modules for name in getattr(resolve(module), "__all__", ())}
    names |= set(_MENTION.findall(text))
    return sorted(name for name in names if not inspect.ismodule(resolve(name)) and resolve(name) is not None)


def resolve(name: str) -> Any:
    """Return the object with this dotted name, or None if there is none."""
    module, _, attribute = name.rpartition(".")
    try:
        return (
            getattr(resolve(module), attribute, None) or import_module(name)
            if module
            else import_module(name)
        )
    except ImportError:
        return None


def _documents(root: Path) -> str:
    pages = [root / "README.md", *sorted(root.glob("docs/**/*.md"))]
    return "\n".join(page.read_text() for page in pages if page.name != "architecture.md")


def without_undocumented(python: dict[str, str], root: Path) -> dict[str, str]:
    """Return the Python names without those members and constructor parameters that no document
    mentions."""
    text = _documents(root)
    words, calls = set(re.findall(r"[.`](\w+)", text)), set(re.findall(r"(\w+)\(", text))

    def is_documented(name: str) -> bool:
        path, is_parameter, _ = name.partition("(")
        own_name = path.rpartition(".")[2]
        if python[path] == "class":
            return not is_parameter or own_name in calls
        return python[path] != "member" or own_name in words or own_name in _PROTOCOLS

    return {name: description for name, description in python.items() if is_documented(name)}


def _commands() -> Iterator[tuple[str, str]]:
    import click

    from geminids.cli import app

    def walk(words: str, command: click.Command) -> Iterator[tuple[str, str]]:
        yield words, "command"
        context = click.Context(command, info_name=words)
        for param in command.get_params(context):
            kind = "argument" if isinstance(param, click.Argument) else "value"
            if isinstance(param, click.Option) and (param.is_flag or param.count):
                kind = "flag"
            if param.multiple or param.nargs != 1:
                kind += ", repeatable"
            spellings = (
                [*param.opts, *param.secondary_opts]
                if param.param_type_name == "option"
                else [param.human_readable_name]
            )
            for spelling in spellings:
                yield f"{words} {spelling}", kind
            if isinstance(param.type, click.Choice):
                for choice in param.type.choices:
                    yield f"{words} {spellings[0]}={choice}", "choice"
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from walk(f"{words} {name}", inner)

    yield from walk("geminids", app)


def _configuration() -> Iterator[tuple[str, str]]:
    from geminids.options.flags import fields, server_fields

    yield "trusted_projects", "list"
    for field in fields():
        yield (
            f"gemini.{field.name}",
            f"{field.kind}, {field.reach}, {field.flag}, {field.env}, default {_plain(field.default)}",
        )
        for choice in field.choices:
            yield f"gemini.{field.name}={choice}", "choice"
    for field in server_fields():
        yield f"gemini.mcp_servers.NAME.{field.name}", field.kind


def _endings() -> Iterator[tuple[str, str]]:
    import click

    from geminids.cli import app
    from geminids.cli.shared.result import exit_code
    from geminids.events.model import Finished
    from geminids.outcome import EXIT_CODES, FAILURE_KINDS, OUTCOMES, Failure
    from geminids.run.result import Result

    for outcome in OUTCOMES:
        yield outcome, f"exit code {EXIT_CODES[outcome]}"
    for kind in FAILURE_KINDS:
        failure = Failure(kind=kind, message="", retryable=False, hint="")  # type: ignore[arg-type]
        defaults = dict.fromkeys(Finished.__struct_fields__) | {"outcome": "failed", "failure": failure}
        finished = Finished(**defaults)  # type: ignore[arg-type]
        yield f"failed({kind})", f"exit code {exit_code(Result.of(finished))}"
    assert isinstance(app, click.Group)
    command = app.get_command(click.Context(app), "run")
    assert command is not None
    for text in _EXIT_CODES.findall(" ".join(f"{command.help} {command.epilog}".split())):
        for code in re.findall(r"\b\d+\b", text):
            yield f"exit code {code}", "in geminids run --help"


def _events() -> Iterator[tuple[str, str]]:
    import msgspec

    import geminids

    for event in get_args(geminids.AnyEvent):
        config = event.__struct_config__
        yield f"{config.tag_field}={config.tag}", event.__name__
        for field in msgspec.structs.fields(event):
            yield f"{config.tag}.{field.encode_name}", _type_name(field.type)
            yield from _choice_entries(f"{config.tag}.{field.encode_name}", field.type)


def _package(root: Path) -> Iterator[tuple[str, str]]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    yield f"Python {project['requires-python']}", ""
    for program in project["scripts"]:
        yield f"program {program}", ""
    for extra in project["optional-dependencies"]:
        yield f"{project['name']}[{extra}]", ""
    for file in sorted((root / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            decorators = getattr(node, "decorator_list", ())
            if any(ast.unparse(decorator).startswith("pytest.fixture") for decorator in decorators):
                yield f"pytest fixture {node.name}", ""  # type: ignore[attr-defined]


def _python(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    import msgspec

    for name in names:
        value = resolve(name)
        if value is None:
            continue
        if not inspect.isclass(value):
            yield name, "function" if inspect.isroutine(value) else "value"
            if inspect.isroutine(value):
                yield from _parameters(name, value)
            continue
        yield name, "class"
        if issubclass(value, msgspec.Struct):
            yield from _fields(name, value)
        elif not issubclass(value, Exception):
            yield from _parameters(name, value)
        for member in dir(value):
            static_member = inspect.getattr_static(value, member)
            inherited = (*getattr(value, "__struct_fields__", ()), *dir(Exception), *dir(tuple))
            if (member.startswith("_") and member not in _PROTOCOLS) or member in inherited:
                continue
            yield f"{name}.{member}", "member"
            if inspect.isroutine(getattr(value, member)) and not isinstance(static_member, property):
                yield from _parameters(f"{name}.{member}", getattr(value, member))


def _fields(name: str, struct: Any) -> Iterator[tuple[str, str]]:
    import msgspec

    try:
        fields = msgspec.structs.fields(struct)
    except NameError:  # a field's type is imported for type checking only
        for field_name in struct.__struct_fields__:
            yield f"{name}.{field_name}", str(inspect.get_annotations(struct)[field_name])
        return
    for field in fields:
        default = "" if field.default is msgspec.NODEFAULT else f" = {_plain(field.default)}"
        if field.default_factory is not msgspec.NODEFAULT:
            default = f" = {_plain(field.default_factory())}"
        yield f"{name}.{field.name}", _type_name(field.type) + default
        yield from _choice_entries(f"{name}.{field.name}", field.type)


def _parameters(name: str, value: Any) -> Iterator[tuple[str, str]]:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):  # not callable, or written in C
        return
    for parameter in parameters:
        if parameter.name != "self":
            default = parameter.default
            yield f"{name}({parameter.name})", "" if default is parameter.empty else f"= {_plain(default)}"


def _choice_entries(name: str, kind: Any) -> Iterator[tuple[str, str]]:
    for choice in dict.fromkeys(_choices(kind)):
        yield f"{name}={choice}", "choice"


def _type_name(kind: Any) -> str:
    if isinstance(kind, TypeVar) or kind is Any:
        return "Any"
    origin = get_origin(kind)
    if origin is Annotated:
        return _type_name(get_args(kind)[0])
    if origin is Literal:
        return "choice"
    if origin in (Union, types.UnionType):
        return " | ".join(map(_type_name, get_args(kind)))
    name = "None" if kind is types.NoneType else getattr(origin or kind, "__name__", str(kind))
    inner = ", ".join("..." if one is ... else _type_name(one) for one in get_args(kind))
    return f"{name}[{inner}]" if inner else name


def _choices(kind: Any) -> Iterator[Any]:
    if get_origin(kind) is Literal:
        yield from get_args(kind)
    else:
        for inner in get_args(kind):
            yield from _choices(inner)


def _plain(value: Any) -> str:
    """Return the text of a default value, without memory addresses."""
    return re.sub(r" at 0x\w+", "", repr(value))


def _variables(root: Path) -> list[str]:
    """Return all environment variables in the source code, including those of options and flags."""
    from geminids.options.flags import fields

    names = {field.env for field in fields() if field.env}
    for file in sorted((root / "src" / "geminids").rglob("*.py")):
        tree = ast.parse(file.read_bytes())
        constants = {
            node.targets[0].id
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        texts = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        names |= {
            text
            for text in texts - constants
            if _VARIABLE.fullmatch(text) and not _ERROR_CODE.fullmatch(text)
        }
    return sorted(names)


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(root / "src"))
    import geminids

    assert Path(geminids.__file__).is_relative_to(root), f"{geminids.__file__} is not of {root}"
    recorded = surface(root, documented_names(root))
    recorded["python"] = without_undocumented(recorded["python"], root)
    log = ["git", "-C", str(root), "log", "-1", "--format=%h %s"]
    commit = subprocess.run(log, capture_output=True, text=True, check=True).stdout.strip()
    print(json.dumps({"commit": commit, "surface": recorded}, indent=1, sort_keys=True, ensure_ascii=False))


if __name__ == "__main__":
    main()
