"""The commands as tools, asked by a client of the protocol."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from conftest import ROOT, SCRIPT, Autodist

mcp = pytest.importorskip("mcp")
from autodist import agents  # noqa: E402
from autodist.cli import cli  # noqa: E402


def asked(name: str, **values: Any) -> Any:
    """What a client gets from a tool."""

    async def ask() -> Any:
        async with mcp.Client(agents.server(cli.commands)) as client:
            return await client.call_tool(name, values)

    return asyncio.run(ask())


def offered(commands: Mapping[str, click.Command]) -> dict[str, Any]:
    """The tools that a client sees."""

    async def ask() -> Any:
        async with mcp.Client(agents.server(commands)) as client:
            return (await client.list_tools()).tools

    return {tool.name: tool for tool in asyncio.run(ask())}


def test_a_tool_for_each_command_that_there_is() -> None:
    assert [*offered(cli.commands)] == [name for name in agents.TOOLS if name in cli.commands]

    @click.command()
    @click.argument("script")
    @click.option("--steps", type=int, help="How many.")
    def plan(script: str, steps: int) -> None:
        """Say what it would cost."""

    (tool,) = offered({"plan": plan, "evaluate": plan}).values()
    assert tool.description == "Say what it would cost." and tool.annotations.read_only_hint
    assert tool.input_schema["required"] == ["script"]
    assert tool.input_schema["properties"]["steps"] == {"type": "integer", "description": "How many."}


def test_schemas_are_those_of_the_command_line() -> None:
    tools = offered(cli.commands)
    verify = tools["verify"].input_schema["properties"]
    assert verify["device"]["enum"] == ["auto", "cpu", "cuda"] and verify["args"]["type"] == "array"
    convert = tools["convert"].input_schema["properties"]
    assert convert["strategy"]["enum"] and convert["select"]["type"] == "array" and convert["diff"]["type"] == "boolean"
    assert convert["reshard_after_forward"]["type"] == "boolean" and "output_format" not in convert


def test_convert_verify_and_the_verdict(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT)
    made = asked("convert", files=["train.py"], folder=str(tmp_path)).structured_content
    (run,) = made["result"]["scripts"]
    assert made["exit_code"] == 0 and run["outputs"] == ["train_ddp.py"] and run["launch"] and run["diagnostics"]
    proof = asked("verify", scripts=["train.py", "train_ddp.py"], steps=3, device="cpu", folder=str(tmp_path))
    verdict = proof.structured_content
    assert not proof.is_error and verdict["result"]["outcome"] == "equal"
    assert verdict["result"]["text"].startswith("EQUAL on 2 ranks (CPU) in float64: 3 optimizer steps")
    assert "deviations" not in verdict["result"]["worlds"][0] and "--steps=3" in verdict["command"]


def test_observe_and_plan_answer_with_documents(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT)
    seen = asked("observe", script="train.py", folder=str(tmp_path)).structured_content
    assert seen["exit_code"] == 0 and "differentiated" in {value["kind"] for value in seen["result"]["values"]}
    planned = asked("plan", script="train.py", device="H100 80GB", gpus="1,8", folder=str(tmp_path)).structured_content
    assert planned["exit_code"] == 0 and planned["result"]["device"]["name"] == "H100 80GB"
    assert {row["ranks"] for row in planned["result"]["rows"]} == {1, 8}


def test_what_a_person_must_look_at_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    found = asked("check", files=["train.py"], folder=str(tmp_path))
    assert not found.is_error and found.structured_content["meaning"].startswith("a person must look")
    assert found.structured_content["result"]["scripts"][0]["diagnostics"]


def test_rules_are_texts() -> None:
    assert asked("rule", code="AD301").structured_content["result"].startswith("### AD301 write-on-rank-zero")


@pytest.mark.parametrize(
    ("tool", "values", "message"),
    [
        ("convert", {"files": ["nowhere.py"]}, "nowhere.py: no such file"),
        ("convert", {"files": ["--force"]}, "--force: no such file"),
        ("convert", {"files": ["-"]}, "no standard input"),
        ("convert", {"files": ["train.py"], "strategy": "magic"}, "'magic' is not one of"),
        ("convert", {"files": ["train.py"], "shard": True}, "there is no shard"),
        ("convert", {"files": ["train.py"], "args": ["--lr", "1"]}, "are for the runs of --verify"),
        ("verify", {"scripts": []}, "name the original"),
        ("rule", {"code": "AD999"}, "there is no rule"),
        ("rule", {"folder": "/nowhere"}, "no such folder"),
        ("evaluate", {}, "there is no tool evaluate"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, values: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = asked(tool, **values)
    assert result.is_error and message in result.content[0].text and "Traceback" not in result.content[0].text


def test_the_command_speaks_on_standard_input_and_output(tmp_path: Path) -> None:
    command = mcp.StdioServerParameters(command=sys.executable, args=["-m", "autodist", "mcp"], cwd=tmp_path)

    async def ask() -> Any:
        async with mcp.Client(command) as client:
            return client.instructions, await client.call_tool("rule", {})

    told, table = asyncio.run(ask())
    assert "Never say" in told and "AD301" in table.structured_content["result"]


def test_without_the_sdk_it_says_what_to_install(autodist: Autodist, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "autodist.agents", None)
    monkeypatch.delattr("autodist.agents", raising=False)
    result = autodist("mcp")
    assert result.exit_code == 2 and "pip install 'torch-autodist[mcp]'" in result.stderr


def test_the_guide_has_all_tools() -> None:
    text = (ROOT / "docs" / "guides" / "agents.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?m)^\| `(\w+)` \|", text)) == set(agents.TOOLS)


def test_the_skill_names_commands_that_there_are() -> None:
    text = (ROOT / "skills" / "autodist" / "SKILL.md").read_text(encoding="utf-8")
    assert re.match(r"---\nname: autodist\ndescription: .{20,1024}\n", text)
    named = set(re.findall(r"autodist ([a-z]+)", text)) - {"mcp"}
    assert named <= set(cli.commands) and named <= set(agents.TOOLS)
    for line in re.findall(r"(?m)^autodist (.*?) *#.*$", text):
        command, *rest = line.partition(" -- ")[0].split()
        cli.commands[command].make_context(command, rest, resilient_parsing=True)
