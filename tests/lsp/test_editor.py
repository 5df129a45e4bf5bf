"""The language server, asked by a client over its standard input and output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import SCRIPT as ONE_PROCESS
from conftest import Autodist

pytest.importorskip("pygls")
from lsprotocol import types

from autodist.lsp import process
from benchmarks.editor import SCRIPT, Editor, script

RIGHT = SCRIPT.read_text(encoding="utf-8")
NO_EPOCH = RIGHT.replace("        sampler.set_epoch(epoch)\n", "")
BY_ALL = RIGHT.replace("            if rank == 0:\n                torch.save(", "            torch.save(")
BOTH = BY_ALL.replace("        sampler.set_epoch(epoch)\n", "")
FIX_ALL = types.CodeActionKind("source.fixAll")
LOOP = next(number for number, line in enumerate(NO_EPOCH.splitlines()) if "= train_one_epoch(" in line)


def told(found: Any) -> list[tuple[Any, int]]:
    """Codes and lines, counted from 0."""
    return [(each.code, each.range.start.line) for each in found]


def saved(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def edited(folder: Path, work: Callable[[Editor], Awaitable[None]], **options: Any) -> None:
    """Do something in an editor that has opened a folder."""

    async def run() -> None:
        async with Editor(folder, **options) as editor:
            await work(editor)

    asyncio.run(asyncio.wait_for(run(), 120))


def test_findings_follow_the_text(tmp_path: Path) -> None:
    path = saved(tmp_path / "train.py", RIGHT)

    async def work(editor: Editor) -> None:
        editor.open(path)
        assert not await editor.found(path)
        editor.change(path, NO_EPOCH)
        (found,) = await editor.found(path)
        assert told([found]) == [("AD202", LOOP)] and found.source == "autodist"
        assert found.severity == types.DiagnosticSeverity.Information and "`autodist rule AD202`" in found.message
        assert found.range.end == types.Position(LOOP, len(NO_EPOCH.splitlines()[LOOP]))
        editor.change(path, RIGHT)
        assert not await editor.found(path)
        editor.change(path, NO_EPOCH)
        assert await editor.found(path)
        editor.close(path)
        assert not await editor.found(path)

    edited(tmp_path, work)


def test_a_text_that_does_not_parse_keeps_what_was_found(tmp_path: Path) -> None:
    path = saved(tmp_path / "train.py", NO_EPOCH)

    async def work(editor: Editor) -> None:
        editor.open(path)
        assert told(await editor.found(path)) == [("AD202", LOOP)]
        editor.change(path, NO_EPOCH + "\nif True")
        with pytest.raises(asyncio.TimeoutError):
            await editor.found(path, timeout=2)
        assert told(editor.published[path.as_uri()].diagnostics) == [("AD202", LOOP)] and not editor.messages
        assert not await editor.actions(path, LOOP)  # the edits would be those of another text
        editor.change(path, NO_EPOCH)
        assert told(await editor.found(path)) == [("AD202", LOOP)]

    edited(tmp_path, work)


@pytest.mark.parametrize("resolves", [True, False])
def test_fixes(tmp_path: Path, resolves: bool) -> None:
    path = saved(tmp_path / "train.py", BOTH)

    async def work(editor: Editor) -> None:
        editor.open(path)
        found = await editor.found(path)
        (epoch,) = [each for each in found if each.code == "AD202"]
        line = epoch.range.start.line
        one, whole = await editor.actions(path, line)
        assert one.kind == types.CodeActionKind.QuickFix and one.title.startswith("AD202: ") and one.diagnostics
        assert (one.edit is None) is resolves
        assert whole.kind == "source.fixAll.autodist"
        (text,) = (await editor.edit(one)).values()
        assert text.count("set_epoch(epoch)") == 1 and "if dist.get_rank() == 0:" not in text
        (on_save,) = await editor.actions(path, 0, only=[FIX_ALL])
        (text,) = (await editor.edit(on_save)).values()
        assert text.count("set_epoch(epoch)") == 1 and text.count("if dist.get_rank() == 0:") == 1
        editor.change(path, "\n" + BOTH)  # an edit of the text as it was would land on other lines
        assert not (resolves and await editor.edit(one))
        editor.change(path, text)
        assert not await editor.found(path)

    edited(tmp_path, work, resolves=resolves)


def test_a_script_of_one_process_is_converted_as_a_whole(tmp_path: Path) -> None:
    """Its fixes need each other, and saving with `source.fixAll` must not convert it."""
    path = saved(tmp_path / "train.py", ONE_PROCESS)

    async def work(editor: Editor) -> None:
        editor.open(path)
        found = await editor.found(path)
        line = found[-1].range.start.line
        (action,) = await editor.actions(path, line)
        assert action.title == "Convert train.py to DDP" and action.kind == "refactor.rewrite.autodist"
        assert not await editor.actions(path, line, only=[FIX_ALL])
        (text,) = (await editor.edit(action)).values()
        assert "init_process_group" in text
        editor.change(path, text)
        assert not await editor.found(path)

    edited(tmp_path, work)


def test_the_page_of_a_rule(tmp_path: Path) -> None:
    path = saved(tmp_path / "train.py", NO_EPOCH)

    async def hover(editor: Editor, line: int) -> types.Hover | None:
        document = types.TextDocumentIdentifier(path.as_uri())
        place = types.Position(line, 10)
        return await editor.client.text_document_hover_async(types.HoverParams(document, place))

    async def work(editor: Editor) -> None:
        editor.open(path)
        await editor.found(path)
        page = await hover(editor, LOOP)
        assert page is not None and isinstance(page.contents, types.MarkupContent)
        assert "### AD202" in page.contents.value and "```diff" in page.contents.value
        assert await hover(editor, LOOP + 2) is None

    edited(tmp_path, work)


def test_comments_silence(tmp_path: Path) -> None:
    path = saved(tmp_path / "train.py", NO_EPOCH)

    async def work(editor: Editor) -> None:
        editor.open(path)
        assert await editor.found(path)
        lines = NO_EPOCH.splitlines(keepends=True)
        lines[LOOP] = lines[LOOP].rstrip() + "  # autodist: ignore[AD202]\n"
        editor.change(path, "".join(lines))
        assert not await editor.found(path)

    edited(tmp_path, work)


def test_a_module_that_is_not_saved(tmp_path: Path) -> None:
    """The text in the editor counts; closed, what is on disk."""
    saving = "import torch\n\n\ndef keep(model):\n    torch.save(model.module.state_dict(), 'best.pt')\n"
    guarded = saving.replace("    torch.save", "    if dist.get_rank() == 0:\n        torch.save")
    guarded = guarded.replace("import torch\n", "import torch\nimport torch.distributed as dist\n")
    start, end = RIGHT.index("            if rank == 0:\n                torch.save("), RIGHT.index(
        "            dist.barrier()"
    )
    text = "from keeping import keep\n" + RIGHT[:start] + "            keep(model)\n" + RIGHT[end:]
    entry, module = saved(tmp_path / "train.py", text), saved(tmp_path / "keeping.py", saving)

    async def work(editor: Editor) -> None:
        editor.open(entry)
        assert not await editor.found(entry)
        while not (module.as_uri() in editor.published and editor.published[module.as_uri()].diagnostics):
            await asyncio.sleep(0.05)
        assert told(editor.published[module.as_uri()].diagnostics) == [("AD301", 4)]
        editor.open(module)
        editor.change(module, guarded)
        assert not await editor.found(module)
        editor.change(module, guarded + "\nnot Python")
        editor.change(module, saving)
        assert told(await editor.found(module)) == [("AD301", 4)]
        action, _ = await editor.actions(module, 4)
        assert [*await editor.edit(action)] == [module.as_uri()]
        editor.change(module, guarded)
        assert not await editor.found(module)
        editor.close(module)
        while not editor.published[module.as_uri()].diagnostics:
            await asyncio.sleep(0.05)

    edited(tmp_path, work)


def test_each_folder_has_options_of_its_own(tmp_path: Path) -> None:
    first, second = saved(tmp_path / "a" / "train.py", NO_EPOCH), saved(tmp_path / "b" / "train.py", NO_EPOCH)
    saved(tmp_path / "b" / "pyproject.toml", '[tool.autodist]\nignore = ["AD202"]\n')

    async def run() -> None:
        async with Editor(first.parent, second.parent) as editor:
            editor.open(first)
            editor.open(second)
            assert await editor.found(first) and not await editor.found(second)
            saved(second.with_name("pyproject.toml"), "[tool.autodist]\n")
            editor.save(second)
            while not editor.published[second.as_uri()].diagnostics:
                await asyncio.sleep(0.05)
            saved(second.with_name("pyproject.toml"), "[tool.autodist]\nstrategy = 3\n")
            editor.save(second)
            while not editor.messages:
                await asyncio.sleep(0.05)
            assert "strategy" in editor.messages[0] and "Traceback" not in editor.messages[0]

    asyncio.run(asyncio.wait_for(run(), 120))


@pytest.mark.parametrize(("encoding", "start"), [("utf-16", 23), ("utf-8", 26), ("utf-32", 22)])
def test_places_are_counted_as_the_editor_does(tmp_path: Path, encoding: str, start: int) -> None:
    line = "            torch.save(model.module.state_dict(), "
    text = BY_ALL.replace(line, f'            x = "é𝒳"; {line.lstrip()}')
    path = saved(tmp_path / "train.py", text)

    async def work(editor: Editor) -> None:
        editor.open(path)
        (found,) = await editor.found(path)
        assert found.code == "AD301" and found.range.start.character == start

    edited(tmp_path, work, encoding=encoding)


def test_what_trains_nothing_is_left_alone(tmp_path: Path) -> None:
    path = saved(tmp_path / "notes.py", "import torch\n\nprint(torch.zeros(3))\n")

    async def work(editor: Editor) -> None:
        editor.open(path)
        assert not await editor.found(path) and not editor.messages
        editor.change(path, ONE_PROCESS)
        assert await editor.found(path)

    edited(tmp_path, work)


def test_only_the_last_of_many_changes_counts(tmp_path: Path) -> None:
    path = saved(tmp_path / "train.py", script(300))

    async def work(editor: Editor) -> None:
        editor.open(path)
        versions = []
        for number in range(30):
            editor.change(path, script(300) + f"# {number}\n")
            await asyncio.sleep(0.02)
            versions += [each.version for each in editor.published.values()]
        assert not await editor.found(path, timeout=20)
        assert len(set(versions)) < 10  # the others were dropped

    edited(tmp_path, work)


def test_a_run_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new process answers what is asked next."""
    monkeypatch.setattr(process, "PATIENCE", 0.2)
    slow = "import torch\nfrom torch.utils.data import DataLoader\n" + "def f(x):\n    return x\n" * 60_000

    async def run() -> None:
        checks = process.Checks()
        asked: dict[str, Any] = {"entry": "/train.py", "folder": "/", "encoding": "utf-16"}
        first = asyncio.create_task(checks.ask({**asked, "texts": {"/train.py": slow}}))
        await asyncio.sleep(1)
        before = await checks.start()
        first.cancel()
        answer = await checks.ask({**asked, "texts": {"/train.py": NO_EPOCH}})
        assert [each["code"] for each in answer["findings"]] == ["AD202"] and before.returncode
        await checks.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_without_pygls_it_says_what_to_install(autodist: Autodist, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "autodist.lsp.server", None)
    result = autodist("lsp")
    assert result.exit_code == 2 and "pip install 'torch-autodist[lsp]'" in result.stderr
