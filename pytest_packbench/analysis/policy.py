"""Compare the acceptance policy of a suite with that of a base: every change that is not known to be tighter.

Both are trees with a value at each place. One table says for a place what a change of it is called, and when it makes
the policy tighter; another one how the place is named.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.errors import json_pointer
from pytest_packbench.model.gate import CHANGES
from pytest_packbench.model.policy import (
    ABSENT,
    CHANGES_NAME,
    MISSING,
    PRESENT,
    REMOVED,
    PolicyChange,
    same,
    short_digest,
    shown,
)
from pytest_packbench.model.suite import BASELINE_NAME, CONFIG_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_packbench.model.policy import AllowedChange, CaseFacts, Policy

    Place = tuple[str | int, ...]

_LOWER, _HIGHER = -1, 1
_BOUNDS = {
    **dict.fromkeys(("min", "confidence", "min_mean_change", "score", "passed"), _HIGHER),
    **dict.fromkeys(("max", "max_ratio_to_baseline", "max_regressions", "max_new_failures"), _LOWER),
}
"""In which direction the bounds of a gate, and the numbers of a case in the baseline, get tighter."""
_JUDGED = ("passed", "failed")
_BASELINE_RUN = ("mode", "target", "trials", "trials_rule", "authored")
# compared as they are, not key by key
_WHOLE = frozenset({("config", "trials")})
_STRICTER = ("case", "error", "no")
"""The stricter values of `gate`, `stale` and `baseline_optional`."""


class Difference(NamedTuple):
    """A place where two policies differ.

    Attributes:
        place: the keys and indexes that lead there in the tree of a policy.
        old: the value in the base; `MISSING` if there is none.
        new: the value now, likewise.
        base: the policy of the base.
        now: the policy now.
    """

    place: Place
    old: Any
    new: Any
    base: Policy
    now: Policy

    @property
    def name(self) -> str:
        """What is compared, in its part of the policy: a path, a setting, the id of a case; empty for a whole part."""
        return str(self.place[1]) if len(self.place) > 1 else ""

    @property
    def case_id(self) -> str:
        """The id of the case that it is about; empty if it is about none."""
        part, *keys = self.place
        if part == "baseline" and keys[:1] == ["cases"]:
            return str(keys[1]).rpartition(":")[2]
        is_case = part == "cases" or (
            part == "recordings" and self.name in self.base["cases"].keys() | self.now["cases"].keys()
        )
        return self.name if is_case else ""


def policy_changes(base: Policy, now: Policy) -> Iterator[PolicyChange]:
    """Yield the changes of an acceptance policy that are not known to make it tighter.

    Args:
        base: the policy to compare with. Its cases have data where they differ, as far as the base contains it.
        now: the policy as it is now; its cases have data where those of the base have.
    """
    for place, old, new in differences(_tree(base, now), _tree(now, base)):
        difference = Difference(place, old, new, base, now)
        pointer = json_pointer(place)
        what, is_tighter = next(rule[1:] for rule in _RULES if re.fullmatch(rule[0], pointer))
        if what and not is_tighter(difference):
            yield _change(what, difference)


def allow(
    changes: Sequence[PolicyChange], allowed: Sequence[AllowedChange]
) -> tuple[tuple[PolicyChange, ...], tuple[str, ...]]:
    """Give the changes that entries allow their reason.

    Returns:
        All changes, and a line for each entry that is about none of them.
    """
    reasons: dict[int, str] = {}
    problems: list[str] = []
    for number, entry in enumerate(allowed):
        matched = [position for position, change in enumerate(changes) if entry.allows(change)]
        reasons |= dict.fromkeys(matched, entry.reason)
        if not matched:
            place = " ".join(filter(None, (entry.case and f"case {entry.case}", entry.key)))
            problems.append(
                f"{CHANGES_NAME}: /changes/{number} ({place}): matches no change since the base; expected exactly its "
                "case, key, old and new value; remove an entry whose change the base has already"
            )
    marked = (change._replace(reason=reasons.get(position, "")) for position, change in enumerate(changes))
    return tuple(marked), tuple(problems)


def differences(old: Any, new: Any, place: Place = ()) -> Iterator[tuple[Place, Any, Any]]:
    """Yield where two JSON values differ: place, old and new value; a list of objects object by object.

    Args:
        old: the value before.
        new: the value now.
        place: the keys and indexes that lead to them.
    """
    if same(old, new):
        return
    if isinstance(old, dict) and isinstance(new, dict) and place not in _WHOLE:
        for key in dict.fromkeys((*old, *new)):
            yield from differences(old.get(key, MISSING), new.get(key, MISSING), (*place, key))
    elif isinstance(old, list) and isinstance(new, list) and old and new and all(map(_is_object, (*old, *new))):
        yield from _differences_of_lists(old, new, place)
    else:
        yield place, old, new


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _differences_of_lists(old: list[Any], new: list[Any], place: Place) -> Iterator[tuple[Place, Any, Any]]:
    """Compare lists of objects, so that one that was put in or taken out is one difference."""
    if len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, (*place, number))
        return
    shorter, longer = sorted((old, new), key=len)
    more = len(longer) - len(shorter)
    start = next((number for number, value in enumerate(shorter) if not same(value, longer[number])), len(shorter))
    if not same(shorter[start:], longer[start + more :]):
        yield place, old, new
        return
    for number in range(start, start + more):
        yield (*place, number), *((longer[number], MISSING) if longer is old else (MISSING, longer[number]))


def _tree(policy: Policy, other: Policy) -> dict[str, Any]:
    """Return what is compared of a policy, without what is not known of the other one."""

    def known(part: str) -> Any:
        return {} if None in (policy.get(part), other.get(part)) else policy[part]

    config = dict(policy["config"])
    recording = config.pop("recording", None)
    ignored = {
        "/ignore": config.pop("ignore", None),
        "/recording/ignore_headers": recording.get("ignore_headers") if isinstance(recording, dict) else None,
    }
    if config.get("allow_pass") is None:
        config.pop("allow_pass", None)
    settings, pipeline = policy["settings"], policy.get("pipeline", {})
    return {
        "settings": {name: value for name, value in settings.items() if name != "file" and name in other["settings"]},
        "suites": dict.fromkeys(known("suites"), True),
        "hooks": known("hooks"),
        "pipeline": {name: value for name, value in pipeline.items() if name in other.get("pipeline", {})},
        "config": {**config, "gates": _gates_by_name(config.get("gates"))},
        "ignored": {key: {str(name): name for name in names or ()} for key, names in ignored.items()},
        "code": policy["code"],
        "pack_version": known("pack_version"),
        "files": policy["files"],
        "cases": {name: _case(facts, other["cases"].get(name)) for name, facts in sorted(policy["cases"].items())},
        "recordings": dict(sorted(policy["recordings"].items())),
        **_baseline(policy.get("baseline"), other.get("baseline")),
    }


def _gates_by_name(gates: Any) -> dict[str, dict[str, Any]]:
    """Return the gates by what they bound, the strictest of several first, without what they leave open."""
    found: dict[str, dict[str, Any]] = {}
    given = [
        {name: value for name, value in gate.items() if value is not None and value != []}
        for gate in (gates if isinstance(gates, list) else ())
        if _is_object(gate)
    ]
    for gate in sorted(given, key=_strictness, reverse=True):
        depth, by = (f" {name} {gate[name]}" if name in gate else "" for name in ("depth", "by"))
        name = first = f"{_kind(gate)}{depth}{by}"
        number = 1
        while name in found:
            number += 1
            name = f"{first} ({number})"
        found[name] = gate
    return found


def _strictness(gate: Mapping[str, Any]) -> tuple[list[float], str]:
    bounds = [sign * _number(gate.get(name), -sign * float("inf")) for name, sign in _BOUNDS.items()]
    # of several gates without bounds, the place in the list says nothing
    return bounds, str(gate.get("must_pass"))


def _kind(gate: Mapping[str, Any]) -> str:
    change = next((name for name in CHANGES if name in gate), None)
    return "must_pass" if "must_pass" in gate else str(change or gate.get("metric"))


def _case(facts: CaseFacts, other: CaseFacts | None) -> Any:
    """Return the keys of a case, or its hash where those of one side are not known, or are the same."""
    if facts.data is None or other is None or other.data is None:
        return facts.sha256
    content = {key: value for key, value in facts.data.items() if key != "$schema"}
    if "input" in content:
        content["input"] = f"sha256:{short_digest(canonical_sha256(content['input']))}"
    # a case without notes may get some
    return {"notes": {}, **content}


def _baseline(content: Any, other: Any) -> dict[str, Any]:
    """Return a baseline with its cases, or its hash where one side is no JSON; nothing where there is none."""
    if content is None:
        return {}
    if not (isinstance(content, dict) and isinstance(other, dict)):
        return {"baseline": content if isinstance(content, str) else canonical_sha256(content)}
    run, cases = (content[name] if _is_object(content.get(name)) else {} for name in ("run", "cases"))
    entries = {
        test_id: {name: value for name, value in entry.items() if value is not None} if _is_object(entry) else entry
        for test_id, entry in sorted(cases.items())
    }
    return {"baseline": {"run": {name: run[name] for name in _BASELINE_RUN if name in run}, "cases": entries}}


# -- what is tighter ---------------------------------------------------------------------------------------------------


def _never(_difference: Difference) -> bool:
    return False


def _is_new(difference: Difference) -> bool:
    return difference.old is MISSING


def _is_gone(difference: Difference) -> bool:
    return difference.new is MISSING


def _is_more(difference: Difference) -> bool:
    old, new = (() if value is MISSING else value for value in (difference.old, difference.new))
    return set(old) <= set(new)


def _is_tighter_number(difference: Difference) -> bool:
    sign, old, new = _BOUNDS.get(str(difference.place[-1]), 0), difference.old, difference.new
    if not (sign and _is_number(new) and (old is MISSING or _is_number(old))):
        return False
    # compared, not subtracted: the bound of a stored run may be too large for a float
    return old is MISSING or (new > old) - (new < old) == sign


def _is_no_lower_threshold(difference: Difference) -> bool:
    # a type without a threshold of its own has one of the two others, a case any
    of_case = difference.place[0] == "cases"
    least = _number(difference.new, min(_thresholds(difference.now)))
    return least >= _number(difference.old, max(_thresholds(difference.base, by_type=of_case)))


def _thresholds(policy: Policy, *, by_type: bool = True) -> list[float]:
    thresholds = policy["config"].get("thresholds")
    if not isinstance(thresholds, dict):
        return [0, 1]
    own = [value for name, value in thresholds.items() if name != "by_type"]
    of_types = thresholds.get("by_type", {}).values() if by_type else ()
    return [value for value in (*own, *of_types) if isinstance(value, int | float)] or [0]


def _is_stricter_rule(difference: Difference) -> bool:
    old, new = difference.old, difference.new
    if new == "all" or old == "any":
        return bool(new != "mean")
    return _is_object(old) and _is_object(new) and bool(new["at_least"] >= old["at_least"])


def _is_no_quarantine(difference: Difference) -> bool:
    none = (MISSING, None)
    return difference.new in none or difference.old not in none


def _is_said_already(difference: Difference) -> bool:
    """Whether a change of what was tested is that of a setting or of `suite.yaml`."""
    name, new = difference.name, difference.new
    parts = (("settings", name), ("settings", name.removesuffix("s")), ("config", name))
    named = ([policy[part].get(key) for policy in (difference.base, difference.now)] for part, key in parts)
    return any(after == new and before != new for before, after in named)


def _is_another_recording(difference: Difference) -> bool:
    """Whether a recording is one more, or that of a case which is removed, which is said of the case."""
    was, becomes = (difference.name in policy["cases"] for policy in (difference.base, difference.now))
    return not was if difference.old is MISSING else difference.new is MISSING and was and not becomes


def _is_judged(difference: Difference) -> bool:
    if difference.place[-1] == "verdict":
        return difference.new == _JUDGED[0] or (difference.new in _JUDGED and difference.old not in _JUDGED)
    return difference.now["baseline"]["cases"][difference.place[2]].get("verdict") in _JUDGED


def _is_hash_of_case(difference: Difference) -> bool:
    # the case itself is compared; any other hash would leave it out of each comparison
    facts = difference.now["cases"].get(difference.case_id)
    return facts is not None and difference.new == facts.sha256


def _is_entry_of_no_case(difference: Difference) -> bool:
    return _is_new(difference) or (_is_gone(difference) and difference.case_id not in difference.now["cases"])


def _number(value: Any, default: float) -> float:
    return value if _is_number(value) else default


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_RULES: tuple[tuple[str, str, Callable[[Difference], bool]], ...] = (
    ("/settings/(gate|stale|baseline_optional)", "setting softened", lambda change: change.new in _STRICTER),
    ("/settings/(fail_on|suite)", "setting softened", _is_more),
    ("/settings/baseline", "setting softened", lambda change: bool(change.old == "none")),
    ("/settings/root", "setting softened", _never),
    ("/settings/.*", "pipeline changed", _never),
    ("/suites/.*", "suite removed", _is_new),
    ("/hooks/.*", "hook changed", _never),
    ("/pipeline/.*", "pipeline changed", _is_said_already),
    ("/config/(description|prices)(/.*)?", "", _never),
    ("/config/(backend|guards|model|target)(/.*)?", "pipeline changed", _never),
    ("/config/thresholds", "threshold changed", _never),
    ("/config/thresholds/.*", "threshold lowered", _is_no_lower_threshold),
    ("/config/trials", "trials rule changed", _is_stricter_rule),
    ("/config/gates/[^/]*", "gate removed", _is_new),
    ("/config/gates/[^/]*/must_pass", "gate loosened", _is_more),
    ("/config/gates/.*", "gate loosened", _is_tighter_number),
    ("/config/allow_pass", "allow_pass changed", _is_gone),
    ("/config/.*", "scoring changed", _never),
    ("/ignored/.*", "ignored", _is_gone),
    ("/(code/.*|pack_version)", "pack changed", _never),
    ("/files/.*[.]py", "file changed", _never),
    ("/files/.*", "file changed", _is_new),
    ("/cases/[^/]*", "case changed", lambda change: change.old in {MISSING, None}),
    ("/cases/[^/]*/notes/(source|date|reviews|reviews/.*)", "", _never),
    ("/cases/[^/]*/notes/(skip|xfail)", "case quarantined", _is_no_quarantine),
    ("/cases/[^/]*/[^/]*/threshold", "threshold lowered", _is_no_lower_threshold),
    ("/cases/[^/]*/case_type(/.*)?", "case type changed", _never),
    ("/cases/[^/]*/difficulty(/.*)?", "difficulty changed", _never),
    ("/cases/[^/]*/expected(/.*)?", "expectation changed", _never),
    ("/cases/[^/]*/input", "input changed", _never),
    ("/cases/[^/]*/notes(/.*)?", "notes changed", _never),
    ("/cases/.*", "case changed", _never),
    ("/recordings/controls~1.*", "control replaced", _is_another_recording),
    ("/recordings/.*", "recording replaced", _is_another_recording),
    ("/baseline", "baseline changed", _is_new),
    ("/baseline/run/.*", "baseline changed", _never),
    ("/baseline/cases/[^/]*", "baseline loosened", _is_entry_of_no_case),
    ("/baseline/cases/[^/]*/(score|passed)", "baseline loosened", _is_tighter_number),
    ("/baseline/cases/[^/]*/(verdict|kind)", "baseline loosened", _is_judged),
    ("/baseline/cases/[^/]*/sha256", "baseline loosened", _is_hash_of_case),
    ("/baseline/.*", "baseline loosened", _never),
)
"""By place, the first that fits: what a change is called, empty for no part of the policy; and when it is tighter."""


# -- how a change is said ----------------------------------------------------------------------------------------------

_NAMES = {
    "settings": ("{file}", "setting {name}"),
    "suites": (f"{{name}}/{CONFIG_NAME}", "suite {name}"),
    "hooks": ("{name}", "hook {name}"),
    "pipeline": ("this run", "{name} of the run"),
    "config": (CONFIG_NAME, "{pointer}"),
    "ignored": (CONFIG_NAME, "{name}"),
    "code": ("{name}", "pack code {name}"),
    "pack_version": (CONFIG_NAME, "pack version"),
    "files": ("{name}", "file {name}"),
    "recordings": ("fixtures/{name}.json", "recording {name}"),
    "baseline": (BASELINE_NAME, f"{BASELINE_NAME} {{pointer}}"),
}
"""By part of the policy, how the file and the key of a change are named."""
_OF_HASHES = {"hooks": 2, "code": 2, "files": 2, "recordings": 2, "cases": 2, "baseline": 1}
"""The parts of a policy that have hashes, and how long the place of one is."""
_OF_WHOLES = {("suites", 2), ("cases", 2), ("baseline", 1), ("baseline", 3)}
"""The parts, and lengths of places, of what is there or not: its value is not shown when it is removed."""


def _change(what: str, difference: Difference) -> PolicyChange:
    """Return a difference in the words that an entry of `policy_changes.yaml` repeats."""
    part, *keys = difference.place
    old, new = (_shown(value, difference.place) for value in (difference.old, difference.new))
    is_gone = difference.new is MISSING
    if what == "gate removed":
        old, new = _described(difference.old), REMOVED
    elif (part, len(difference.place)) in _OF_WHOLES and (is_gone or keys[:1] == ["cases"]):
        old, new = PRESENT, REMOVED if is_gone else new
    elif is_gone and isinstance(difference.place[-1], int):
        new = REMOVED
    if part == "cases" and new == REMOVED and len(keys) == 1:
        what = "case removed"
    elif part == "recordings" and ABSENT in {old, new}:
        what = what.replace("replaced", "added" if old == ABSENT else "removed")
    return PolicyChange(what, *_place_named(difference), old, new, difference.case_id)


def _place_named(difference: Difference) -> tuple[str, str]:
    """Return the file and the key of a difference as users name them."""
    part, *keys = difference.place
    name, case_id = difference.name, difference.case_id
    if part == "cases":
        facts = difference.now["cases"].get(name)
        whole = "" if facts is None else "case"
        return (facts or difference.base["cases"][name]).file, json_pointer(keys[1:]) or whole
    if part == "recordings" and case_id:
        return f"fixtures/{name}.json", "recording"
    files = [policy["settings"].get("file") for policy in (difference.now, difference.base)]
    words = {"name": name, "pointer": json_pointer(keys), "file": next(filter(None, files), "settings")}
    file, key = (text.format(**words).rstrip() for text in _NAMES[str(part)])
    return file, key


def _shown(value: Any, place: Place) -> Any:
    """Return a value of a change: of a hash its beginning."""
    if value is MISSING or _OF_HASHES.get(str(place[0])) != len(place):
        return shown(value)
    return ABSENT if value is None else short_digest(value)


def _described(gate: Mapping[str, Any]) -> str:
    """Return a gate in a few words, for the change that it is removed."""
    values = {name: gate[name] for name in ("depth", *_BOUNDS, "must_pass") if name in gate}
    by = [f"by {gate['by']}"] if "by" in gate else []
    return " ".join([_kind(gate), *(f"{name} {shown(value)}" for name, value in values.items()), *by])
