"""Run autodist as the inputs of the action say, annotate the pull request, and leave files for the next steps."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

MODES = ("check", "convert", "verify")


def command(env: Mapping[str, str], folder: Path) -> list[str]:
    """The command line of a mode."""
    mode = env["AUTODIST_MODE"]
    if mode not in MODES:
        raise SystemExit(f"error: mode is {mode!r}: check, convert or verify is wanted")
    named = shlex.split(env.get("AUTODIST_FILES", ""))
    if not named and mode != "check":
        raise SystemExit(f"error: mode {mode} needs `files`, which names the training script")
    files = named if mode == "verify" else _tracked(named or ["*.py"])
    if not files:
        raise SystemExit(f"error: no file of the repository is called {' or '.join(named or ['*.py'])}")
    strategy = env.get("AUTODIST_STRATEGY", "")
    options = ["--strategy", strategy] if strategy and not (mode == "verify" and len(files) > 1) else []
    options += [f"--output-format={name}={folder / file}" for name, file in DOCUMENTS[mode].items()]
    if mode == "verify":
        runs = ["--device", "cpu", "--nproc", env.get("AUTODIST_NPROC") or "2", "--report", str(folder / "report.html")]
        runs += ["--steps", env["AUTODIST_STEPS"]] if env.get("AUTODIST_STEPS") else []
        given = shlex.split(env.get("AUTODIST_ARGS", ""))
        return ["verify", *files, *options, *runs, *(["--", *given] if given else [])]
    return [mode, *files, *(["--diff"] if mode == "convert" else []), *options, "--output-format=github"]


DOCUMENTS = {
    "check": {"sarif": "autodist.sarif", "markdown": "summary.md"},
    "convert": {"json": "convert.json", "markdown": "summary.md"},
    "verify": {"json": "verify.json", "markdown": "summary.md"},
}


def _tracked(patterns: list[str]) -> list[str]:
    """The files of the repository that patterns name, as git reads them."""
    done = subprocess.run(["git", "ls-files", "-z", "--", *patterns], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"error: git cannot list the repository: {done.stderr.strip()} (check it out first)")
    return [name for name in done.stdout.split("\0") if name.endswith((".py", ".ipynb"))]


def main() -> None:
    """Run, and say in $GITHUB_OUTPUT how it ended and what there is: a failing command does not end the job yet."""
    env = os.environ
    folder = Path(env["RUNNER_TEMP"], f"autodist-{env['AUTODIST_MODE']}")
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.iterdir():
        left.unlink()
    status = subprocess.run([sys.executable, "-m", "autodist", *command(env, folder)], check=False).returncode
    summary = folder / "summary.md"
    if summary.exists() and env.get("GITHUB_STEP_SUMMARY"):
        with open(env["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as file:
            file.write(summary.read_text(encoding="utf-8"))
    made = {"sarif": folder / "autodist.sarif", "report": folder / "report.html"}
    told = " ".join(env.get(f"AUTODIST_{name}", "") for name in ("FILES", "STRATEGY", "ARGS"))
    with open(env["GITHUB_OUTPUT"], "a", encoding="utf-8") as file:
        file.write(f"status={status}\nfolder={folder}\nkey={sha256(told.encode()).hexdigest()[:8]}\n")
        file.writelines(f"{name}={path}\n" for name, path in made.items() if path.exists())


if __name__ == "__main__":
    main()
