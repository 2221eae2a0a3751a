"""Describe the adapter for a portal: type, label, models, form fields and their documentation."""

from __future__ import annotations

import msgspec

from geminids.adapters.leadmetrics.config import DOCUMENTED, GRACE, PROBE_TIMEOUT, TIMEOUT, config_name
from geminids.config.schema import ConfigField
from geminids.config.schema import config_fields as option_fields
from geminids.gemini import Release, models_of, release_of
from geminids.gemini.features import NEWEST_TESTED

__all__ = [
    "DEFAULT_MODEL",
    "LABEL",
    "TYPE",
    "AdapterIdentity",
    "AdapterModel",
    "agent_configuration_doc",
    "config_fields",
    "identity",
    "models",
]

TYPE = "gemini_local"
LABEL = "Gemini CLI (local)"
DEFAULT_MODEL = "auto"

_EXCLUDED = {"resume", "session_id", "fresh", "variables", "make_cwd", "approval", *DOCUMENTED.values()}
_DEFAULTS = {"timeoutSec": TIMEOUT, "graceSec": GRACE, "cwd": None}
_DESCRIPTIONS = {
    "promptTemplate": "A text with placeholders: {{prompt}} stands for the prompt, {{agent.name}}, {{runId}} "
    "and others for values of the run."
}
_YOLO = ConfigField(
    name="yolo",
    label="Yolo",
    kind="flag",
    group="Permissions",
    description="Let the agent use every tool without asking. Otherwise it can only read.",
    default=False,
)
_PROBE = ConfigField(
    name="helloProbeTimeoutSec",
    label="Time limit of the test run",
    kind="number",
    group="Limits",
    description="How many seconds the model has to answer when the environment is tested with a short run.",
    default=PROBE_TIMEOUT,
    min=0,
    exclusive_min=True,
)
_HEAD = """\
# gemini_local: the configuration of an agent

The agent is Google's Gemini CLI, run by geminids on this machine. It signs in with `GEMINI_API_KEY` (in `env`, or in
the environment of the worker), with Vertex AI, or with an account of Gemini CLI.

The prompt template may contain `{{agentId}}`, `{{agent.name}}`, `{{tenantId}}`, `{{tenant.name}}`, `{{runId}}`,
`{{context.NAME}}` for each text of the run's context, and `{{prompt}}`. A name without a value is an error.

A session is resumed only in the folder that it belongs to. If the session no longer exists, the agent runs once more,
in a new session.
"""


class AdapterModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model for a selection list: its id, and the text to show.

    `means` is the model id that an alias stands for. `means` is None if `id` is itself a model id,
    and for `auto`, where the CLI chooses a model for each prompt. If the account cannot use the
    model, the CLI uses another one.
    """

    id: str
    label: str
    means: str | None = None


class AdapterIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The data that a portal needs to offer this adapter. A configuration may also name a model
    that is not in `models`."""

    type: str
    label: str
    models: tuple[AdapterModel, ...]
    default_model: str
    agent_configuration_doc: str
    config_fields: tuple[ConfigField, ...]


def identity(release: Release | str | None = None) -> AdapterIdentity:
    """Describe the adapter, with the models of a release of Gemini CLI. By default, `release` is
    the newest release that geminids is tested with.

    >>> identity().type, identity().default_model, identity().models[0].id
    ('gemini_local', 'auto', 'auto')
    """
    return AdapterIdentity(
        type=TYPE,
        label=LABEL,
        models=models(release),
        default_model=DEFAULT_MODEL,
        agent_configuration_doc=agent_configuration_doc(),
        config_fields=config_fields(),
    )


def models(release: Release | str | None = None) -> tuple[AdapterModel, ...]:
    """Return the model aliases and the models of a release of Gemini CLI. By default, `release` is
    the newest release that geminids is tested with.

    >>> [model.id for model in models()][:4]
    ['auto', 'pro', 'flash', 'flash-lite']
    >>> [model.means for model in models("0.60.0") if model.id == "flash"]
    ['gemini-3.5-flash']
    """
    if not isinstance(release, Release):
        release = release_of(release or f"{NEWEST_TESTED}.0")
    return tuple(AdapterModel(model.id, _label(model.id), model.means) for model in models_of(release))


def config_fields() -> tuple[ConfigField, ...]:
    """Return the fields of the configuration form: the documented fields first, then every other
    option of geminids.

    >>> [field.name for field in config_fields()][:4]
    ['cwd', 'model', 'promptTemplate', 'instructionsFilePath']
    """
    ours = {field.name: field for field in option_fields()}
    documented = [_renamed(ours[option]) for name, option in DOCUMENTED.items() if name != "yolo"]
    further = [_renamed(field) for name, field in ours.items() if name not in _EXCLUDED]
    # `command` is a field of Paperclip and comes after the documented fields.
    return (*documented[:-1], _YOLO, documented[-1], _PROBE, *further)


def agent_configuration_doc() -> str:
    """Return the documentation of the configuration fields in Markdown."""
    rows = [f"- `{field.name}` ({_type(field)}): {field.description}" for field in config_fields()]
    documented = len(DOCUMENTED) + 1  # and the time limit of the live probe
    parts = (_HEAD, "## Fields\n", *rows[:documented], "", "## Further options\n", *rows[documented:])
    return "\n".join(parts) + "\n"


def _renamed(field: ConfigField) -> ConfigField:
    name = config_name(field.name)
    return msgspec.structs.replace(
        field,
        name=name,
        description=_DESCRIPTIONS.get(name, field.description),
        default=_DEFAULTS.get(name, field.default),
        required=name == "cwd",
        # Here, 0 means no limit.
        **({"min": 0, "exclusive_min": False} if name == "timeoutSec" else {}),
    )


def _type(field: ConfigField) -> str:
    default = field.default
    kind = field.kind if field.kind != "choice" else " | ".join(field.choices)
    if field.required:
        return f"{kind}, required"
    if default is None or default == () or default == {}:
        return kind
    if isinstance(default, bool):
        return f"{kind}, default {str(default).lower()}"
    return f"{kind}, default {default:g}" if isinstance(default, float) else f"{kind}, default {default}"


def _label(model: str) -> str:
    return " ".join(part.capitalize() for part in model.split("-"))
