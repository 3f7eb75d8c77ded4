"""The weight of the package: what `python -m benchmarks.architecture --tokens` counts, and what it leaves out."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.architecture import main
from benchmarks.weight import Weight, by_folder, difference, weigh_source, weight_lines

LONG = "x" * 100


@pytest.mark.parametrize(
    ("source", "counted"),
    [
        ("", Weight()),
        ("# a comment\n\n", Weight()),
        ('"""A docstring."""\n', Weight(docs=1)),
        ("a = 1\n", Weight(tokens=3)),
        ('LIMIT = 3\n"""What it limits."""\n', Weight(tokens=3, docs=1)),
        ('def f(x):\n    """Say."""\n    return x + 1  # why\n', Weight(tokens=10, docs=1, functions=1)),
        ("class A:\n    async def f(self): ...\n", Weight(tokens=11, classes=1, functions=1)),
        ("print(f'{a} and {f(b)!r}', f'{f\"{c}\"}')\n", Weight(tokens=6)),
        ("say('''two\nlines''')\n", Weight(tokens=4)),
        (f"TEXT = '{LONG}'\n", Weight(tokens=3, strings=100)),
        (f"TEXT = ('{LONG[:50]}'\n    '{LONG[:50]}')\n", Weight(tokens=6, strings=100)),
        (f"TEXT = f'{LONG}{{a}}'\n", Weight(tokens=3, strings=100)),
        (f"TEXT = b'{LONG}', '{LONG[1:]}'\n", Weight(tokens=5, strings=100)),
        (f"'''{LONG}'''\n", Weight(docs=1)),
    ],
)
def test_a_source_weighs(source: str, counted: Weight) -> None:
    assert weigh_source(source) == counted


def test_each_file_is_counted_once_and_by_its_folder() -> None:
    files = [
        ("a.py", b"a\n"),
        ("packs/one/b.py", b"a\n"),
        ("packs/one/deep/c.html", "ä".encode()),
        ("packs/one/d.js", b"12"),
        ("packs/one/e.yaml", b"a: 1"),
    ]
    assert by_folder(files) == {
        ".": Weight(tokens=1),
        "packs/one": Weight(tokens=1, templates=1, scripts=2, data=4),
    }


def test_a_difference_names_folders_that_came_and_went() -> None:
    assert difference({"old": Weight(3), "same": Weight(1)}, {"new": Weight(2), "same": Weight(1)}) == {
        "new": Weight(2),
        "old": Weight(-3),
    }


def test_commits_and_the_working_tree_are_compared(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=b", *words], check=True)

    module = tmp_path / "package" / "packs" / "m.py"
    module.parent.mkdir(parents=True)
    git("init", "-q")
    for text in ("a = 1\n", "a = 1 + 2\n"):
        module.write_text(text, encoding="utf-8")
        git("add", ".")
        git("commit", "-qm", "one")
    module.write_text("a\n", encoding="utf-8")
    (tmp_path / "package" / "new.py").write_text("a = b\n", encoding="utf-8")

    def tokens(*commits: str) -> dict[str, str]:
        rows = weight_lines(tmp_path, "package", list(commits))[1:]
        return {row[:24].strip(): row[24:].split()[0] for row in rows}

    assert tokens() == {".": "3", "packs": "1", "total without packs": "3", "total": "4"}
    assert tokens("HEAD") == {".": "+3", "packs": "-4", "total without packs": "+3", "total": "-1"}
    assert tokens("HEAD~1", "HEAD") == {"packs": "+2", "total without packs": "+0", "total": "+2"}


def test_the_command_counts_this_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tokens"]) == 0
    assert "total without packs" in capsys.readouterr().out
