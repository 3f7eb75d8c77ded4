"""Reading cases, cassettes and `suite.yaml`: bytes in, strict models out, every mistake a problem with its place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from pytest_packbench.model.case import LoadedCase, canonical_sha256
from pytest_packbench.model.cassette import Cassette
from pytest_packbench.model.errors import (
    CaseError,
    CassetteError,
    InputError,
    Problem,
    SuiteError,
    format_value,
    suggestion,
    validation_problems,
)
from pytest_packbench.model.suite import CONFIG_NAME, Suite, SuiteConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_packbench.model.case import Case


ModelT = TypeVar("ModelT", bound=BaseModel)


class JsonError(ValueError):
    """A text is no JSON as it is read here.

    Attributes:
        problem: what is wrong in it, with line and column where they are known.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def parse_json(raw: bytes) -> Any:
    """Parse a JSON document of the user's.

    Stricter than `json`: a key given twice, NaN and infinities are refused, for whichever reader
    comes next would see another document. A byte order mark is tolerated.

    Raises:
        JsonError: it is none.
    """
    try:
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        place = f"byte {error.start} is not UTF-8"
        raise JsonError(Problem("", place, "save the file as UTF-8")) from None
    except json.JSONDecodeError as error:
        raise JsonError(_not_json(error)) from None
    except RecursionError:
        raise JsonError(Problem("", "nested too deeply", "expected a JSON object of a few levels")) from None
    except JsonError:
        raise
    except ValueError:
        # Python reads no integer of more than 4,300 digits
        raise JsonError(Problem("", "holds a number of thousands of digits", "expected a number")) from None


def parse_case(raw: bytes, model: type[Case], *, source: str, stem: str | None, pack: str | None) -> LoadedCase:
    """Read one case.

    Args:
        raw: the file's bytes.
        model: the pack's case model.
        source: how to call the file in an error.
        stem: the file's stem, which has to be the id; None where the case doesn't come from a file of its own.
        pack: the suite's pack, which has to be the case's; None to take any.

    Raises:
        CaseError: one line with file, JSON pointer, what is wrong, what was expected.
    """
    try:
        data = parse_json(raw)
    except JsonError as error:
        raise CaseError(source, [error.problem]) from None
    return check_case(data, model, source=source, stem=stem, pack=pack)


def check_case(data: object, model: type[Case], *, source: str, stem: str | None, pack: str | None) -> LoadedCase:
    """Validate one case that was parsed already; arguments and errors as in `parse_case`."""
    case = _validated(data, model, source, CaseError)
    if stem is not None and case.id != stem:
        problem = Problem("/id", f"got {format_value(case.id)}", f'expected "{stem}", as the file is called')
        raise CaseError(source, [problem])
    if pack is not None and case.pack_id != pack:
        problem = Problem("/pack_id", f"got {format_value(case.pack_id)}", f'expected "{pack}", the pack of this suite')
        raise CaseError(source, [problem])
    # `data` is an object here, or the model would have refused it
    input_sha256 = canonical_sha256(data["input"])  # type: ignore[index]  # see above
    return LoadedCase(case=case, sha256=case_sha256(data), input_sha256=input_sha256)


def case_sha256(data: object) -> str:
    """Hash a case that was parsed: all of it but its `$schema`."""
    plain = {key: value for key, value in data.items() if key != "$schema"} if isinstance(data, dict) else data
    return canonical_sha256(plain)


def load_cassette(path: Path, *, source: str) -> tuple[Cassette, str]:
    """Read a cassette and give it with the hash of its meaning; `source` is how to call its file in an error.

    Raises:
        FileNotFoundError: there is none.
        CassetteError: one line with file, pointer, what is wrong, what was expected.
    """
    try:
        data = parse_json(path.read_bytes())
    except JsonError as error:
        raise CassetteError(source, [error.problem]) from None
    return _validated(data, Cassette, source, CassetteError), canonical_sha256(data)


def read_config(path: Path, models: Mapping[str, type[SuiteConfig]], *, source: str) -> SuiteConfig:
    """Read the `suite.yaml` of a suite's folder.

    Args:
        path: the folder.
        models: the packs that are known, with their suite models.
        source: how to call the file in an error.

    Raises:
        SuiteError: one line with file, pointer, what is wrong, what was expected.
    """
    import yaml  # a run without suites needs no YAML

    try:
        text = (path / CONFIG_NAME).read_text("utf-8-sig")
        data = yaml.load(text, Loader=_yaml_loader())  # noqa: S506 - a safe loader, only stricter
    except JsonError as error:
        raise SuiteError(source, [error.problem]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(source, [Problem("", f"can't be read: {error}", "expected a UTF-8 file")]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1} column {mark.column + 1}: " if mark else ""
        wrong = f"{place}not YAML: {getattr(error, 'problem', None) or error}"
        raise SuiteError(source, [Problem("", wrong, "expected keys and values")]) from None
    except (ValueError, RecursionError):
        # a date that is none, a number of thousands of digits, a thousand levels
        raise SuiteError(source, [Problem("", "holds a value that YAML can't read", "expected plain values")]) from None
    name = data.get("pack") if isinstance(data, dict) else None
    if not isinstance(name, str):
        wrong = 'the key "pack" is missing' if isinstance(data, dict) else f"got {format_value(data)}"
        raise SuiteError(source, [Problem("/pack", wrong, f"expected one of: {', '.join(sorted(models))}")])
    if name not in models:
        raise SuiteError(source, [Problem("/pack", f'no pack is called "{name}"', suggestion(name, sorted(models)))])
    return _validated(data, models[name], source, SuiteError)


def scoring_sha256(config: SuiteConfig) -> str:
    """Hash the rules that turn an answer into a score and a score into passed or failed.

    All that `suite.yaml` says counts, a pack's own rules and all defaults too, but for `config.not_scoring`: what the
    run demands of all cases together, what is run and by whom, what it costs, and words for people change no score.
    """
    return canonical_sha256(config.model_dump(mode="json", exclude=set(config.not_scoring)))


def read_suite(
    path: Path, models: Mapping[str, type[SuiteConfig]], *, source: str, name: str = "", bundled: bool = False
) -> Suite:
    """Read a suite's rules; no case is read.

    Args:
        path: the suite's folder.
        models: the packs that are known, with their suite models.
        source: how to call its `suite.yaml` in an error.
        name: the suite's name; its folder's where it is empty.
        bundled: whether it comes with the installed package.

    Raises:
        SuiteError: one line with file, pointer, what is wrong, what was expected.
    """
    rules = read_config(path, models, source=source)
    return Suite(name=name or path.name, path=path, config=rules, sha256=scoring_sha256(rules), bundled=bundled)


def _not_json(error: json.JSONDecodeError) -> Problem:
    before = error.doc[: error.pos].rstrip()
    # a comma that nothing follows is what people leave there most often
    comma = None
    if error.msg.startswith("Illegal trailing comma"):
        # Python from 3.13 on names the comma itself
        comma = error
    elif before.endswith(",") and error.doc[error.pos : error.pos + 1] in {"}", "]"}:
        comma = json.JSONDecodeError(error.msg, error.doc, len(before) - 1)
    place = comma or error
    where = f"line {place.lineno} column {place.colno}"
    if comma is not None:
        return Problem("", f"{where}: a comma too many", "take out the comma before the closing bracket")
    # what begins otherwise, or goes on after its end, is more than a slip inside
    whole = not before or error.msg == "Extra data"
    return Problem("", f"{where}: not JSON: {error.msg}", "expected one JSON object" if whole else "expected JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add() returns None, which is the point
        raise JsonError(Problem("", f'the key "{twice}" stands twice in one object', "keep one"))
    return result


def _no_constant(word: str) -> float:
    raise JsonError(Problem("", f"{word} is not JSON", "expected a finite number or null"))


def _yaml_loader() -> Any:
    """Make a safe loader that refuses a key given twice and leaves dates text, as JSON has them."""
    import yaml

    class Strict(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012 - pyyaml keeps them on the class
            first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
            for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - pyyaml's own signature
            nodes = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            keys = [self.construct_object(key, deep=True) for key in nodes]
            for position, key in enumerate(keys):
                if key in keys[:position]:
                    place = f"line {nodes[position].start_mark.line + 1}: "
                    raise JsonError(Problem("", f'{place}the key "{key}" stands twice', "keep one"))
            return super().construct_mapping(node, deep)

    return Strict


def _validated(data: object, model: type[ModelT], source: str, error_type: type[InputError]) -> ModelT:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise error_type(source, validation_problems(error, model)) from None
    except Exception as error:
        # a pack's model may be anybody's, and one bad file hides no other
        wrong = f"the pack's {model.__name__} raised {type(error).__name__}: {' '.join(str(error).split())}"
        raise error_type(source, [Problem("", wrong, "expected a model that takes it or says why not")]) from error
