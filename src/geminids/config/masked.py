"""Options without their secrets, to be shown."""

from __future__ import annotations

import re

import msgspec

from geminids.options import McpServer, Options
from geminids.redact import MASK, Redactor, is_secret_name, secrets_in_words, secrets_of

__all__ = ["masked"]

_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def masked(options: Options) -> Options:
    """The same options with `***` for values of variables with secret names, and for all headers.

    >>> masked(Options(env={"API_TOKEN": "hunter2hunter2", "LANG": "C"})).env
    {'API_TOKEN': '***', 'LANG': 'C'}
    """
    known = set(secrets_of(options.env))
    for server in options.mcp_servers.values():
        known |= secrets_of(server.env) | {value for value in server.headers.values() if len(value) >= 8}
        known |= secrets_in_words((*server.args, server.url or ""))
    redactor = Redactor(known)
    servers = {name: _server(server, redactor) for name, server in options.mcp_servers.items()}
    return msgspec.structs.replace(options, env=_variables(options.env, redactor), mcp_servers=servers)


def _server(server: McpServer, redactor: Redactor) -> McpServer:
    return msgspec.structs.replace(
        server,
        env=_variables(server.env, redactor),
        headers=dict.fromkeys(server.headers, MASK),
        args=tuple(redactor.text(word) for word in server.args),
        url=_USER_IN_URL.sub(MASK, redactor.text(server.url)) if server.url else server.url,
    )


def _variables(variables: dict[str, str], redactor: Redactor) -> dict[str, str]:
    return {
        name: MASK if is_secret_name(name) and value else redactor.text(value)
        for name, value in variables.items()
    }
