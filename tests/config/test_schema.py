"""The JSON Schema of the options, the form fields, and the reference page made from them."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import msgspec

from geminids.config import config_fields, json_schema, reference_page
from geminids.options.flags import fields

ROOT = Path(__file__).parents[2]


def test_the_json_schema_is_valid() -> None:
    """The JSON Schema is valid, and it refuses unknown names and invalid values."""
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid({"model": "flash", "permissions": {"shell": "deny"}})
    for bad in ({"modle": "x"}, {"max_turns": 0}, {"effort": "much"}, {"mcp_servers": {"a": {"x": 1}}}):
        assert not validator.is_valid(bad), bad


def test_config_fields_has_every_field() -> None:
    """`config_fields` has every field with kind, limits and choices, and can be encoded as JSON."""
    by_name = {field.name: field for field in config_fields()}
    assert list(by_name) == [field.name for field in fields()]
    assert (by_name["max_turns"].kind, by_name["max_turns"].min, by_name["max_turns"].max) == (
        "number",
        1,
        100_000,
    )
    assert (by_name["timeout"].min, by_name["timeout"].exclusive_min) == (0, True)
    assert by_name["approval"].choices == ("default", "auto_edit", "yolo", "plan")
    assert by_name["instructions"].kind == "path"
    assert by_name["env"].kind == "mapping" and by_name["env"].secret
    assert next(iter(by_name["mcp_servers"].fields)).name == "command"
    assert b'"kind":"choice"' in msgspec.json.encode(config_fields())


def test_the_reference_page_is_up_to_date() -> None:
    """docs/reference/options.md equals the page that `make reference` writes."""
    assert (ROOT / "docs" / "reference" / "options.md").read_text() == reference_page()
