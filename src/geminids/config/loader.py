"""Load options from flags, environment, project file and user file, in this precedence."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from geminids.config.fields import Field, fields
from geminids.config.files import (
    PROJECT_FILE,
    SECTION,
    ConfigFile,
    FileProblem,
    find_project_file,
    read_config,
    user_file,
)
from geminids.config.form import NOT_GIVEN, field_named, flatten, nested, read_value
from geminids.config.project_limits import ADDED_UP, ONLY_TOOLS, is_inside, restrain
from geminids.errors import OptionsError
from geminids.options import Options, make_options

__all__ = ["TRUSTED", "Loaded", "from_folder", "load_options", "trusts"]

TRUSTED = "trusted_projects"
_WORDS = ("user", "isolated")


class Loaded(msgspec.Struct, frozen=True):
    """The options, where each non-default value comes from, and warnings.

    The keys of `origins` are fields (`model`, `permissions.shell`) and entries of mappings
    (`env.NAME`).
    """

    options: Options
    origins: dict[str, str]
    warnings: tuple[str, ...] = ()


class _Layer(msgspec.Struct):
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}


def load_options(
    cwd: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    config: bool = True,
) -> Loaded:
    """Load options as `geminids run` does.

    Raises one `OptionsError` with every problem and its origin.

    `flags` are fields of the options and override everything else. `config=False` reads no files.
    The search for the project's file starts in `cwd`, or in the `cwd` of the options, and goes
    upwards.
    """
    environ = os.environ if environ is None else environ
    loading = _Loading(environ)
    by_flags = loading.of_form(flags or {})
    if cwd is not None:
        by_flags.values.setdefault("cwd", os.fspath(cwd))
        by_flags.origins.setdefault("cwd", "flag --cwd")
    by_env = loading.of_environment()
    if config:
        user = loading.read(user_file(environ), needed=bool(environ.get("GEMINIDS_CONFIG")))
        if user is not None:
            loading.put(loading.of_file(user, "user"))
        layers = (by_flags, by_env, loading.merged)
        folder = next((layer.values["cwd"] for layer in layers if "cwd" in layer.values), ".")
        loading.put_project(str(folder), user)
    loading.put(by_env)
    loading.put(by_flags)
    return loading.finish()


def trusts(user: ConfigFile | None, folder: str) -> bool:
    """Whether the user's file lists a project's folder as trusted."""
    listed = user.values.get(TRUSTED, ()) if user else ()
    real = os.path.realpath(folder)
    return isinstance(listed, list) and any(
        isinstance(entry, str) and os.path.realpath(os.path.expanduser(entry)) == real for entry in listed
    )


class _Loading:
    """Merges layers, the lowest precedence first, and collects all problems."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.merged = _Layer()
        self.problems: list[tuple[str, str]] = []
        self.warnings: list[str] = []

    def of_form(self, flags: Mapping[str, object]) -> _Layer:
        flat, problems = flatten(flags)
        self.problems += problems
        return self._layer(flat, {name: f"flag {field_named(name).flag or ''}".strip() for name in flat})

    def of_environment(self) -> _Layer:
        given = {
            field.name: (field, text)
            for field in fields()
            if field.env is not None and (text := self.environ.get(field.env))
        }
        values = {}
        for name, (field, text) in given.items():
            value = read_value(field, text, commas=True)
            if value is not NOT_GIVEN:
                values[name] = value
        return _Layer(values, {name: f"env {given[name][0].env}" for name in values})

    def read(self, path: str, *, needed: bool = False) -> ConfigFile | None:
        try:
            file = read_config(path)
        except FileProblem as problem:
            self.problems.append((problem.where, problem.problem))
            return None
        if file is None and needed:
            self.problems.append((path, "does not exist, but GEMINIDS_CONFIG names it"))
        return file

    def of_file(self, file: ConfigFile, kind: str) -> _Layer:
        known = (SECTION, TRUSTED) if kind == "user" else (SECTION,)
        for key in file.values:
            if key not in known:
                self.problems.append((file.where(key), _no_such_section(key)))
        if not _are_texts(file.values.get(TRUSTED, [])):
            self.problems.append((file.where(TRUSTED), f"{TRUSTED} is not a list of folders"))
        section = file.values.get(SECTION, {})
        if not isinstance(section, dict):
            self.problems.append((file.where(SECTION), f"{SECTION} is not a table"))
            return _Layer()
        flat, problems = flatten(section)
        self.problems += [
            (file.where(SECTION, *name.split(".")), f"{name}: {problem}") for name, problem in problems
        ]
        flat = {name: from_folder(field_named(name), raw, file.folder) for name, raw in flat.items()}
        return self._layer(flat, {}, lambda name: f"{kind} {file.where(SECTION, *name.split('.'))}")

    def _layer(self, flat: Mapping[str, Any], origins: Mapping[str, str], where: Any = None) -> _Layer:
        layer = _Layer()
        for name, raw in flat.items():
            origin = where(name) if where else origins[name]
            try:
                # An empty flag is an error; an empty value in a file means "not given".
                value = raw if raw == "" and where is None else read_value(field_named(name), raw)
            except ValueError as error:
                self.problems.append((name, f"{error} ({origin})"))
                continue
            if value is NOT_GIVEN:
                continue
            layer.values[name] = value
            layer.origins[name] = origin
            if isinstance(value, dict):
                for key in value:
                    layer.origins[f"{name}.{key}"] = where(f"{name}.{key}") if where else origin
        return layer

    def put(self, layer: _Layer) -> None:
        merged = self.merged
        for name, value in layer.values.items():
            before, origin = merged.values.get(name), layer.origins[name]
            if isinstance(value, dict) and isinstance(before, dict):
                value = {**before, **value}
            elif name in ADDED_UP and isinstance(value, tuple) and isinstance(before, tuple) and before:
                value = tuple(dict.fromkeys((*before, *value)))
                origin = f"{merged.origins[name]}, {origin}"
            merged.values[name] = value
            merged.origins[name] = origin
            if isinstance(value, dict):
                inner = {f"{name}.{key}" for key in value}
                merged.origins |= {key: where for key, where in layer.origins.items() if key in inner}

    def put_project(self, cwd: str, user: ConfigFile | None) -> None:
        path = find_project_file(cwd, self.environ)
        if path is None:
            return
        folder = os.path.dirname(path)
        if not is_inside(path, folder):
            self.warnings.append(f"ignored {path}: it is a link to a file outside its folder")
            return
        file = self.read(path)
        if file is None:
            return
        if TRUSTED in file.values:
            self.warnings.append(
                f"{file.where(TRUSTED)}: ignored {TRUSTED}; it works only in the user's file"
            )
            file = msgspec.structs.replace(
                file, values={key: value for key, value in file.values.items() if key != TRUSTED}
            )
        layer = self.of_file(file, "project")
        if not trusts(user, folder):
            self._restrain(layer, folder)
        self.put(layer)

    def _restrain(self, layer: _Layer, folder: str) -> None:
        kept, ignored = restrain(layer.values, self.merged.values, folder)
        if ignored:
            names = [f"{name}{_line_of(layer.origins[name])}" for name in ignored]
            self.warnings.append(
                f"{os.path.join(folder, PROJECT_FILE)}: ignored {', '.join(names)}: an untrusted project cannot"
                f" allow the agent more. To trust it: geminids config trust {shlex.quote(folder)}"
            )
        for name in kept.keys() - layer.values.keys():
            layer.origins[name] = layer.origins[ONLY_TOOLS]  # `restrain` made it from two `only_tools`
        layer.values = kept

    def finish(self) -> Loaded:
        merged, options = self.merged, None
        try:
            options = make_options(**nested(merged.values))
        except OptionsError as error:
            self.problems += [(name, self._with_origin(name, problem)) for name, problem in error.problems]
        if self.problems or options is None:
            raise OptionsError(self.problems)
        return Loaded(options, merged.origins, tuple(self.warnings))

    def _with_origin(self, name: str, problem: str) -> str:
        origins = self.merged.origins
        inner = [key for key in origins if key.startswith(f"{name}.") and key[len(name) + 1 :] in problem]
        origin = origins.get(inner[0] if inner else name)
        return f"{problem} ({origin})" if origin else problem


def _no_such_section(key: str) -> str:
    if key in {field.name.partition(".")[0] for field in fields()}:
        return f"{key} is outside a section; write [{SECTION}] above it"
    return f"{key}: there is no such section; options belong in [{SECTION}]"


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _line_of(origin: str) -> str:
    line = origin.rpartition(":")[2]
    return f" (line {line})" if line.isdecimal() else ""


def from_folder(field: Field, raw: Any, folder: str) -> Any:
    """Resolve a path that is relative to the folder of its file."""
    if not field.paths:
        return raw
    if isinstance(raw, list):
        return [from_folder(field, item, folder) for item in raw]
    if not isinstance(raw, str) or not raw or raw in _WORDS:
        return raw
    if field.name == "gemini" and os.sep not in raw and not raw.startswith("~"):
        return raw  # it is a release, not a path
    return os.path.join(folder, os.path.expanduser(raw))
