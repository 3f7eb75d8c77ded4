"""Sessions of pytest in processes that are forked from a warm one, and what the stress commands have in common."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOME = Path(__file__).resolve().parents[2]
KEY = "sk-test-stress-0001"
PLUGINS = ("-pno:cacheprovider", "-ppytest_packbench.plugin", "-ppytest_jsonreport.plugin", "-pxdist.plugin")


def inherited() -> dict[str, str]:
    """Return the environment without the mark of a CI system, which refuses to record again."""
    return {name: value for name, value in os.environ.items() if name != "CI"}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the JSON lines of a file; none where there is no file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def case(number: int) -> dict[str, Any]:
    """Return a case that asks the model its number."""
    return {
        "id": f"case_{number:03}",
        "pack_id": "generic",
        "case_type": "plain",
        "difficulty": "easy",
        "input": {"text": f"question {number}"},
        "expected": {"answer": "ok"},
    }


def without_times(value: Any) -> Any:
    """Return JSON without what differs from run to run."""
    if isinstance(value, dict):
        names = {"run_id", "timestamp", "wall_clock_ms", "duration_ms", "cassette_sha256"}
        return {key: without_times(inner) for key, inner in value.items() if key not in names}
    return [without_times(inner) for inner in value] if isinstance(value, list) else value


class Warm:
    """A warm process that starts pytest in forked children."""

    def __enter__(self) -> Self:
        """Start it."""
        command = [sys.executable, "-m", "benchmarks.stress.session"]
        # looking for plugins takes longer than a run
        environment = {**inherited(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OPENAI_API_KEY": KEY}
        pipe = subprocess.PIPE
        self._session = 0
        self._process = subprocess.Popen(command, cwd=HOME, stdin=pipe, stdout=pipe, text=True, env=environment)
        return self

    def __exit__(self, *_raised: object) -> None:
        """End it."""
        self._end_session()
        self._process.communicate()

    def start(
        self, folder: Path, arguments: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})
    ) -> int:
        """Start pytest in a folder, with more environment variables; return the id of its process and of its group."""
        self._end_session()
        self._send({"cwd": str(folder), "arguments": [*PLUGINS, *arguments], "environment": dict(environment)})
        self._session = int(self._read())
        return self._session

    def wait(self) -> int:
        """Wait for the last session; return its exit code, negative for a signal."""
        self._session = 0
        return int(self._read())

    def _end_session(self) -> None:
        """End a session that nobody has waited for, as a test that fails leaves it."""
        if self._session:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._session, signal.SIGKILL)
            self.wait()

    def _send(self, command: dict[str, Any]) -> None:
        stdin: Any = self._process.stdin
        stdin.write(json.dumps(command) + "\n")
        stdin.flush()

    def _read(self) -> str:
        stdout: Any = self._process.stdout
        return str(stdout.readline())


def main() -> int:
    """Run pytest in a child for each line of standard input; print the child's id, and then its exit code."""
    # on a full disk, half of a compiled module would be left for all later runs
    sys.dont_write_bytecode = True
    import openai.resources.chat.completions
    import pytest

    import pytest_packbench.packs.generic.pack
    import pytest_packbench.pytest_plugin.prefetch
    import pytest_packbench.pytest_plugin.session
    import pytest_packbench.reports.story

    _ = (openai, pytest_packbench)
    with contextlib.redirect_stdout(io.StringIO()):
        # imports what children need
        pytest.main([*PLUGINS, "--version"])
    for line in sys.stdin:
        command = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            os.chdir(command["cwd"])
            os.environ.update(command["environment"])
            # a shell's background job ignores it
            signal.signal(signal.SIGINT, signal.default_int_handler)
            log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            code = int(pytest.main(command["arguments"]))
            sys.stdout.flush()
            os._exit(code)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
