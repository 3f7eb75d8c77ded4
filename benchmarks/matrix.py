"""The versions that `pyproject.toml` declares, for the sessions of `noxfile.py`: no version stands in both files.

    python benchmarks/matrix.py [REQUIREMENT ...]

The command compares what its Python has installed with requirements such as `pytest==8.4`, prints the versions, and
ends with 1 where one differs, or where the package under test is not an installed one.
"""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "pytest-packbench"
ROOT = Path(__file__).parents[1]
# those whose lowest versions can't be installed with the lowest of all others: agentdojo and spaCy need a newer
# pydantic, as mcp 2.0 does, and take minutes to install
APART = ("agentdojo", "harmbench", "mcp")
# of the extra `dev`: what tests of the matrix import or start; all else there checks the code, at its newest version
TOOLS = (
    "aiohttp",
    "anthropic",
    "google-genai",
    "httpx",
    "hypothesis",
    "jsonschema",
    "ollama",
    "openai",
    "pytest-rerunfailures",
    "pytest-xdist",
    "teamcity-messages",
)
# the tests that use the packages of an extra, and what else these need
TESTS_OF_EXTRAS = {
    "agentdojo": ("tests/packs/agent_safety/test_agentdojo.py", "tests/packs/agent_safety/test_worlds.py"),
    "anthropic": ("tests/backends/test_backends.py", "-k", "anthropic"),
    "generic": ("tests/packs/generic",),
    "harmbench": ("tests/packs/agent_safety/test_harmbench.py",),
    "http": ("tests/engine/test_http_target.py",),
    "mcp": ("tests/packs/agent_safety/test_worlds.py", "-k", "mcp"),
    "ollama": ("tests/backends/test_backends.py", "-k", "ollama"),
    "openai": ("tests/backends/test_backends.py", "-k", "openai"),
    "prices": ("tests/engine/test_live_models.py",),
    "text": ("tests/packs/generic/test_criteria.py",),
}
NEEDED_BESIDE = {"mcp": ("agentdojo",)}
# the releases of pytest between the lowest, which is declared, and the newest: the last of each minor version, and the
# first of the major one
BETWEEN = ("8.4.*", "9.0.0", "9.0.*", "9.1.*")


@cache
def project() -> dict[str, Any]:
    """Return the table `project` of `pyproject.toml`."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def pythons() -> list[str]:
    """Return the versions of CPython that the classifiers name, oldest first, and the one after them."""
    matches = [re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", text) for text in project()["classifiers"]]
    minors = [int(match[1]) for match in matches if match]
    return [f"3.{minor}" for minor in [*minors, minors[-1] + 1]]


def extras() -> list[str]:
    """Return the extras that users install, which is all but those for developers."""
    return sorted(project()["optional-dependencies"].keys() - {"dev", "docs"})


def declared(extra: str = "") -> list[str]:
    """Return the requirements of the package, or those of an extra, that apply on this system.

    Args:
        extra: the name of an extra; empty for what every installation needs.
    """
    texts = project()["optional-dependencies"][extra] if extra else project()["dependencies"]
    requirements = [Requirement(text) for text in texts]
    return [str(each) for each in requirements if each.marker is None or each.marker.evaluate()]


def tools() -> list[str]:
    """Return what the tests of the matrix need beside the package and its extras."""
    return [text for text in declared("dev") if name_of(text) in TOOLS]


def beside_each_other() -> list[str]:
    """Return the requirements whose lowest versions are installed together."""
    together = [name for name in extras() if name not in APART]
    return list(dict.fromkeys([*declared(), *(text for name in together for text in declared(name)), *tools()]))


def lowest(text: str) -> str:
    """Return a requirement of exactly the lowest version of another: `a==1.2` for `a[b]>=1.2,<2`.

    Raises:
        ValueError: the requirement has no lower bound, so nobody knows with what it works.
    """
    requirement = Requirement(text)
    bounds = [each.version for each in requirement.specifier if each.operator == ">="]
    if len(bounds) != 1:
        raise ValueError(f"pyproject.toml: {text}: expected one lower bound, such as >=1.2")
    return f"{name_of(text)}=={bounds[0]}"


def name_of(text: str) -> str:
    """Return the normalised name of a requirement."""
    return canonicalize_name(Requirement(text).name)


def pytest_releases() -> list[str]:
    """Return requirements of pytest: the lowest declared, and the releases up to the one before the newest."""
    (declared_pytest,) = (text for text in declared() if name_of(text) == "pytest")
    return [lowest(declared_pytest), *(f"pytest=={release}" for release in BETWEEN)]


def main(arguments: list[str]) -> int:
    """Compare what is installed with requirements; the exit code is 1 where something differs."""
    spec = find_spec("pytest_packbench")
    problems: list[str] = []
    if spec is None or spec.origin is None or Path(spec.origin).is_relative_to(ROOT / "pytest_packbench"):
        problems.append(f"pytest_packbench: expected the one of an installed wheel, found {spec and spec.origin}")
    expected = [Requirement(text) for text in arguments]
    for name in dict.fromkeys([*(name_of(text) for text in beside_each_other()), *(each.name for each in expected)]):
        print(f"{name} {version(name)}")
    problems.extend(
        f"{each.name}: expected {each.specifier}, installed is {version(each.name)}"
        for each in expected
        if not each.specifier.contains(version(each.name), prereleases=True)
    )
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
