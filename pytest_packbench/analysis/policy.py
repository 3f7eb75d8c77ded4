"""Compare the acceptance policy of a suite with that of a base: every change that is not known to be tighter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.errors import json_pointer
from pytest_packbench.model.gate import CHANGES
from pytest_packbench.model.policy import ABSENT, MISSING, PolicyChange, same, short_digest, shown
from pytest_packbench.model.suite import BASELINE_NAME, CONFIG_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_packbench.model.policy import AllowedChange, CaseFacts, Policy

# what is asked of whom, not what is accepted
_NO_POLICY = frozenset({"description", "prices"})
_PIPELINE = frozenset({"backend", "guards", "model", "target"})
# they name where a case comes from, and why it was changed
_NO_EXPECTATION = frozenset({"source", "date"})
_REVIEWS = "reviews"
_QUARANTINE = frozenset({"skip", "xfail"})
SUITES, ROOT, FAIL_ON, BASELINE = "suite", "root", "fail_on", "baseline"
_STRICT_FIRST = {"gate": ("case", "suite"), "stale": ("error", "warn"), "baseline_optional": ("no", "yes")}
"""Settings with two values, the stricter one first."""
TESTED = ("target", "backend", "model", "guard", "trials", "mode")
"""The settings that decide what a run tests: none is stricter than another."""
SETTINGS = (*_STRICT_FIRST, FAIL_ON, BASELINE, ROOT, *TESTED)
"""The settings that are compared."""
_LOWER, _HIGHER = -1, 1
_BOUNDS = {
    **dict.fromkeys(("min", "confidence", "min_mean_change"), _HIGHER),
    **dict.fromkeys(("max", "max_ratio_to_baseline", "max_regressions", "max_new_failures"), _LOWER),
}
"""In which direction the bounds of a gate get tighter."""
_JUDGED = ("passed", "failed")
_BASELINE_RUN = ("mode", "target", "trials", "trials_rule", "authored")


def policy_changes(base: Policy, now: Policy) -> Iterator[PolicyChange]:
    """Yield the changes of an acceptance policy that are not known to make it tighter.

    Args:
        base: the policy to compare with. Its cases have data where they differ, as far as the base contains it.
        now: the policy as it is now; its cases have data where those of the base have.
    """
    yield from _settings(base, now)
    yield from _suites(base, now)
    yield from _pipeline(base, now)
    yield from _config(base.config, now.config)
    yield from _digests("pack changed", base.code, now.code, lambda path: (path, f"pack code {path}"))
    if base.pack_version is not None and base.pack_version != now.pack_version:
        yield PolicyChange("pack changed", CONFIG_NAME, "pack version", base.pack_version, now.pack_version)
    added = {path for path in now.files if path not in base.files and not path.endswith(".py")}
    files = {path: digest for path, digest in now.files.items() if path not in added}
    yield from _digests("file changed", base.files, files, lambda path: (path, f"file {path}"))
    for case_id, facts in sorted(base.cases.items()):
        yield from _case(case_id, facts, now.cases.get(case_id), base, now)
    yield from _recordings(base, now)
    yield from _baseline(base, now)


def allow(
    changes: Sequence[PolicyChange], allowed: Sequence[AllowedChange], name: str
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
                f"{name}: /changes/{number} ({place}): matches no change since the base; expected exactly its case, "
                "key, old and new value; remove an entry whose change the base has already"
            )
    marked = (change._replace(reason=reasons.get(position, "")) for position, change in enumerate(changes))
    return tuple(marked), tuple(problems)


def _settings(base: Policy, now: Policy) -> Iterator[PolicyChange]:
    for name in (*SETTINGS, SUITES):
        old, new = base.settings.get(name), now.settings.get(name)
        if old is None or new is None or same(old, new) or _is_stricter(name, old, new):
            continue
        file = str(now.settings.get("file") or base.settings.get("file") or "")
        what = "pipeline changed" if name in TESTED else "setting softened"
        yield PolicyChange(what, file or "settings", f"setting {name}", shown(old), shown(new))


def _is_stricter(name: str, old: Any, new: Any) -> bool:
    if name in _STRICT_FIRST:
        return bool(new == _STRICT_FIRST[name][0])
    if name == BASELINE:
        return bool(old == "none")
    return name in {FAIL_ON, SUITES} and set(old) <= set(new)


def _pipeline(base: Policy, now: Policy) -> Iterator[PolicyChange]:
    """Compare what was tested, whatever decided on it: a setting, a hook, the suite or its pack."""
    if base.hooks is not None and now.hooks is not None:
        yield from _digests("hook changed", base.hooks, now.hooks, lambda path: (path, f"hook {path}"))
    for name in base.pipeline.keys() & now.pipeline.keys():
        old, new = base.pipeline[name], now.pipeline[name]
        # said of the setting or of suite.yaml already
        named = [(base.settings.get(key), now.settings.get(key)) for key in (name, name.removesuffix("s"))]
        named += [(base.config.get(name), now.config.get(name))]
        if old != new and not any(after == new and before != new for before, after in named):
            yield PolicyChange("pipeline changed", "this run", f"{name} of the run", shown(old), shown(new))


def _suites(base: Policy, now: Policy) -> Iterator[PolicyChange]:
    if base.suites is not None and now.suites is not None:
        for name in base.suites:
            if name not in now.suites:
                yield PolicyChange("suite removed", f"{name}/{CONFIG_NAME}", f"suite {name}", "present", "removed")


def _config(base: dict[str, Any], now: dict[str, Any]) -> Iterator[PolicyChange]:
    for name in dict.fromkeys((*base, *now)):
        old, new = base.get(name, MISSING), now.get(name, MISSING)
        if name not in _NO_POLICY and not same(old, new):
            yield from _RULES.get(name, _rule)(name, old, new)


def _rule(name: str, old: Any, new: Any) -> Iterator[PolicyChange]:
    what = "pipeline changed" if name in _PIPELINE else "scoring changed"
    for pointer, before, after in differences(old, new, (name,)):
        yield PolicyChange(what, CONFIG_NAME, pointer, before, after)


def _ignored(name: str, old: Any, new: Any) -> Iterator[PolicyChange]:
    for pattern in new if isinstance(new, list) else ():
        if not (isinstance(old, list) and pattern in old):
            yield PolicyChange("ignored", CONFIG_NAME, f"/{name}", ABSENT, shown(pattern))


def _reason_given(name: str, old: Any, new: Any) -> Iterator[PolicyChange]:
    if new is not None and new is not MISSING:
        before = MISSING if old is None else old
        yield PolicyChange(f"{name} changed", CONFIG_NAME, f"/{name}", shown(before), shown(new))


def _trials(name: str, old: Any, new: Any) -> Iterator[PolicyChange]:
    if not _is_stricter_rule(old, new):
        yield PolicyChange("trials rule changed", CONFIG_NAME, f"/{name}", shown(old), shown(new))


def _thresholds(name: str, old: Any, new: Any) -> Iterator[PolicyChange]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield PolicyChange("threshold changed", CONFIG_NAME, f"/{name}", shown(old), shown(new))
        return
    for pointer, before, after in differences(old, new, (name,)):
        # a type without a threshold of its own has one of the two others
        least = _number(after, min(_values(new)))
        most = _number(before, max(_values({**old, "by_type": {}})))
        if not least >= most:
            yield PolicyChange("threshold lowered", CONFIG_NAME, pointer, before, after)


def _values(thresholds: Mapping[str, Any]) -> list[float]:
    own = [value for name, value in thresholds.items() if name != "by_type"]
    return [value for value in (*own, *thresholds.get("by_type", {}).values()) if isinstance(value, int | float)] or [0]


def _number(value: Any, default: float) -> float:
    return default if isinstance(value, bool) or not isinstance(value, int | float) else value


def _is_stricter_rule(old: Any, new: Any) -> bool:
    if new == "all" or old == "any":
        return bool(new != "mean")
    return isinstance(old, dict) and isinstance(new, dict) and bool(new["at_least"] >= old["at_least"])


def _gates(name: str, old: Any, new: Any) -> Iterator[PolicyChange]:
    before, after = (list(filter(_is_object, value)) if isinstance(value, list) else [] for value in (old, new))
    left: list[tuple[int, dict[str, Any]]] = []
    for number, gate in enumerate(before):
        equal = next((each for each in after if same(each, gate)), None)
        if equal is None:
            left.append((number, gate))
        else:
            after.remove(equal)
    for number, gate in left:
        followers = [each for each in after if _identity(each) == _identity(gate)]
        follower = min(followers, key=lambda each: len(list(_gate(0, gate, each))), default=None)
        if follower is None:
            key = f"/{name}/{number}"
            yield PolicyChange("gate removed", CONFIG_NAME, key, _described(gate), "removed")
        else:
            after.remove(follower)
            yield from _gate(number, gate, follower)


_RULES: dict[str, Callable[[str, Any, Any], Iterator[PolicyChange]]] = {
    "allow_pass": _reason_given,
    "gates": _gates,
    "ignore": _ignored,
    "recording": lambda name, old, new: _ignored(
        f"{name}/ignore_headers", *(isinstance(each, dict) and each.get("ignore_headers") for each in (old, new))
    ),
    "thresholds": _thresholds,
    "trials": _trials,
}
"""How a key of `suite.yaml` is compared; all others by `_rule`."""


def _identity(gate: Mapping[str, Any]) -> tuple[Any, ...]:
    change = next((name for name in CHANGES if gate.get(name) is not None), "")
    kind = "must_pass" if gate.get("must_pass") else change or gate.get("metric")
    return kind, gate.get("by"), gate.get("depth")


def _described(gate: Mapping[str, Any]) -> str:
    kind, by, _ = _identity(gate)
    values = {name: gate[name] for name in ("depth", *_BOUNDS, "must_pass") if gate.get(name) not in (None, (), [])}
    return " ".join(
        [str(kind), *(f"{name} {shown(value)}" for name, value in values.items()), *([f"by {by}"] if by else [])]
    )


def _gate(number: int, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[PolicyChange]:
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if same(before, after):
            continue
        if name == "must_pass":
            tighter = set(before or ()) <= set(after or ())
        else:
            sign = _BOUNDS.get(name, 0)
            # compared, not subtracted: the bound of a stored run may be too large for a float
            tighter = (
                sign != 0 and after is not None and (before is None or (after > before) - (after < before) == sign)
            )
        if not tighter:
            yield PolicyChange("gate loosened", CONFIG_NAME, f"/gates/{number}/{name}", _given(before), _given(after))


def _digests(
    what: str, base: Mapping[str, str], now: Mapping[str, str], place: Callable[[str], tuple[str, str]]
) -> Iterator[PolicyChange]:
    for name in sorted({*base, *now}):
        old, new = base.get(name), now.get(name)
        if old != new:
            yield PolicyChange(what, *place(name), _short(old), _short(new))


def _given(value: Any) -> Any:
    return ABSENT if value is None else shown(value)


def _short(sha256: str | None) -> str:
    return ABSENT if sha256 is None else short_digest(sha256)


def _case(case_id: str, old: CaseFacts, new: CaseFacts | None, base: Policy, now: Policy) -> Iterator[PolicyChange]:
    if new is None:
        yield PolicyChange("case removed", old.file, "", "present", "removed", case_id)
        return
    # what could not be read, or be found with a hash, was an error in the base
    if old.sha256 is None or old.sha256 == new.sha256:
        return
    if old.data is None or new.data is None:
        yield PolicyChange("case changed", new.file, "case", _short(old.sha256), _short(new.sha256), case_id)
        return
    keys = [key for key in dict.fromkeys((*old.data, *new.data)) if key != "$schema"]
    for key in keys:
        # a case without notes may get some
        default = {} if key == "notes" else MISSING
        before, after = old.data.get(key, default), new.data.get(key, default)
        if same(before, after):
            continue
        if key == "input":
            yield PolicyChange("input changed", new.file, "/input", _whole(before), _whole(after), case_id)
            continue
        for pointer, was, becomes in differences(before, after, (key,)):
            what = _change_of_case(pointer, was, becomes, base, now)
            if what:
                yield PolicyChange(what, new.file, pointer, was, becomes, case_id)


def _whole(value: Any) -> str:
    return ABSENT if value is MISSING else f"sha256:{short_digest(canonical_sha256(value))}"


def _change_of_case(pointer: str, old: Any, new: Any, base: Policy, now: Policy) -> str:
    """Return what a change of a case is, in a few words; empty if it is tighter, or no part of the policy."""
    _, key, *rest = pointer.split("/")
    last = rest[-1] if rest else ""
    if key == "notes":
        if (last in _NO_EXPECTATION and len(rest) == 1) or rest[:1] == [_REVIEWS]:
            return ""
        if last in _QUARANTINE and len(rest) == 1:
            if new in (ABSENT, None) or old not in (ABSENT, None):
                return ""
            return "case quarantined"
    if last == "threshold" and len(rest) == 1:
        thresholds = (policy.config.get("thresholds") for policy in (base, now))
        before, after = (_values(each) if isinstance(each, dict) else [0, 1] for each in thresholds)
        return "" if _number(new, min(after)) >= _number(old, max(before)) else "threshold lowered"
    return {
        "case_type": "case type changed",
        "difficulty": "difficulty changed",
        "expected": "expectation changed",
        "notes": "notes changed",
    }.get(key, "case changed")


_CONTROLS = "controls/"


def _recordings(base: Policy, now: Policy) -> Iterator[PolicyChange]:
    for name in sorted({*base.recordings, *now.recordings}):
        old, new = base.recordings.get(name), now.recordings.get(name)
        # a recording of a new case, or of one that is removed, which is said of the case; and another control
        if (
            old == new
            or (old is None and name not in base.cases)
            or (new is None and name in base.cases.keys() - now.cases)
        ):
            continue
        is_case = name in base.cases or name in now.cases
        kind = "control" if name.startswith(_CONTROLS) else "recording"
        what = f"{kind} {'added' if old is None else 'removed' if new is None else 'replaced'}"
        key = "recording" if is_case else f"recording {name}"
        yield PolicyChange(what, f"fixtures/{name}.json", key, _short(old), _short(new), name if is_case else "")


def _baseline(base: Policy, now: Policy) -> Iterator[PolicyChange]:
    old, new = base.baseline, now.baseline
    if old is None or same(old, new):
        return
    if not (isinstance(old, dict) and isinstance(new, dict)):
        before, after = ("present", "removed") if new is None else map(_state_of_file, (old, new))
        yield PolicyChange("baseline changed", BASELINE_NAME, BASELINE_NAME, before, after)
        return
    was, becomes = (_object_in(value, "run") for value in (old, new))
    for name in _BASELINE_RUN:
        before, after = was.get(name, MISSING), becomes.get(name, MISSING)
        if not same(before, after):
            key = f"{BASELINE_NAME} /run/{name}"
            yield PolicyChange("baseline changed", BASELINE_NAME, key, shown(before), shown(after))
    cases, kept = (_object_in(value, "cases") for value in (old, new))
    for test_id, case in sorted(cases.items()):
        yield from _baseline_case(test_id, case, kept.get(test_id), now)


def _object_in(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _state_of_file(content: Any) -> str:
    return short_digest(content if isinstance(content, str) else canonical_sha256(content))


def _baseline_case(test_id: str, old: Any, new: Any, now: Policy) -> Iterator[PolicyChange]:
    case_id = test_id.rpartition(":")[2]
    facts = now.cases.get(case_id)
    if facts is None and new is None:
        # that the case is removed is said of the case
        return
    key = f"{BASELINE_NAME} {json_pointer(('cases', test_id))}"
    if not (isinstance(old, dict) and isinstance(new, dict)):
        after = "removed" if new is None else shown(new)
        yield PolicyChange("baseline loosened", BASELINE_NAME, key, "present", after, case_id)
        return
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if same(before, after):
            continue
        if name == "score" and _number(after, -1) > _number(before, -1):
            continue
        is_judged = new.get("verdict") in _JUDGED
        if name == "verdict" and (after == _JUDGED[0] or (is_judged and before not in _JUDGED)):
            continue
        if (name == "kind" and is_judged) or (name == "passed" and _number(after, 0) > _number(before, 0)):
            continue
        # the case itself is compared; any other hash would leave it out of each comparison
        if name == "sha256" and facts is not None and after == facts.sha256:
            continue
        yield PolicyChange("baseline loosened", BASELINE_NAME, f"{key}/{name}", _given(before), _given(after), case_id)


def differences(old: Any, new: Any, location: tuple[str | int, ...]) -> Iterator[tuple[str, Any, Any]]:
    """Yield where two JSON values differ: JSON pointer, old and new value; a list of objects object by object.

    Args:
        old: the value before.
        new: the value now.
        location: the keys at which they are.
    """
    if same(old, new):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from differences(old.get(key, MISSING), new.get(key, MISSING), (*location, key))
    elif isinstance(old, list) and isinstance(new, list) and old and new and all(map(_is_object, (*old, *new))):
        yield from _paired(old, new, location)
    else:
        yield json_pointer(location), shown(old), shown(new)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _paired(old: list[Any], new: list[Any], location: tuple[str | int, ...]) -> Iterator[tuple[str, Any, Any]]:
    """Compare each object of a list with the one most like it, so that an insertion is one change."""
    partners: dict[int, int] = {}
    left = dict(enumerate(new))
    for number, value in enumerate(old):
        equal = next((position for position, other in left.items() if same(other, value)), None)
        if equal is not None:
            partners[number] = equal
            del left[equal]
    for number in range(len(old)):
        likeness = {position: _likeness(old[number], other) for position, other in left.items()}
        best = max(likeness, key=lambda position: likeness[position], default=None)
        if number not in partners and best is not None and likeness[best]:
            partners[number] = best
            del left[best]
    followers = [partners[number] for number in sorted(partners)]
    if followers != sorted(followers):
        # the order of a list may count
        yield json_pointer(location), shown(old), shown(new)
    for number, value in enumerate(old):
        if number in partners:
            yield from differences(value, new[partners[number]], (*location, number))
        else:
            yield json_pointer((*location, number)), shown(value), "removed"
    for number, value in left.items():
        yield json_pointer((*location, number)), ABSENT, shown(value)


def _likeness(one: dict[str, Any], other: dict[str, Any]) -> int:
    return sum(same(one[key], other[key]) for key in one.keys() & other.keys())
