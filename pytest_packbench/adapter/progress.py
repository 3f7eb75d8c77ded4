"""The progress line of a live run: under the line that pytest writes on, and only on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from pytest_packbench.adapter.ahead import Ahead


class Progress:
    """Says how far a run is while pytest waits for a case.

    Quiet where output is no terminal, with `-q`, and where pytest's terminal is switched off.
    """

    def __init__(self, config: pytest.Config, ahead: Ahead) -> None:
        self._config = config
        self._ahead = ahead
        self._shown = False
        self._wanted = False

    def tick(self) -> None:
        """Write the line anew."""
        self._below(self.text())
        self._shown = self._wanted = True

    def clear(self) -> None:
        """Take the line away before pytest writes."""
        if self._shown:
            self._below("")
            self._shown = False

    def again(self) -> None:
        """Write the line again after pytest wrote, where there was one."""
        if self._wanted and not self._shown:
            self.tick()

    def text(self) -> str:
        """Give the line: done and known attempts, mean score, tokens and cost so far, the oldest one's age."""
        progress, ledger = self._ahead.runner.progress(), self._ahead.runner.ledger
        count, total = self._ahead.scores
        parts = [
            f"packbench: {progress.done} of {progress.planned} done",
            f"mean score {total / count:.2f}" if count else "no score yet",
            f"{ledger.tokens:,} tokens",
        ]
        if ledger.cost:
            parts.append(f"{ledger.cost:.4f} {ledger.currency}")
        if progress.under_way:
            parts.append(f"{progress.under_way} under way, the oldest for {progress.oldest_s:.0f} s")
        return ", ".join(parts)

    def _below(self, text: str) -> None:
        """Write on the line below, and come back to where pytest writes."""
        plugins = self._config.pluginmanager
        reporter: Any = plugins.getplugin("terminalreporter")
        out = sys.__stdout__
        if reporter is None or out is None or not reporter.isatty or self._config.get_verbosity() < 0:
            return
        writer = self._config.get_terminal_writer()
        line = text[: writer.fullwidth - 1]
        column = min(writer.width_of_current_line, writer.fullwidth - 1) + 1
        moved = f"\n\r\x1b[K{line}\x1b[1A\x1b[{column}G"
        capture: Any = plugins.getplugin("capturemanager")
        writer.flush()
        if capture is None:
            out.write(moved)
            out.flush()
            return
        with capture.global_and_fixture_disabled():
            out.write(moved)
            out.flush()
