"""The commands as tools for coding agents, by the Model Context Protocol: what an agent is told is what a person is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import anyio
import click
from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from autodist.errors import AutodistError
from autodist.report import tool_version

TOOLS = {"convert": False, "check": True, "observe": True, "verify": True, "rule": True, "plan": True}
"""The commands that are tools, and whether each leaves the files of the project alone."""
HIDDEN = {"help", "output_format", "quiet", "verbose", "no_color", "if_training", "force", "changed", "explain"}
MEANINGS = {0: "done: nothing is left to a person", 1: "a person must look at this", 2: "error: see messages"}
TOO_LONG = ("deviations", "details")
"""Of a verdict: the numbers of each step, and what charts are drawn from."""
CONTRACT = """\
Convert a training script with `convert`, prove the result with `verify`, and paste the verdict. `verify` judges any
conversion, whoever made it. Never say that a script is distributed, or trains the same model, without a verdict that
says EQUAL. A refusal or a difference is a result: report it with its reason, and do not work around it in silence."""
RESULT = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "What was run."},
        "exit_code": {"type": "integer"},
        "meaning": {"type": "string"},
        "result": {"description": "What the command found, as a document, or as text where it has no other form."},
        "messages": {"type": "string", "description": "What the command said besides."},
    },
    "required": ["command", "exit_code", "meaning", "result", "messages"],
}


def serve(commands: Mapping[str, click.Command]) -> None:
    """Answer on standard input and output until the client goes."""

    async def run() -> None:
        async with stdio_server() as (incoming, outgoing):
            told = server(commands)
            await told.run(incoming, outgoing, told.create_initialization_options())

    anyio.run(run)


def server(commands: Mapping[str, click.Command]) -> Server[Any]:
    """A server with a tool for each command that there is and that an agent may need."""
    known = {name: commands[name] for name in TOOLS if name in commands}
    tools = [_tool(name, command) for name, command in known.items()]

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            if params.name not in known:
                raise AutodistError(f"there is no tool {params.name}: use {', '.join(known)}")
            return await _called(known[params.name], params.name, params.arguments or {})
        except AutodistError as error:
            return types.CallToolResult(content=[types.TextContent(type="text", text=f"error: {error}")], is_error=True)

    return Server(
        "autodist", version=tool_version(), instructions=CONTRACT, on_list_tools=list_tools, on_call_tool=call_tool
    )


async def _called(command: click.Command, name: str, values: Mapping[str, Any]) -> types.CallToolResult:
    folder = Path(values.get("folder") or ".").expanduser()
    if not folder.is_dir():
        raise AutodistError("no such folder: `folder` is where the paths start", folder)
    line = [name, *command_line(command, {key: value for key, value in values.items() if key != "folder"})]
    done = await anyio.run_process([sys.executable, "-m", "autodist", *line], cwd=folder, stdin=DEVNULL, check=False)
    answer = {
        "command": " ".join(["autodist", *line]),
        "exit_code": done.returncode,
        "meaning": MEANINGS.get(done.returncode, f"ended with {done.returncode}"),
        "result": _document(done.stdout.decode(errors="replace")),
        "messages": done.stderr.decode(errors="replace").strip(),
    }
    content = types.TextContent(type="text", text=json.dumps(answer, indent=1))
    return types.CallToolResult(content=[content], structured_content=answer, is_error=done.returncode not in (0, 1))


def _document(printed: str) -> Any:
    try:
        document = json.loads(printed)
    except ValueError:
        return printed
    for world in document.get("worlds", ()):
        for name in TOO_LONG:
            world.pop(name, None)
    return document


def command_line(command: click.Command, values: Mapping[str, Any]) -> Iterator[str]:
    """The arguments of a command for the values of a tool."""
    parameters = {_name(each): each for each in _parameters(command)}
    positional: list[str] = []
    if any(each.name == "output_format" for each in command.params):
        yield "--output-format=json"
    for name, value in values.items():
        many = [str(each) for each in value] if isinstance(value, list) else [str(value)]
        parameter = parameters.get(name)
        if name == "args" and takes_arguments(command):
            continue
        if parameter is None:
            raise AutodistError(f"there is no {name}: use {', '.join(parameters)}")
        if isinstance(parameter, click.Option) and parameter.is_flag:
            yield from parameter.opts[-1:] if value else parameter.secondary_opts[-1:]
        elif isinstance(parameter, click.Option):
            yield from (f"{parameter.opts[-1]}={each}" for each in many)
        elif "-" in many:
            raise AutodistError("a tool has no standard input: name a file")
        else:
            positional += [f"./{each}" if each.startswith("-") else each for each in many]
    yield from positional
    if given := values.get("args"):
        yield from ("--", *map(str, given if isinstance(given, list) else [given]))


def takes_arguments(command: click.Command) -> bool:
    """Whether what follows ``--`` goes to scripts."""
    return getattr(command, "takes_arguments", False)


def _tool(name: str, command: click.Command) -> types.Tool:
    properties = {_name(each): _schema(each) for each in _parameters(command)}
    if takes_arguments(command):
        properties["args"] = {"type": "array", "items": {"type": "string"}, "description": "Arguments of the scripts."}
    properties["folder"] = {"type": "string", "description": "The folder where paths start, and the command runs."}
    return types.Tool(
        name=name,
        description=" ".join((command.help or "").split()),
        input_schema={
            "type": "object",
            "properties": properties,
            "required": [_name(each) for each in _parameters(command) if each.required],
            "additionalProperties": False,
        },
        output_schema=RESULT,
        annotations=types.ToolAnnotations(read_only_hint=TOOLS[name], destructive_hint=False),
    )


def _parameters(command: click.Command) -> list[click.Parameter]:
    return [each for each in command.params if each.name not in HIDDEN and not getattr(each, "hidden", False)]


def _name(parameter: click.Parameter) -> str:
    """As it is written on the command line, which an agent may know."""
    return parameter.opts[-1].lstrip("-").replace("-", "_")


def _schema(parameter: click.Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if isinstance(parameter.type, click.Choice):
        schema["enum"] = [*parameter.type.choices]
    elif isinstance(parameter.type, click.types.IntParamType):
        schema["type"] = "integer"
    elif isinstance(parameter.type, click.types.FloatParamType):
        schema["type"] = "number"
    if isinstance(parameter, click.Option) and parameter.is_flag:
        schema = {"type": "boolean"}
    if parameter.multiple or parameter.nargs == -1:
        schema = {"type": "array", "items": schema}
    told = parameter.help if isinstance(parameter, click.Option) else parameter.metavar
    return {**schema, "description": told} if told else schema
