"""The language server: which scripts to check when a text changes, and how editors are told what is found."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from autodist import registry
from autodist.lsp.process import Checks
from autodist.report import rules, tool_version

DELAY = 0.1
"""Seconds after a change before scripts are checked: who types goes on."""
SEVERITIES = {
    "note": types.DiagnosticSeverity.Information,
    "warning": types.DiagnosticSeverity.Warning,
    "refusal": types.DiagnosticSeverity.Error,
}
FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.autodist"
CONVERT = f"{types.CodeActionKind.RefactorRewrite.value}.autodist"
WATCHED = ("**/*.py", "**/pyproject.toml")


@dataclass
class Script:
    """An open file that is checked as a script, with what was found when it was checked last."""

    uri: str
    path: Path
    task: asyncio.Task[None] | None = None
    texts: dict[str, int] = field(default_factory=dict)
    """The versions of the texts that the findings are of, by path."""
    answer: dict[str, Any] = field(default_factory=lambda: {"files": [], "findings": []})

    def findings(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """What is found in a file, with its numbers."""
        for number, found in enumerate(self.answer["findings"]):
            if found["path"] == str(path):
                yield number, found


class Server(LanguageServer):
    """What is open, and what has been said of it."""

    def __init__(self) -> None:
        super().__init__("autodist", tool_version(), max_workers=2)
        self.checks = Checks()
        self.scripts: dict[Path, Script] = {}
        self.shown: dict[str, list[types.Diagnostic]] = {}
        self.complained: set[str] = set()

    @property
    def open(self) -> dict[Path, str]:
        """The URIs of the Python files that the editor holds, by resolved path."""
        named = ((uris.to_fs_path(uri), uri) for uri in self.workspace.text_documents)
        return {Path(path).resolve(): uri for path, uri in named if path and path.endswith((".py", ".pyw"))}

    def changed(self, paths: Iterable[Path], delay: float = 0.0) -> None:
        """Check the scripts again that read one of these files."""
        held, paths = self.open, {*paths}
        for path in paths & held.keys() - self.scripts.keys():
            if not self._is_module(path):
                self.scripts[path] = Script(held[path], path)
        for path in self.scripts.keys() - held.keys():
            self._drop(self.scripts.pop(path))
        for script in self.scripts.values():
            if script.path in paths or paths & {Path(each) for each in script.answer["files"]}:
                if script.task is not None:
                    script.task.cancel()
                script.task = asyncio.create_task(self._check(script, delay))
        self.show()

    def _drop(self, script: Script) -> None:
        if script.task is not None:
            script.task.cancel()

    def _is_module(self, path: Path) -> bool:
        """Whether another open script reads a file, which is no script by itself."""
        reading = [each.answer for each in self.scripts.values() if each.path != path]
        return any(str(path) in each["files"] and str(path) not in each["starts"] for each in reading)

    def request(self, script: Script) -> dict[str, Any]:
        """What the process is asked of a script."""
        texts = {str(path): self.workspace.get_text_document(uri).source for path, uri in self.open.items()}
        above = [Path(each) for each in map(uris.to_fs_path, self.workspace.folders) if each]
        around = [each for each in above if each.resolve() in script.path.parents]
        folder = max(around, key=lambda each: len(each.parts), default=script.path.parent)
        encoding = self.workspace.position_encoding
        return {"entry": str(script.path), "texts": texts, "folder": str(folder), "encoding": encoding}

    def versions(self) -> dict[str, int]:
        """Of the texts that the editor holds."""
        held = self.open.items()
        return {str(path): self.workspace.get_text_document(uri).version or 0 for path, uri in held}

    async def _check(self, script: Script, delay: float) -> None:
        await asyncio.sleep(delay)
        versions = self.versions()
        answer = await self.checks.ask(self.request(script))
        if "error" in answer:  # the last findings stay
            self.complain(answer)
            return
        script.answer, script.texts = answer, versions
        modules = [path for path in self.scripts if path != script.path and self._is_module(path)]
        for path in modules:
            self._drop(self.scripts.pop(path))
        self.show({str(script.path), *answer["files"]})

    def complain(self, answer: dict[str, Any]) -> None:
        """Say what keeps a script from being checked, once; not that a text is unfinished."""
        if not answer["unfinished"] and answer["error"] not in self.complained:
            self.complained.add(answer["error"])
            self.window_show_message(types.ShowMessageParams(types.MessageType.Error, f"autodist: {answer['error']}"))

    def show(self, checked: Collection[str] = ()) -> None:
        """Publish the findings of the files that have been checked, and where others have changed."""
        found: dict[str, dict[tuple[Any, ...], types.Diagnostic]] = {each: {} for each in checked}
        versions: dict[str, int] = {}
        for script in self.scripts.values():
            versions |= script.texts
            for each in script.answer["findings"]:
                key = each["code"], tuple(each["start"]), each["message"]
                found.setdefault(each["path"], {})[key] = diagnostic(each)
        held = self.open
        for path in self.shown.keys() | found.keys():
            items = [*found.get(path, {}).values()]
            if path in checked or items != self.shown.get(path, []):
                uri = held.get(Path(path)) or uris.from_fs_path(path) or ""
                version = versions.get(path) if Path(path) in held else None
                self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, items, version))
            self.shown[path] = items
        self.shown = {path: items for path, items in self.shown.items() if items}

    def at(self, uri: str, place: types.Range) -> Iterator[tuple[Script, int, dict[str, Any]]]:
        """The findings at a place of a file, each with its script and its number."""
        path = Path(uris.to_fs_path(uri) or "").resolve()
        for script in self.scripts.values():
            for number, found in script.findings(path):
                if tuple(found["start"]) <= _pair(place.end) and _pair(place.start) <= tuple(found["end"]):
                    yield script, number, found

    def is_current(self, script: Script) -> bool:
        """Whether the findings of a script are of the texts as they are."""
        read, now = script.answer["files"], self.versions()
        return all(script.texts.get(each) == now.get(each) for each in read)

    def actions(self, uri: str, place: types.Range) -> Iterator[types.CodeAction]:
        """What can be done about the findings at a place, and about all of a script."""
        seen: list[Script] = []
        for script, number, found in self.at(uri, place):
            if not self.is_current(script):
                continue
            if found["safe"] and script.answer["joins_ranks"]:
                title = f"{found['code']}: {registry.load()[found['code']].summary.rstrip('.')}"
                yield self._action(script, title, types.CodeActionKind.QuickFix.value, [number], [diagnostic(found)])
            if script not in seen:
                seen.append(script)
        path = Path(uris.to_fs_path(uri) or "").resolve()
        seen += [each for each in self.scripts.values() if each.path == path and each not in seen]
        for script in filter(self.is_current, seen):
            findings = script.answer["findings"]
            if not findings or any(each["severity"] == "refusal" for each in findings):
                continue
            if not script.answer["joins_ranks"]:
                title = f"Convert {script.path.name} to {script.answer['strategy'].upper()}"
                yield self._action(script, title, CONVERT, "convert")
            elif any(each["safe"] for each in findings):
                yield self._action(script, "Fix all that autodist can fix safely", FIX_ALL, "safe")

    def _action(
        self,
        script: Script,
        title: str,
        kind: str,
        fix: str | list[int],
        of: Sequence[types.Diagnostic] | None = None,
    ) -> types.CodeAction:
        data = {"script": str(script.path), "fix": fix, "versions": script.texts}
        return types.CodeAction(title, kind, of, data=data)

    async def with_edit(self, action: types.CodeAction) -> types.CodeAction:
        """An action with what it changes, unless the texts have changed since it was offered."""
        data: Any = action.data
        script = self.scripts.get(Path(data["script"]))
        if script is None or data["versions"] != script.texts or not self.is_current(script):
            return action
        answer = await self.checks.ask({**self.request(script), "fix": data["fix"]})
        if "error" in answer:
            self.complain(answer)
        elif self.is_current(script):
            action.edit = self._edit(answer["edits"])
        return action

    def _edit(self, changes: dict[str, list[tuple[int, int, str]]]) -> types.WorkspaceEdit:
        held, edits = self.open, list[Any]()
        for name, hunks in changes.items():
            uri = held.get(Path(name))
            version = self.workspace.get_text_document(uri).version if uri is not None else None
            ranges = (types.Range(types.Position(start, 0), types.Position(end, 0)) for start, end, _ in hunks)
            texts = [types.TextEdit(place, text) for place, (_, _, text) in zip(ranges, hunks, strict=True)]
            document = types.OptionalVersionedTextDocumentIdentifier(uri or uris.from_fs_path(name) or "", version)
            edits.append(types.TextDocumentEdit(document, texts))
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.workspace_edit and workspace.workspace_edit.document_changes:
            return types.WorkspaceEdit(document_changes=edits)
        return types.WorkspaceEdit(changes={each.text_document.uri: each.edits for each in edits})


def diagnostic(found: dict[str, Any]) -> types.Diagnostic:
    """A finding as the protocol has it."""
    return types.Diagnostic(
        types.Range(types.Position(*found["start"]), types.Position(*found["end"])),
        f"{found['message']}\n`autodist rule {found['code']}` says more.",
        SEVERITIES[found["severity"]],
        found["code"],
        source="autodist",
    )


def _pair(place: types.Position) -> tuple[int, int]:
    return place.line, place.character


def _page(code: str) -> str:
    return rules.page(registry.load()[code], registry.examples(code))


def make() -> Server:
    """The server, with what it answers to."""
    server = Server()

    @server.feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:
        await asyncio.gather(server.checks.start(), asyncio.to_thread(registry.load), _watch(server))

    @server.feature(types.SHUTDOWN)
    async def shutdown(*_: Any) -> None:
        await server.checks.stop()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: types.DidOpenTextDocumentParams) -> None:
        server.changed(_paths(params.text_document.uri))

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: types.DidChangeTextDocumentParams) -> None:
        server.changed(_paths(params.text_document.uri), DELAY)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(params: types.DidSaveTextDocumentParams) -> None:
        server.changed(_paths(params.text_document.uri))

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: types.DidCloseTextDocumentParams) -> None:
        left = server.open.keys() - server.scripts.keys()  # which it may have read; of modules, the file counts again
        server.changed([*_paths(params.text_document.uri), *left])

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def written(params: types.DidChangeWatchedFilesParams) -> None:
        paths = [path for each in params.changes for path in _paths(each.uri)]
        options = any(each.name == "pyproject.toml" for each in paths)
        server.changed([*server.scripts] if options else paths, DELAY)

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    async def folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        server.changed([*server.scripts])

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        place = types.Range(params.position, params.position)
        found = {each["code"]: each for _, _, each in server.at(params.text_document.uri, place)}
        pages = [f"{each['message']}\n\n{await asyncio.to_thread(_page, code)}" for code, each in found.items()]
        text = "\n\n---\n\n".join(pages)
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text)) if pages else None

    options = types.CodeActionOptions([types.CodeActionKind.QuickFix, FIX_ALL, CONVERT], resolve_provider=True)

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        found = [*server.actions(params.text_document.uri, params.range)]
        if (only := params.context.only) is not None:
            wanted = tuple(each.value if isinstance(each, types.CodeActionKind) else each for each in only)
            found = [each for each in found if any(f"{each.kind}.".startswith(f"{kind}.") for kind in wanted)]
        return found if _resolves(server) else [await server.with_edit(each) for each in found]

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolved(action: types.CodeAction) -> types.CodeAction:
        return await server.with_edit(action)

    return server


def _paths(uri: str) -> list[Path]:
    path = uris.to_fs_path(uri)
    return [Path(path).resolve()] if path else []


def _resolves(server: Server) -> bool:
    """Whether the client asks for the edit of an action once that is chosen."""
    text = server.client_capabilities.text_document
    support = text.code_action.resolve_support if text is not None and text.code_action is not None else None
    return support is not None and "edit" in support.properties


async def _watch(server: Server) -> None:
    """Be told of files that others write, where the client can tell."""
    workspace = server.client_capabilities.workspace
    watched = workspace.did_change_watched_files if workspace is not None else None
    if watched is None or not watched.dynamic_registration:
        return
    options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher(each) for each in WATCHED])
    registration = types.Registration("files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
    await server.client_register_capability_async(types.RegistrationParams([registration]))


def serve() -> None:
    """Answer on standard input and output until the client goes."""
    make().start_io()
