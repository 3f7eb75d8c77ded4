"""Make the pictures of a page that the documentation shows: `python docs/pictures.py`.

It runs `docs/examples/support` as its README describes, in a temporary folder, and takes pictures of the page of the
second run. It needs Chromium and the extras `dev` and `docs`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE / "examples" / "support"
IMAGES = HERE / "images"
NEXT_RELEASE = ("--packbench-target=support:answer_next", "--packbench-baseline=latest")
CASE = "refund_of_two_lamps"
WIDTH = 1280
HEIGHTS = {"page-verdict": 1180, "page-case": 900}
COLOURS = 128


def main() -> None:
    """Make the runs and the pictures."""
    parser = argparse.ArgumentParser(prog="python docs/pictures.py", description="pictures of the page of a run")
    parser.add_argument("--into", type=Path, default=IMAGES, metavar="DIR", help="default: docs/images")
    into: Path = parser.parse_args().into
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = run_both(Path(folder, "support"))
        take(page, into)
    for path in sorted(into.glob("*.png")):
        print(f"{path} {path.stat().st_size / 1000:.0f} KB")  # noqa: T201 - whoever runs the script reads it


def run_both(project: Path) -> Path:
    """Run both releases of the example; return the page of the second run."""
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("reports", "__pycache__", ".pytest_cache"))
    # the package of this checkout, installed or not
    environment = os.environ | {"PYTHONPATH": str(HERE.parent)}
    command = [sys.executable, "-m", "pytest", "-q", "--packbench-suite=support"]
    for options in ((), NEXT_RELEASE):
        subprocess.run([*command, *options], cwd=project, env=environment, check=False, stdout=subprocess.DEVNULL)
    runs = project / "reports" / "benchmarks" / "support"
    return runs / (runs / "latest").read_text("utf-8").strip() / "report.html"


def take(page: Path, into: Path) -> None:
    """Take the pictures: the page as it opens, and a new failure opened from it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for (name, height), address in zip(HEIGHTS.items(), ("", f"#case={CASE}"), strict=True):
            context = browser.new_context(viewport={"width": WIDTH, "height": height}, color_scheme="light")
            shown = context.new_page()
            shown.goto(page.as_uri() + address)
            if address:
                shown.locator("#case-view h1").wait_for()
            _save(shown.screenshot(), into / f"{name}.png")
            context.close()
        browser.close()


def _save(picture: bytes, path: Path) -> None:
    """Save a picture with few colours, which a page has: it takes a third of the bytes."""
    few = Image.open(BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


if __name__ == "__main__":
    main()
