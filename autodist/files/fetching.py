"""What fetches files, or unpacks them."""

from __future__ import annotations

import ast

from autodist.files.looking import tests_files
from autodist.interpreter import Event, Interpreter
from autodist.source import all_of, last_name
from autodist.values import NOTHING, External

OWN_FORMATS = frozenset("csv json text parquet arrow pandas imagefolder audiofolder videofolder webdataset xml".split())
"""What `datasets.load_dataset` reads from files that are there."""
COMMANDS = ("os.system", "subprocess.run", "subprocess.call", "subprocess.check_call")
FETCHING = frozenset(
    [
        "urllib.request.urlretrieve",
        "wget.download",
        "gdown.download",
        "torch.hub.download_url_to_file",
        "torchvision.datasets.utils.download_and_extract_archive",
        "shutil.unpack_archive",
        *COMMANDS,
    ]
)
"""What downloads, or unpacks, whether the file is there or not."""
UNPACKING_AGAIN = frozenset(
    f"torchvision.datasets.{name}"
    for name in ("VOCSegmentation", "VOCDetection", "SBDataset", "Places365", "Middlebury2014Stereo")
)
"""Data sets that with `download=True` unpack their archive each time that they are made."""


def downloads(node: ast.AST, run: Interpreter) -> bool:
    """Whether a call of the catalogue's downloading functions and classes is told to download."""
    assert isinstance(node, ast.Call)
    names = {t.name for t in run.values.get(node.func, NOTHING).things if isinstance(t, External)}
    told = {k.arg: run.values.get(k.value, NOTHING) for k in node.keywords if k.arg is not None}
    if any(
        name.startswith(("torchvision.datasets.", "torchaudio.datasets.")) and ".utils." not in name for name in names
    ):
        return "download" in told and told["download"].const not in (False, None)
    if "torch.hub.load" in names:
        local = "source" in told and told["source"].const == "local"
        without = any(
            k.arg in ("pretrained", "weights") and isinstance(k.value, ast.Constant) and not k.value.value
            for k in node.keywords
        )
        return not (local and without)
    if "datasets.load_dataset" in names:
        files = next((k.value for k in node.keywords if k.arg == "data_files"), None)
        known = told.get("path") or run.values.get(node.args[0], NOTHING) if node.args else told.get("path", NOTHING)
        return not (known.const in OWN_FORMATS and not _names_address(files))
    return True


def _names_address(node: ast.expr | None) -> bool:
    """`"https://example.org/train.csv"`"""
    texts = [n.value for n in all_of(node, ast.Constant)] if node is not None else []
    return any(isinstance(text, str) and "://" in text for text in texts)


def _extracts(node: ast.AST) -> bool:
    """`archive.extractall(path)`"""
    return isinstance(node, ast.Call) and last_name(node.func) == "extractall"


def is_fetched_whatever_is_there(event: Event, run: Interpreter) -> bool:
    """Whether files are fetched, or taken out of an archive, even if they are in place."""
    function = event.node.func if isinstance(event.node, ast.Call) else None
    names = {t.name for t in run.values.get(function, NOTHING).things if isinstance(t, External)} if function else set()
    return bool(names) and names <= FETCHING or any(event.detail.objects("file")) or _extracts(event.node)


def fetched_again(run: Interpreter) -> frozenset[ast.AST]:
    """The calls that fetch files, or unpack them, though another rank has put them in place: what reads these waits
    until no rank writes them any more."""
    again = set()
    for event in run.of("download"):
        tests = [n.test for n in event.source.ancestors(event.node) if isinstance(n, (ast.If, ast.IfExp))]
        called = event.node.func if isinstance(event.node, ast.Call) else None
        things = run.values.get(called, NOTHING).things if called is not None else ()
        names = {each.name for each in things if isinstance(each, External)}
        if not any(map(tests_files, tests)):
            if names & UNPACKING_AGAIN or is_fetched_whatever_is_there(event, run):
                again.add(event.node)
    return frozenset(again)
