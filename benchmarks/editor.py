"""How soon do findings stand in the editor? ``make bench-editor``

A client of the language server opens a script of 300 lines that distributes itself, types into it, and waits for what
is found in each text. The time is from the change to the diagnostics, with the pause that the server waits for more.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

SCRIPT = Path(__file__).parent / "hand_written" / "torchrun_functions.py"
LINES, CHANGES, WANTED = 300, 20, 0.5


class Editor:
    """An editor, as far as the server is concerned."""

    def __init__(self, *folders: Path, resolves: bool = True, encoding: str = "utf-16") -> None:
        self.folders, self.resolves, self.encoding = folders, resolves, encoding
        self.client = LanguageClient("editor", "1")
        self.published: dict[str, types.PublishDiagnosticsParams] = {}
        self.messages: list[str] = []
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self._news = asyncio.Event()

    async def __aenter__(self) -> Editor:
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.published[params.uri] = params
            self._news.set()

        def told(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)

        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(published)
        self.client.feature(types.WINDOW_SHOW_MESSAGE)(told)
        resolve = types.ClientCodeActionResolveOptions(["edit"]) if self.resolves else None
        capabilities = types.ClientCapabilities(
            text_document=types.TextDocumentClientCapabilities(
                code_action=types.CodeActionClientCapabilities(resolve_support=resolve)
            ),
            workspace=types.WorkspaceClientCapabilities(
                workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=self.resolves)
            ),
            general=types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind(self.encoding)]),
        )
        folders = [types.WorkspaceFolder(each.as_uri(), each.name) for each in self.folders]
        await self.client.start_io(sys.executable, "-m", "autodist", "lsp")
        self.told = await self.client.initialize_async(
            types.InitializeParams(capabilities, workspace_folders=folders, root_uri=None)
        )
        self.client.initialized(types.InitializedParams())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()  # type: ignore[no-untyped-call]

    def open(self, path: Path, text: str | None = None) -> None:
        """Open a file, or a text that is not saved yet."""
        uri = path.as_uri()
        self.texts[uri] = path.read_text(encoding="utf-8") if text is None else text
        self.versions[uri] = 1
        item = types.TextDocumentItem(uri, "python", 1, self.texts[uri])
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def change(self, path: Path, text: str) -> None:
        """Replace the text of an open file."""
        uri = path.as_uri()
        self.texts[uri] = text
        self.versions[uri] += 1
        document = types.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        whole = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [whole]))

    def save(self, path: Path) -> None:
        """Write an open file."""
        path.write_text(self.texts[path.as_uri()], encoding="utf-8")
        document = types.TextDocumentIdentifier(path.as_uri())
        self.client.text_document_did_save(types.DidSaveTextDocumentParams(document))

    def close(self, path: Path) -> None:
        """Close a file."""
        document = types.TextDocumentIdentifier(path.as_uri())
        self.versions.pop(path.as_uri())
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(document))

    async def found(self, path: Path, timeout: float = 60.0) -> Sequence[types.Diagnostic]:
        """What is found in the text as it is now, or in the file where it is not open."""
        uri = path.as_uri()
        wanted = self.versions.get(uri)
        deadline = perf_counter() + timeout
        while uri not in self.published or self.published[uri].version != wanted:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), deadline - perf_counter())
        return self.published[uri].diagnostics

    async def actions(self, path: Path, line: int, only: Sequence[Any] | None = None) -> list[types.CodeAction]:
        """What can be done about a line, counted from 0."""
        place = types.Range(types.Position(line, 0), types.Position(line, 0))
        last = types.Range(types.Position(line, 0), types.Position(line, 999))
        context = types.CodeActionContext([], only=only)
        document = types.TextDocumentIdentifier(path.as_uri())
        params = types.CodeActionParams(document, last if only is None else place, context)
        found = await self.client.text_document_code_action_async(params) or []
        return [each for each in found if isinstance(each, types.CodeAction)]

    async def edit(self, action: types.CodeAction) -> dict[str, str]:
        """The texts that an action makes, by URI."""
        made = await self.client.code_action_resolve_async(action) if action.edit is None else action
        if made.edit is None:
            return {}
        edits: dict[str, Sequence[Any]] = dict(made.edit.changes or {})
        for each in made.edit.document_changes or ():
            assert isinstance(each, types.TextDocumentEdit)
            assert each.text_document.version == self.versions.get(each.text_document.uri)
            edits[each.text_document.uri] = each.edits
        return {uri: applied(self.texts.get(uri, ""), each) for uri, each in edits.items()}


def applied(text: str, edits: Sequence[types.TextEdit]) -> str:
    """A text with edits of whole lines."""
    lines = text.splitlines(keepends=True)
    for each in sorted(edits, key=lambda each: each.range.start.line, reverse=True):
        lines[each.range.start.line : each.range.end.line] = [each.new_text]
    return "".join(lines)


def script(lines: int) -> str:
    """A script of so many lines that distributes itself."""
    text = SCRIPT.read_text(encoding="utf-8")
    head, mark, rest = text.partition("\ndef main(")
    assert mark
    number = 0
    while text.count("\n") < lines:
        head += f"\n\ndef smoothed_{number}(values, weight):\n    total = 0.0\n"
        head += "    for value in values:\n        total = weight * total + (1 - weight) * value\n    return total\n"
        text, number = head + mark + rest, number + 1
    return text


async def _measured() -> list[float]:
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / "train.py"
        text = script(LINES)
        assert "sampler.set_epoch(epoch)" in text
        path.write_text(text, encoding="utf-8")
        async with Editor(path.parent) as editor:
            editor.open(path)
            assert not await editor.found(path)
            for number in range(CHANGES):
                wrong = text.replace("sampler.set_epoch(epoch)", f"pass  # {number}")
                started = perf_counter()
                editor.change(path, wrong if number % 2 == 0 else text)
                found = await editor.found(path)
                seconds.append(perf_counter() - started)
                assert bool(found) is (number % 2 == 0), found
    return seconds


if __name__ == "__main__":
    seconds = asyncio.run(_measured())
    print(f"{LINES} lines, {CHANGES} changes: findings after {statistics.median(seconds):.2f} s (median), ", end="")
    print(f"{max(seconds):.2f} s at most; wanted: {WANTED} s")
    sys.exit(statistics.median(seconds) > WANTED)
