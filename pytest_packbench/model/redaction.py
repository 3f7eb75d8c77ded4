"""Redaction: replace secrets by `[redacted]` in messages, printed output, results, and all files of a run.

A run has one `Redactor`. It knows the values of environment variables that look like keys by name or by value, and
values that options and headers pass; each is also found URL-encoded, in base64, in hexadecimal, escaped, and cut by a
line break. Keys with a known form, such as those of model providers, are found in any text.

Most texts contain no secret, for which `suspects` is a quick test. Only other texts are examined.
"""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from bisect import bisect_left, bisect_right
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, quote_plus, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

REDACTED = "[redacted]"
"""What replaces a secret."""
MIN_LENGTH = 8
"""Shorter values of the environment are not redacted: ordinary text contains them as well."""
_MIN_TOKEN_LENGTH = 4
_LONG_WORD = 16
_MIN_CHARACTERS = 4
_EXCERPT = 300
_VARIABLE = (
    # an author's name is no secret, and GIT_AUTHOR_NAME occurs in ordinary text
    r"(?i)KEY|TOKEN|SECRET|PASS(W|PHRASE)|CREDENTIAL|AUTH(?!ORS?(_|$))|HEADERS|PASS$|(^|_)PASS_|(^|_)PATS?(_|$)|"
    # a bare PWD is the current folder
    r"_PWD$|COOKIE|JWT|BEARER|CONNECTION_?STRING|CONN_STR"
)
_PLAIN_VARIABLE = (
    r"(?i)TOKENIZER|MAX_(\w+_)?TOKENS|PUBLIC_KEY|(PRIMARY|FOREIGN|PARTITION|SORT|CACHE)_KEY|KEYBOARD|KEYMAP|"
    r"_(TYPE|METHOD|NAME|HEADER|FIELD|COLUMN|PREFIX|ALGORITHM|LIMIT|COUNT|TTL|TIMEOUT|LENGTH|SIZE|SCHEME|MODE|"
    r"PROVIDER|BACKEND|ISSUER|AUDIENCE|DOMAIN|REALM|VERSION|FORMAT)$"
)
_MAY_BE_WORD = r"(?i)PASS|PWD"
# stricter than for variables: the value of --tokenizer or --author is no secret
_OPTION = r"(?i)(^|[-_])(api)?(keys?|tokens?|secrets?|passwords?|passwd|auth|authorization)$"
_HEADER_OPTIONS = frozenset({"-H", "--header"})
_HIDDEN_HEADER = r"(?i)auth|key|token|secret|cookie|passw|credential|signature"
_PLAIN_HEADER = r"(?i)accept(-.+)?|content-.+|user-agent|host|cache-control|connection|origin|referer|via|date"
_QUERY = r"(?i)key|token|secret|sig|code|auth|pass|pwd"
# values that are set where no key is needed, and words of settings
_PLACEHOLDER = (
    r"(?i)anonymous|authorization|change-?me|changeit|credentials|default|disabled|dummy-key|example|foobarbaz|"
    r"insecure|localhost|lm-studio|(no|none|not-a)-key(-needed)?|not-(needed|set)|optional|password|placeholder|"
    r"postgres|production|required|sk-no-key-required|testtest|undefined|unlimited|username|your-api-key(-here)?"
)
_WORD = r"[A-Z]?[a-z]+|[A-Z]+"
_PATH = r"/|~/|\.{1,2}/|[A-Za-z]:[\\/]"
_BASE64 = r"[A-Za-z0-9+/=]{24,}"
_PAIR_END = r"[;,&\s]+"
# where printed text is wrapped: with the indentation, and with the signs of quotations, frames and literals; also as
# written in JSON and in Python literals; what stands before the end of a line is looked for backwards
_PLAIN_BREAK = r"(?:\r?\n|(?:\\r)?\\n)[ \t]*"
_BREAK = r"(?:\r?\n|(?:\\r)?\\n)[ \t]*(?:(?:[>#*│|]|E(?=  ))[ \t]*)*['\"]?"
_ENDS = " \t\r'\"│|\\"
_STARTS = " \t'\"│|>#*E"
_WORD_AFTER_BREAK = r"[A-Za-z]?[a-z_-]*[^A-Za-z0-9]*"


# every text with a key of a known form matches this, or contains one of the words; a pattern for speed: it begins with
# characters that are rare in text, and the forms themselves are compiled only for texts that it matches
_SUSPECT = re.compile(
    r"[_.AJPQzZK-](?:(?<=_)[A-Za-z0-9]{16}|(?<=[.-])(?=[A-Za-z_-]{0,100}[0-9])[A-Za-z0-9_-]{16}|(?<=A)(?:[KSB]IA|CCA|Iza|BSK|ccessKey)|"
    r"(?<=J)[A-Za-z0-9_-]{10}|(?<=P)RIVATE KEY|(?<=Q)~|(?<=[zZ])(?:ation|ATION)[\"'\\]*\s*[:=]|"
    r"(?<=K)ey=|(?<=-)[Kk](?:ey|EY)[\"'\\]*\s*[:=]|(?<=_)(?:access_key|ACCESS_KEY)|(?<=\.)slack)"
)
_SUSPECT_WORDS = ("earer ", "EARER ", "dapi")


class Form(NamedTuple):
    """What has the form of a key.

    Attributes:
        name: what it is, for messages.
        hints: every such text contains one of these.
        pattern: a regular expression; its first group is the key, or else the whole match.
    """

    name: str
    hints: tuple[str, ...]
    pattern: str


# after a letter or digit only if it is the end of a colour, an escaped line break or an escaped sign of a URL
_START = r"(?:(?<![A-Za-z0-9])|(?<=[0-9\[]m)|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
# of a long text without any digit, each character would be looked at from each
_LONG = r"(?=[A-Za-z_-]{0,100}[0-9])[A-Za-z0-9_-]"
_VALUE = r"(?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{16,}"
# prefixes that lists such as gitleaks' and the documents of providers name; lengths are lower limits, because lengths
# change, and prefixes are distinctive
FORMS = (
    Form(
        "an API key (sk-...)",
        ("sk-",),
        rf"{_START}c?sk-(?:(?:ant|proj|svcacct|admin|or-v1|lf)-[A-Za-z0-9_-]{{20,}}|"
        r"(?:[A-Za-z0-9]{1,12}[_-]){0,3}(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{16,}[A-Za-z0-9_-]*)",
    ),
    Form(
        "a Stripe key", ("k_live_", "k_test_", "whsec_"), rf"{_START}(?:[rs]k_(?:live|test)|whsec)_[A-Za-z0-9]{{16,}}"
    ),
    Form("a Google API key", ("AIza",), rf"{_START}AIza[A-Za-z0-9_-]{{30,}}"),
    Form("a Google OAuth secret", ("GOCSPX-", "ya29."), rf"{_START}(?:GOCSPX-|ya29\.){_LONG}{{20,}}"),
    Form(
        "an AWS access key",
        ("AKIA", "ASIA", "ABIA", "ACCA"),
        rf"{_START}A(?:KIA|SIA|BIA|CCA)(?=[A-Z]*[0-9])[A-Z0-9]{{16}}(?![A-Za-z0-9])",
    ),
    Form(
        "an AWS secret key",
        ("ecret_access_key", "ecretAccessKey", "ECRET_ACCESS_KEY"),
        r"(?i:secret_?access_?key)[\"'\\]*\s*[:=]\s*[\"'\\]*([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    Form("an Amazon Bedrock key", ("ABSK",), rf"{_START}ABSK[A-Za-z0-9+/]{{60,}}={{0,2}}"),
    Form(
        "a GitHub token",
        ("ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_"),
        rf"{_START}(?:gh[posur]_[A-Za-z0-9]{{20,}}|github_pat_[A-Za-z0-9_]{{22,}})",
    ),
    Form(
        "a GitLab token", ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-"), rf"{_START}gl[a-z]{{2,3}}t-{_LONG}{{20,}}"
    ),
    Form(
        "a Slack token",
        ("xox", "xapp-", "hooks.slack.com/services/"),
        rf"{_START}(?:xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{{16,}}|xapp-[A-Za-z0-9-]{{20,}})|"
        r"hooks\.slack\.com/services/([A-Za-z0-9/]{20,})",
    ),
    Form("a Hugging Face token", ("hf_", "api_org_"), rf"{_START}(?:hf|api_org)_[A-Za-z0-9]{{20,}}"),
    Form(
        "an API key of a provider",
        ("gsk_", "xai-", "pplx-", "nvapi-", "r8_", "tvly-", "fw_", "lsv2_", "dapi", "ntn_", "lin_api_", "sbp_"),
        rf"{_START}(?:(?:gsk|r8|fw|sbp|lin_api|ntn)_(?=[A-Za-z]*[0-9])[A-Za-z0-9]{{20,}}|dapi[a-f0-9]{{32}}|"
        rf"(?:xai|pplx|nvapi|tvly)-{_LONG}{{20,}}|lsv2_[a-z]{{2}}_[a-f0-9]{{20,}}_[a-f0-9]{{6,}})",
    ),
    Form(
        "a token of a package index",
        ("npm_", "pypi-AgE"),
        rf"{_START}(?:npm_(?=[A-Za-z]*[0-9])[A-Za-z0-9]{{30,}}|pypi-AgE[A-Za-z0-9_-]{{40,}})",
    ),
    Form("a SendGrid key", ("SG.",), rf"{_START}SG\.[A-Za-z0-9_-]{{16,}}\.[A-Za-z0-9_-]{{16,}}"),
    Form("a DigitalOcean token", ("_v1_",), rf"{_START}do[opr]_v1_[a-f0-9]{{40,}}"),
    Form("a Vault token", ("hvs.", "hvb."), rf"{_START}hv[bs]\.{_LONG}{{24,}}"),
    Form("an Azure account key", ("ccountKey=",), r"(?i:AccountKey)=([A-Za-z0-9+/]{40,}={0,2})"),
    Form("an Azure client secret", ("Q~",), rf"{_START}[A-Za-z0-9_~.]{{3}}[0-9]Q~[A-Za-z0-9_~.-]{{31,34}}"),
    Form(
        "a JSON Web Token",
        ("eyJ",),
        # whether the rest follows is known before each beginning in a long text is tried
        r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]++\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10})[A-Za-z0-9_-]*?"
        rf"{_START}(eyJ[A-Za-z0-9_-]{{10,}}\.eyJ[A-Za-z0-9_-]{{10,}}\.[A-Za-z0-9_-]{{10,}})",
    ),
    Form(
        "a private key",
        ("PRIVATE KEY", "AGE-SECRET-KEY-1"),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[\s\S]{16,20000}?-----END [A-Z0-9 ]{0,40}PRIVATE "
        r"KEY(?: BLOCK)?-----|(?:(?:\s|\\+[nr])*[A-Za-z0-9+/=]{16,80})+)|AGE-SECRET-KEY-1[A-Z0-9]{20,}",
    ),
    Form("a bearer token", ("earer ", "EARER "), rf"\b(?i:bearer)[ \t]+({_VALUE})"),
    Form(
        "an authorization header",
        ("uthorization", "UTHORIZATION", "pi-key", "pi-Key", "PI-KEY"),
        rf"(?i:authorization|x-api-key|\bapi-key)[\"'\\]*\s*[:=]\s*[\"'\\]*(?:[A-Za-z]+\s+)?({_VALUE})",
    ),
)
# in messages and printed output only: results may contain such texts by chance
_LOOSE_HINTS = ("bearer", "basic", "authorization", "api-key", "sk-", "://")
_LOOSE_FORMS = (
    Form("", (), r"(?i)\b(?:bearer|basic)\s+([\w.~+/=*-]{6,})"),
    Form("", (), r"(?i)\b(?:(?:proxy-)?authorization|(?:x-)?api-key)\W{1,4}(?!bearer|basic)([^\s\"',}]+)"),
    Form("", (), r"\bsk-[\w*-]{6,}"),
    Form("", (), r"(?<=://)[^/\s@]+(?=@)"),
)


class Found(NamedTuple):
    """A secret in a JSON value.

    Attributes:
        text: the secret as it was found.
        what: what it is, for messages, such as `the value of OPENAI_API_KEY`.
        pointer: JSON pointer of the text that contains it; of an object if a key does.
        is_known: whether it is a known value; otherwise it only has the form of a key.
    """

    text: str
    what: str
    pointer: str
    is_known: bool


class _Span(NamedTuple):
    start: int
    end: int
    what: str
    is_known: bool = False


class Redactor:
    """Replaces secrets in texts and JSON values; one for a run, or for each of its processes.

    Args:
        environment: environment variables; kept, because a target may add some (see `refresh`).
        values: further secret values, such as those of options.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, values: Iterable[str] = ()) -> None:
        self._environment: Mapping[str, str] = {} if environment is None else environment
        self._size = -1
        # each encoded form of each value, with what it is
        self._known: dict[str, str] = {}
        self._base64: set[str] = set()
        # short values, which are secret only where no letter or digit is beside them
        self._tokens: dict[str, str] = {}
        self._needles: tuple[str, ...] = _SUSPECT_WORDS
        self.refresh()
        self.add(values)

    def add(self, values: Iterable[str], what: str = "a value of an option or a header") -> None:
        """Add secret values; a value that may be ordinary text is ignored."""
        known, tokens, encoded = dict(self._known), dict(self._tokens), set(self._base64)
        for value in values:
            text = value.strip()
            if _may_be_key(text, words=True):
                _add_forms(known, encoded, text, what)
            elif _MIN_TOKEN_LENGTH <= len(text) < MIN_LENGTH and _is_mixed(text):
                tokens[text] = what
        # replaced as a whole: another thread may be searching
        self._known, self._tokens, self._base64 = known, tokens, encoded
        self._needles = (*known, *tokens, *_SUSPECT_WORDS)

    def refresh(self) -> None:
        """Read the environment again if it has more variables: a target may load keys."""
        size = len(self._environment)
        if size == self._size:
            return
        self._size = size
        known, encoded = dict(self._known), set(self._base64)
        for name, value in list(self._environment.items()):
            for part in _secrets_of_variable(name, value):
                _add_forms(known, encoded, part, f"the value of {name}")
        self._known, self._base64 = known, encoded
        self._needles = (*known, *self._tokens, *_SUSPECT_WORDS)

    def suspects(self, text: str) -> bool:
        """Whether a text, or the JSON that a text is, may contain a secret; most texts do not."""
        if _SUSPECT.search(text) or any(map(text.__contains__, self._needles)):
            return True
        if "\n" not in text and "\\n" not in text:
            return False
        # the same as in `_breaks_in`, but faster
        lines = text.replace("\\r\\n", "\n").replace("\\n", "\n").split("\n")
        joined = "".join([line.rstrip(_ENDS).lstrip(_STARTS) for line in lines])
        return bool(_SUSPECT.search(joined)) or any(
            any(map(each.__contains__, self._needles)) for each in (joined, "".join(map(str.strip, lines)))
        )

    def text(self, text: str, found: Sequence[Found] = ()) -> str:
        """Return a message or printed output without secrets.

        Args:
            text: the text. What only looks like a secret is replaced as well: a message loses nothing.
            found: secrets whose beginnings are replaced too: a message may quote the beginning of a text.
        """
        return self._hide(text, found, loose=True)

    def excerpt(self, text: str, limit: int = _EXCERPT) -> str:
        """Return the beginning of a redacted text: one line of at most `limit` characters."""
        # redacted first: a secret that is cut in two is not recognized
        line = " ".join(self.text(text).split())
        return line if len(line) <= limit else f"{line[: limit - 1]}…"

    def json(self, value: Any, found: Sequence[Found] = ()) -> Any:
        """Return a JSON value without secrets; `found` is as in `text`.

        Raises:
            RecursionError: the value is nested too deeply.
        """
        if isinstance(value, str):
            return self._hide(value, found)
        if isinstance(value, dict):
            return {self.json(key, found): self.json(item, found) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(item, found) for item in value]
        return value

    def find(self, value: Any) -> tuple[Found, ...]:
        """Return the secrets in a JSON value, in order."""
        every = []
        stack: list[tuple[str, Any]] = [("", value)]
        while stack:
            pointer, item = stack.pop()
            if isinstance(item, str):
                every += [
                    Found(item[span.start : span.end], span.what, pointer, span.is_known) for span in self._spans(item)
                ]
            elif isinstance(item, dict):
                every += [found._replace(pointer=pointer) for key in item for found in self.find(str(key))]
                stack += reversed([(f"{pointer}/{_escaped(str(key))}", member) for key, member in item.items()])
            elif isinstance(item, list | tuple):
                stack += reversed([(f"{pointer}/{index}", member) for index, member in enumerate(item)])
        return tuple(every)

    def _hide(self, text: str, found: Sequence[Found], *, loose: bool = False) -> str:
        if not loose and not found and not self.suspects(text):
            return text
        spans = self._spans(text, loose=loose)
        if found:
            spans = _merged([*spans, *_beginnings(text, found)])
        if not spans:
            return text
        ends = [0, *(span.end for span in spans)]
        parts = [text[end : span.start] for end, span in zip(ends, spans, strict=False)]
        return REDACTED.join([*parts, text[ends[-1] :]])

    def _spans(self, text: str, *, loose: bool = False) -> list[_Span]:
        """Return where secrets are in a text, in order and without overlap."""
        spans = list(self._spans_of_loose_forms(text)) if loose else []
        if self.suspects(text):
            spans += self._spans_within(text)
            for pattern in (_BREAK, _PLAIN_BREAK):
                spans += self._spans_over_breaks(text, pattern)
        return _merged(spans)

    def _spans_within(self, text: str) -> Iterator[_Span]:
        for secret, what in self._known.items():
            position = text.find(secret)
            while position >= 0:
                end = position + len(secret)
                yield _Span(
                    *(_around(text, position, end) if secret in self._base64 else (position, end)), what, is_known=True
                )
                position = text.find(secret, end)
        for token, what in self._tokens.items():
            if token in text:
                for match in re.finditer(rf"(?<![A-Za-z0-9]){re.escape(token)}(?![A-Za-z0-9])", text):
                    yield _Span(*match.span(), what, is_known=True)
        for form in _forms_in(text):
            yield from (_Span(*_span(match), form.name) for match in _compiled(form.pattern).finditer(text))

    def _spans_over_breaks(self, text: str, pattern: str) -> Iterator[_Span]:
        """Return the secrets that a line break cuts: those of the text without breaks that are over one."""
        breaks = _breaks_in(text, pattern) if "\n" in text or "\\n" in text else []
        if not breaks:
            return
        # where the breaks were in the joined text, and how many characters are removed up to there
        joined, cuts, removed, position = [], [], [0], 0
        for start, end in breaks:
            joined.append(text[position:start])
            cuts.append(start - removed[-1])
            removed.append(removed[-1] + end - start)
            position = end
        whole = "".join([*joined, text[position:]])
        for span in self._spans_within(whole):
            first, last = bisect_right(cuts, span.start), bisect_left(cuts, span.end)
            end = span.end
            while (
                first < last
                and not span.is_known
                and _compiled(_WORD_AFTER_BREAK).fullmatch(whole, cuts[last - 1], end)
                and self._is_complete(whole[span.start : cuts[last - 1]])
            ):
                # the text goes on with a word after a complete key
                last -= 1
                end = cuts[last]
            if first < last:
                yield span._replace(start=span.start + removed[first], end=end + removed[last])

    def _is_complete(self, text: str) -> bool:
        return any(span.end == len(text) for span in self._spans_within(text))

    def _spans_of_loose_forms(self, text: str) -> Iterator[_Span]:
        lowered = text.lower()
        if any(map(lowered.__contains__, _LOOSE_HINTS)):
            for form in _LOOSE_FORMS:
                yield from (_Span(*_span(match), "") for match in _compiled(form.pattern).finditer(text))


def _breaks_in(text: str, pattern: str) -> list[tuple[int, int]]:
    """Return where a text is wrapped, with what a frame, a quotation or an indentation adds: start and end of each."""
    breaks, end = [], 0
    for match in _compiled(pattern).finditer(text):
        before = text[end : match.start()]
        kept = before.rstrip(" \t")
        if pattern == _BREAK:
            if kept.endswith(("│", "|", "\\")):
                kept = kept[:-1].rstrip(" \t")
            kept = kept[:-1] if kept.endswith(("'", '"')) else kept
        breaks.append((match.start() - len(before) + len(kept), match.end()))
        end = match.end()
    return breaks


def secrets_of_target(spec: str) -> list[str]:
    """Return what is secret in a target's specification: options of a command; login and keys in a URL."""
    if spec.startswith("cmd:"):
        import shlex

        try:
            return redact_options(shlex.split(spec.removeprefix("cmd:")))[1]
        except ValueError:
            # reported where the command is used
            return []
    return secrets_of_url(spec) if spec.startswith(("http://", "https://")) else []


def secrets_of_url(url: str, *, with_user: bool = True) -> list[str]:
    """Return the login in a URL, and the values in its query that look like keys.

    Args:
        url: the URL.
        with_user: whether a user who has a password is a secret too.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    secrets = [password, _base64_of(f"{user}:{password}")] if password else [user]
    if password and with_user:
        secrets.append(user)
    for pair in parts.query.split("&"):
        name, _, value = pair.partition("=")
        if _compiled(_QUERY).search(name) or (len(value) >= _LONG_WORD and _is_mixed(value)):
            secrets += [value, unquote(value)]
    return [secret for secret in secrets if secret]


def redact_options(words: list[str]) -> tuple[list[str], list[str]]:
    """Redact the values of options, variables and headers with secret names in a command line.

    Returns:
        The words to show, and the redacted values.
    """
    shown: list[str] = []
    secrets: list[str] = []
    value_follows = header_follows = False
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        header, colon, content = (value if name in _HEADER_OPTIONS else word).partition(":")
        if (header_follows or name in _HEADER_OPTIONS) and colon and _compiled(_HIDDEN_HEADER).search(header):
            prefix = f"{name}={header}" if name in _HEADER_OPTIONS else header
            shown.append(f"{prefix}: {REDACTED}")
            secrets += [content.strip(), content.strip().partition(" ")[2]]
            value_follows = False
        elif value_follows and not word.startswith("-"):
            shown.append(REDACTED)
            secrets.append(word)
            value_follows = False
        elif equals and _compiled(_OPTION).search(name):
            shown.append(f"{name}={REDACTED}")
            secrets.append(value)
            value_follows = False
        else:
            shown.append(word)
            value_follows = (
                position > 0 and word.startswith("-") and not equals and bool(_compiled(_OPTION).search(word))
            )
        header_follows = word in _HEADER_OPTIONS
    return shown, [secret for secret in secrets if secret]


def holds_secret(name: str, value: str) -> bool:
    """Whether an environment variable looks like a key, by its name or by its value."""
    return any(_secrets_of_variable(name, value))


def _secrets_of_variable(name: str, value: str) -> Iterator[str]:
    """Return the values in an environment variable that look like keys, by its name or by themselves."""
    if _compiled(_VARIABLE).search(name) and not _compiled(_PLAIN_VARIABLE).search(name):
        # a password, a line, or a member of an object may be a word
        words = bool(_compiled(_MAY_BE_WORD).search(name)) or "\n" in value.strip() or value.lstrip().startswith("{")
        yield from (part for part in _parts(value) if _may_be_key(part, words=words))
    elif _SUSPECT.search(value) or any(map(value.__contains__, _SUSPECT_WORDS)):
        for form in _forms_in(value):
            yield from (match[match.lastindex or 0] for match in _compiled(form.pattern).finditer(value))
    if "://" in value:
        yield from (part for part in secrets_of_url(value, with_user=False) if _may_be_key(part, words=True))


def _parts(value: str) -> Iterator[str]:
    """Return a value, its lines, the values of its headers and pairs, and the secrets of a JSON object."""
    yield value.strip()
    yield from _parts_of_lines(value)
    scheme, space, rest = value.strip().partition(" ")
    if space and scheme.lower() in {"bearer", "basic", "token"}:
        yield rest.strip()
    for pair in _compiled(_PAIR_END).split(value):
        name, equals, content = pair.partition("=")
        if equals and _compiled(_VARIABLE).search(name.replace("-", "_")):
            yield content
    if value.lstrip().startswith("{"):
        yield from _parts_of_object(value)


def _parts_of_lines(value: str) -> Iterator[str]:
    lines = value.splitlines()
    for line in lines:
        name, colon, content = line.partition(":")
        if len(lines) > 1 and not (colon and _compiled(_PLAIN_HEADER).fullmatch(name.strip())):
            yield line.strip()
        if colon and not _compiled(_PLAIN_HEADER).fullmatch(name.strip()) and not content.startswith("//"):
            yield content.strip()
            # `Authorization: Bearer abc`: a server may echo the second word alone
            yield content.strip().partition(" ")[2]


def _parts_of_object(value: str) -> Iterator[str]:
    try:
        members = json.loads(value)
    except (ValueError, RecursionError):
        return
    # for example a service account's file: it contains the key, and addresses that are not secret
    for name, text in members.items():
        if isinstance(text, str) and _compiled(_VARIABLE).search(name):
            yield text.strip()
            yield from (line.strip() for line in text.splitlines())


def _may_be_key(text: str, *, words: bool) -> bool:
    """Whether a value is not likely to be ordinary text.

    Args:
        text: the value.
        words: whether a single word may be a secret, such as a password.
    """
    if len(text) < MIN_LENGTH or len(set(text)) < _MIN_CHARACTERS or _compiled(_PLACEHOLDER).fullmatch(text):
        return False
    if not words and len(text) < _LONG_WORD and _compiled(_WORD).fullmatch(text):
        return False
    if _compiled(_PATH).match(text) and not (_compiled(_BASE64).fullmatch(text) and _is_mixed(text)):
        return False
    return "://" not in text or _is_secret_url(text)


def _is_secret_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return True
    if not parts.scheme.isalnum() or parts.query or "@" in parts.netloc:
        return True
    return any(len(step) >= _LONG_WORD and _is_mixed(step) for step in parts.path.split("/"))


def _is_mixed(text: str) -> bool:
    return any(map(str.isalpha, text)) and any(map(str.isdigit, text))


def _add_forms(known: dict[str, str], encoded: set[str], secret: str, what: str) -> None:
    for form in _escapes(secret):
        known.setdefault(form, what)
    for form in _base64_forms(secret):
        known.setdefault(form, what)
        encoded.add(form)


def _escapes(secret: str) -> Iterator[str]:
    """Return a secret as it may occur in text: in JSON, a Python literal, a URL, HTML, hexadecimal, without breaks."""
    yield from (secret, repr(secret)[1:-1], secret.replace("/", "\\/"))
    for ascii_only in (True, False):
        escaped = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        # the second is JSON in a text in JSON
        yield from (escaped, json.dumps(escaped)[1:-1])
    data = secret.encode("utf-8", "surrogateescape")
    # what is left as it is differs: in Python, for a part and for a whole URL in JavaScript, and in forms
    for url in (*(quote(data, safe=safe) for safe in ("", "/", "!'()*~", "!'()*~;/?:@&=+$,#")), quote_plus(data)):
        yield from (url, re.sub("%..", lambda match: match[0].lower(), url))
    yield from (data.hex(), data.hex().upper())
    html = secret.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    yield from (html, html.replace("'", "&#x27;"), html.replace("'", "&#39;"))
    if "\n" in secret:
        breaks = _breaks_in(secret, _PLAIN_BREAK)
        starts, ends = [0, *(end for _, end in breaks)], [*(start for start, _ in breaks), len(secret)]
        yield "".join([secret[start:end] for start, end in zip(starts, ends, strict=True)])


def _base64_forms(secret: str) -> Iterator[str]:
    """Return the characters that base64 has for a secret wherever it begins: what is before shifts it by 0 to 2 bytes.

    `user:key` of basic authentication is such a text.
    """
    data = secret.encode("utf-8", "surrogateescape")
    for shift in range(3):
        whole = b2a_base64(b"\0" * shift + data, newline=False).decode("ascii")
        # characters at the ends depend on the neighbours
        core = whole[(0, 2, 3)[shift] : (shift + len(data)) * 8 // 6]
        if len(core) >= MIN_LENGTH:
            yield from {core, core.replace("+", "-").replace("/", "_")}


def _base64_of(text: str) -> str:
    return b2a_base64(text.encode("utf-8", "replace"), newline=False).decode("ascii")


def _around(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the place of a secret in base64 with the characters at its ends that contain some of its bits."""
    before = re.search(r"[A-Za-z0-9+/_-]{0,2}\Z", text[max(0, start - 2) : start])
    after = re.match(r"[A-Za-z0-9+/_-]?={0,2}", text[end : end + 3])
    return start - len(before[0] if before else ""), end + len(after[0] if after else "")


def _beginnings(text: str, found: Sequence[Found]) -> Iterator[_Span]:
    """Return where a text quotes the beginning of a secret, at least 8 characters, whatever their case."""
    lowered = text.lower()
    for secret in {each.text.lower() for each in found}:
        position = lowered.find(secret[:MIN_LENGTH])
        while position >= 0 and len(lowered) == len(text):
            end = position
            for expected, actual in zip(secret, lowered[position:], strict=False):
                if expected != actual:
                    break
                end += 1
            yield _Span(position, end, "")
            position = lowered.find(secret[:MIN_LENGTH], end)


def _forms_in(text: str) -> Iterator[Form]:
    return (form for form in FORMS if any(map(text.__contains__, form.hints)))


def _merged(spans: Iterable[_Span]) -> list[_Span]:
    merged: list[_Span] = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1].end:
            last = merged[-1]
            known = span if span.is_known else last
            merged[-1] = _Span(last.start, max(last.end, span.end), known.what or span.what, known.is_known)
        elif span.end > span.start:
            merged.append(span)
    return merged


def _span(match: re.Match[str]) -> tuple[int, int]:
    return match.span(match.lastindex or 0)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


# at the first text that needs it: most runs need none
@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
