"""Plan a run as the run itself does, and start nothing. `run --dry-run` and `doctor` use this."""

from __future__ import annotations

import os
from collections.abc import Mapping

from geminids.launch.build import build_headless
from geminids.launch.gateway_env import PLACEHOLDER
from geminids.launch.plan import Plan
from geminids.launch.prepare import prepare
from geminids.options import Options
from geminids.run.accounting.cost import check_prices
from geminids.run.retry import Retries
from geminids.run.schema.answer_schema import answer_schema_of
from geminids.run.session_claim import Claim
from geminids.run.starter import with_one_try_per_request

__all__ = ["plan_run"]

_RUN_ID = "run-dry"


def plan_run(prompt: str, options: Options, environ: Mapping[str, str] | None = None) -> Plan:
    """Return the plan of the first attempt of a run. `environ` replaces the variables of this
    process.

    No process is started, no socket is opened, and no file of the run is written. Raises
    `OptionsError` or `Refused` if the run could not start.
    """
    environ = os.environ if environ is None else environ
    schema = answer_schema_of(options.schema) if options.schema is not None else None
    claim = Claim(_RUN_ID)
    options = claim.look_up(options)
    check_prices(options)
    options = with_one_try_per_request(options)
    prompt = Retries(prompt, options, schema).prompt
    context = prepare(options, transport="headless", prompt=prompt, run_id=_RUN_ID, environ=environ)
    if context.route.kind == "gateway":
        # Imported late (19 ms), as in a run.
        from geminids.run.accounting.lease_setup import check_gateway_lease

        check_gateway_lease(options, context.route, context.env)
    return build_headless(context, PLACEHOLDER, resumed=claim.file)
