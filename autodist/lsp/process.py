"""The other end of `checking`: a process that is asked one thing at a time, and is ended if it takes too long over what
nobody waits for any more."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from time import monotonic
from typing import Any

PATIENCE = 2.0
"""Seconds that a run may take whose answer is outdated; a new process takes one to start."""
LONGEST = 2**28
"""Bytes of an answer."""


class Checks:
    """Asks the process, and starts it again where it has ended."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._free = asyncio.Lock()
        self._run: asyncio.Future[dict[str, Any]] | None = None
        self._since = 0.0

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer. Who is cancelled while the process is at work leaves the run to itself."""
        async with self._free:
            await self._finished()
            self._since = monotonic()
            self._run = asyncio.ensure_future(self._exchange(request))
            return await asyncio.shield(self._run)

    async def start(self) -> Process:
        """Start the process, if there is none."""
        if self._process is None or self._process.returncode is not None:
            command = (sys.executable, "-m", "autodist.lsp.checking")
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=LONGEST
            )
        return self._process

    async def stop(self) -> None:
        """End the process."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        process = await self.start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        except ConnectionError:
            line = b""
        if not line:
            await self.stop()
            return {"error": f"the process that checks {request['entry']} has ended", "unfinished": False}
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _finished(self) -> None:
        """Wait for a run that nobody waits for, but not for long."""
        if self._run is None or self._run.done():
            return
        left = max(0.0, self._since + PATIENCE - monotonic())
        try:
            await asyncio.wait_for(asyncio.shield(self._run), left)
        except asyncio.TimeoutError:
            await self.stop()
            await self._run
