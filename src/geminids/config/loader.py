"""Load options from flags, environment variables and configuration files.

Flags override environment variables. Variables override the project's file, `geminids.toml`. The
project's file overrides the user's file, `config.toml`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from geminids.config.files import (
    SECTION,
    ConfigFile,
    FileProblem,
    find_project_file,
    read_config,
    user_file,
)
from geminids.config.form import NOT_GIVEN, field_named, flatten, nested, read_value
from geminids.config.project_limits import ADDED_UP, ONLY_TOOLS, is_inside, restrict
from geminids.errors import OptionsError
from geminids.options import Options, make_options
from geminids.options.flags import Field, fields
from geminids.options.validate import invalid_entry

__all__ = ["TRUSTED", "Loaded", "from_folder", "load_options", "trusts"]

TRUSTED = "trusted_projects"
_HOME_KEYWORDS = ("user", "isolated")


class Loaded(msgspec.Struct, frozen=True):
    """The loaded options, the origin of each value that was set, and warnings.

    `origins` maps the name of a field (`model`, `permissions.shell`) or of an entry of a mapping
    (`env.NAME`) to the flag, variable or file that set it.
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
    """Load the options of a run as `geminids run` does.

    `flags` is a dict with option names as keys. Its values override all other sources. With
    `config=False`, no configuration file is read. The project's file is searched in `cwd` and its
    parent folders. If the argument `cwd` is None, the search starts in the folder that the option
    `cwd` names.

    Raises one `OptionsError` with all problems and their origins.
    """
    environ = os.environ if environ is None else environ
    loading = _Loading(environ)
    by_flags = loading.flags_layer(flags or {})
    if cwd is not None:
        by_flags.values.setdefault("cwd", os.fspath(cwd))
        by_flags.origins.setdefault("cwd", "flag --cwd")
    by_env = loading.environment_layer()
    if config:
        user = loading.read(user_file(environ), needed=bool(environ.get("GEMINIDS_CONFIG")))
        if user is not None:
            loading.merge(loading.file_layer(user, "user"))
        layers = (by_flags, by_env, loading.merged)
        folder = next((layer.values["cwd"] for layer in layers if "cwd" in layer.values), ".")
        loading.merge_project(str(folder), user)
    loading.merge(by_env)
    loading.merge(by_flags)
    return loading.finish()


def trusts(user: ConfigFile | None, folder: str) -> bool:
    """Return whether the user's configuration file lists `folder` as a trusted project."""
    listed = user.values.get(TRUSTED, ()) if user else ()
    real = os.path.realpath(folder)
    return isinstance(listed, list) and any(
        isinstance(entry, str) and os.path.realpath(os.path.expanduser(entry)) == real for entry in listed
    )


class _Loading:
    """Merges the option values of all sources, and collects all problems.

    The values of one source (flags, environment variables or one file) are a layer. A layer
    overrides the layers that were merged before it.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.merged = _Layer()
        self.problems: list[tuple[str, str]] = []
        self._flags: set[str] = set()
        self.warnings: list[str] = []

    def flags_layer(self, flags: Mapping[str, object]) -> _Layer:
        flat, problems = flatten(flags)
        self.problems += problems
        origins = {name: f"flag {field_named(name).flag or ''}".strip() for name in flat}
        self._flags = set(origins.values())
        return self._layer(flat, origins)

    def environment_layer(self) -> _Layer:
        texts = {
            field.name: (field, text)
            for field in fields()
            if field.env is not None and (text := self.environ.get(field.env))
        }
        values = {}
        for name, (field, text) in texts.items():
            value = read_value(field, text, commas=True)
            if value is not NOT_GIVEN:
                values[name] = value
        return _Layer(values, {name: f"env {texts[name][0].env}" for name in values})

    def read(self, path: str, *, needed: bool = False) -> ConfigFile | None:
        try:
            file = read_config(path)
        except FileProblem as problem:
            self.problems.append((problem.where, problem.problem))
            return None
        if file is None and needed:
            self.problems.append((path, "does not exist; GEMINIDS_CONFIG is set to this path"))
        return file

    def file_layer(self, file: ConfigFile, kind: str) -> _Layer:
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
                # Keep empty text from a flag, because `make_options` must report it. In a file,
                # empty text means that the option is not set.
                value = raw if raw == "" and where is None else read_value(field_named(name), raw)
            except ValueError as error:
                # The origin of a flag, `flag --model`, would only repeat the name.
                self.problems.append((name, f"{error} ({origin})" if where else str(error)))
                continue
            if value is NOT_GIVEN:
                continue
            layer.values[name] = value
            layer.origins[name] = origin
            if isinstance(value, dict):
                for key in value:
                    layer.origins[f"{name}.{key}"] = where(f"{name}.{key}") if where else origin
        return layer

    def merge(self, layer: _Layer) -> None:
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

    def merge_project(self, cwd: str, user: ConfigFile | None) -> None:
        path = find_project_file(cwd, self.environ)
        if path is None:
            return
        folder = os.path.dirname(path)
        if not is_inside(path, folder):
            self.warnings.append(f"ignored {path}: it is a link to a file outside {folder}")
            return
        file = self.read(path)
        if file is None:
            return
        if TRUSTED in file.values:
            self.warnings.append(
                f"{file.where(TRUSTED)}: ignored {TRUSTED}; it works only in the user's configuration file"
            )
            file = msgspec.structs.replace(
                file, values={key: value for key, value in file.values.items() if key != TRUSTED}
            )
        layer = self.file_layer(file, "project")
        if not trusts(user, folder):
            self._restrict(layer, file)
        self.merge(layer)

    def _restrict(self, layer: _Layer, file: ConfigFile) -> None:
        """Remove from `layer` the values that an untrusted project may not set. Add a warning that
        names them."""
        kept, ignored = restrict(layer.values, self.merged.values, file.folder)
        if ignored:
            names = [_with_line(name, file.line_of(SECTION, *name.split("."))) for name in ignored]
            self.warnings.append(
                f"{file.path}: ignored {', '.join(names)}: an untrusted project can only"
                f" restrict the agent. To trust the project: geminids config trust {shlex.quote(file.folder)}"
            )
        for name in kept.keys() - layer.values.keys():
            layer.origins[name] = layer.origins[ONLY_TOOLS]  # `restrict` derived it from `only_tools`
        layer.values = kept

    def finish(self) -> Loaded:
        merged, options = self.merged, None
        arguments = nested(merged.values)
        try:
            options = make_options(**arguments)
        except OptionsError as error:
            for name, problem in error.problems:
                origin = self._origin(name, invalid_entry(name, arguments.get(name)))
                self.problems.append((name, f"{problem} ({origin})" if origin else problem))
        if self.problems or options is None:
            raise OptionsError(self.problems)
        return Loaded(options, merged.origins, tuple(self.warnings))

    def _origin(self, name: str, entry: str | None) -> str | None:
        """Return the variable or the file that set an option; None if it was a flag."""
        origins = self.merged.origins
        origin = origins.get(f"{name}.{entry}") or origins.get(name)
        return None if origin in self._flags else origin


def _no_such_section(key: str) -> str:
    if key in {field.name.partition(".")[0] for field in fields()}:
        return f"{key} is outside a section; write [{SECTION}] above it"
    return f"{key}: there is no such section; options belong in [{SECTION}]"


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _with_line(name: str, line: int | None) -> str:
    return name if line is None else f"{name} (line {line})"


def from_folder(field: Field, raw: Any, folder: str) -> Any:
    """Make a path from a configuration file absolute.

    A relative path is relative to `folder`, the folder of the file. Values that are not paths are
    returned unchanged.
    """
    if not field.paths:
        return raw
    if isinstance(raw, list):
        return [from_folder(field, item, folder) for item in raw]
    if not isinstance(raw, str) or not raw or raw in _HOME_KEYWORDS:
        return raw
    if field.name == "gemini" and os.sep not in raw and not raw.startswith("~"):
        return raw  # it is a version of the CLI, not a path
    return os.path.join(folder, os.path.expanduser(raw))
