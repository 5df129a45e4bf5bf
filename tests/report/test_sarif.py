"""SARIF is what the schema of 2.1.0 says, whatever is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import SCRIPT, Autodist

jsonschema = pytest.importorskip("jsonschema")
SCHEMA = json.loads((Path(__file__).parent / "facts" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
SCRIPTS = {
    "changes": SCRIPT,
    "warning": SCRIPT.replace("shuffle=True", "shuffle=True, collate_fn=unknown.collate").replace(
        "import torch\n", "import torch, unknown\n", 1
    ),
    "refusal": SCRIPT.replace("optimizer.step()", "for p in model.parameters(): p.data -= p.grad"),
    "nothing": "import torch\n",
    "other-letters": f"# größer, 大\n{SCRIPT.replace('model.pt', 'modèle.pt')}",
    "windows": SCRIPT.replace("\n", "\r\n"),
}


def sarif(autodist: Autodist, *arguments: str) -> Any:
    """A log that the schema takes."""
    document = json.loads(autodist(*arguments, "--output-format", "sarif").stdout)
    jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker()).validate(document)
    return document["runs"][0]


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("command", [("check",), ("convert", "--diff"), ("convert", "--diff", "--strategy", "fsdp")])
def test_the_schema_takes_it(autodist: Autodist, tmp_path: Path, name: str, command: tuple[str, ...]) -> None:
    (tmp_path / "my train.py").write_bytes(SCRIPTS[name].encode())
    run = sarif(autodist, *command, "my train.py")
    ids = [each["id"] for each in run["tool"]["driver"]["rules"]]
    assert all(ids[each["ruleIndex"]] == each["ruleId"] for each in run["results"])


def test_a_file_is_named_by_an_address(autodist: Autodist, tmp_path: Path) -> None:
    (tmp_path / "my train.py").write_text(SCRIPT)
    assert {
        each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for each in sarif(autodist, "check", "my train.py")["results"]
    } == {"my%20train.py"}


def test_the_schema_refuses_what_is_wrong() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(SCHEMA).validate({"version": "2.1.0", "runs": [{}]})
