"""Python code with which a fake CLI writes a session journal. Put it before the fake CLI's own
code."""

from __future__ import annotations

__all__ = ["JOURNAL"]

# Functions and constants that write a journal to the path that the real CLI uses.
JOURNAL = """
ID = "5f0c0f5e-1111-4222-8333-444455556666"
INIT = line("init", session_id=ID, model="auto") + line("message", role="user", content="hi")
CHATS = os.path.join(os.environ["GEMINI_CLI_HOME"], ".gemini", "tmp", "work", "chats")
FILE = os.path.join(CHATS, "session-2026-11-16T03-27-" + ID[:8] + ".jsonl")
STAMP = "2026-11-16T03:27:52.123Z"
HEADER = dict(sessionId=ID, projectHash="0" * 64, startTime=STAMP, lastUpdated=STAMP, kind="main")
def begin():
    os.makedirs(CHATS, exist_ok=True)
    with open(os.path.join(CHATS, "..", ".project_root"), "w") as file:
        file.write(os.getcwd())
    write(HEADER)
def write(record, file=FILE):
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file, "a") as out:
        out.write((record if isinstance(record, str) else json.dumps(record)) + "\\n")
def answer(id, *calls, thought="", file=FILE, **more):
    thoughts = [dict(subject="On " + thought, description=thought, timestamp=STAMP)] if thought else []
    tokens = dict(input=1, output=2, cached=0, thoughts=0, tool=0, total=3)
    write(dict(id=id, timestamp=STAMP, type="gemini", content="", thoughts=thoughts, tokens=tokens, model="m",
               toolCalls=list(calls), **more), file)
def call(id, output, name="read_file", **more):
    part = dict(functionResponse=dict(id=id, name=name, response=dict(output=output)))
    return dict(id=id, name=name, args={}, result=[part], status="success", timestamp=STAMP, **more)
def use(id, name="read_file", **parameters):
    return line("tool_use", tool_name=name, tool_id=id, parameters=parameters)
def end(id, output=""):
    return line("tool_result", tool_id=id, status="success", output=output)
"""
