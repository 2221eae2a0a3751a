"""What lies in the folder of a run and has no power there, told to whoever follows the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from geminids.events.ledger import Ledger
from geminids.events.model import Notice
from geminids.launch.workspace import Found

__all__ = ["without_power"]

_CODE = "workspace"


def without_power(found: Sequence[Found], ledger: Ledger) -> Iterator[Notice]:
    """One sentence for people, then each thing by name.

    An `.env` that does not speak of Gemini is no news to anybody: then there is no such sentence.
    """
    if any(one.kind != "env file" or one.name for one in found):
        kinds = Counter(one.kind for one in found)
        counted = ", ".join(_counted(kind, count) for kind, count in kinds.items())
        text = f"this folder is not trusted, and so without power: {counted} (trust_workspace gives it)"
        yield ledger.notice("warning", _CODE, text)
    for one in found:
        yield ledger.notice("info", _CODE, f"{one} has no power in this run")


def _counted(kind: str, count: int) -> str:
    if count == 1:
        return f"1 {kind}"
    return f"{count} {kind.removesuffix('y')}ies" if kind.endswith("y") else f"{count} {kind}s"
