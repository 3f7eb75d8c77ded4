"""Redaction: replace secrets by `[redacted]` in messages, printed output, results, and all files of a run.

A run has one `Redactor`. It knows the values of environment variables that look like keys by name or by value, and
values that options and headers pass; each is also found URL-encoded, in base64, in hexadecimal, escaped, and cut by a
line break. Keys with a known form, such as those of model providers, are found in any text.

Most texts contain no secret, for which `suspects` is a quick test. Only other texts are examined.
"""

from __future__ import annotations

import json
import logging
import re
from binascii import b2a_base64
from bisect import bisect_left, bisect_right
from functools import cache
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, quote_plus, unquote, urlsplit

from pytest_packbench.files import walk
from pytest_packbench.model.errors import json_pointer, single_spaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


# whatever it is called there, what is asked decides on the answer
_CONTENT = r"(?i)contents|input|instructions|messages|prompt|system(_?instruction)?"
_NAME = (
    # a token of a page or of a vocabulary is no secret; nor is the name of OpenAI's cache
    r"(?i)(?!(.*[-_])?(next|prev|previous|page|continuation|bos|eos|pad|unk|sep|cls|mask|stop|start|end)[-_]?token$"
    r"|prompt_cache_key$)(.*[-_])?(key|token|sig|signature|secrets?|auth|oauth2?|authentication|authorization|pat|"
    r"pass|passwd|pwd|passwords?|passcode|passphrase|headers|credentials?|cookies?|bearer|jwt|assertion|connection_string|service_account|api_?keys?|client_?secret|"
    r"(access|api|auth|bearer|id|refresh|session)_?tokens?|(access|secret)_?keys?)([-_](value|string|header|config|json|pem|b64|\d+))?"
)
# the key of a filter, a cache or a route
_ANY_KEY = r"(?i)(?!.*(api|access|account|auth|client|master|private|secret|service|signing|subscription)).*key"
_PLAIN = r"(?i)accept(-.+)?|content-.+|user-agent|host|cache-control|connection|origin|referer|date|type|scheme|name"
# their members are named by the user
_SCHEMAS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentRequired", "dependentSchemas"}
)
_EXAMPLES = frozenset({"const", "default", "enum", "example", "examples", "input_examples"})
# a login, and the parameters of a query
_IN_URL = r"((?<=://)|[?&]([\w.-]{1,60})=)([^\s/?#@&]+)(?(2)|(?=@))"
_HUMP = r"(?<=[a-z0-9])(?=[A-Z])"
# no word of settings, such as `interactive`
_SUSPECT_WORD = r"(?<!\S)(?:\S*[^A-Za-z\s]\S*|\S{16,})"
_TOKEN = r"(?=\S*[0-9])(?=\S*[A-Za-z])[^\s;,=:]{16,}"  # noqa: S105 - a pattern


def is_secret_name(name: str) -> bool:
    """Whether what is called so may be a credential."""
    return _compiled(_NAME).fullmatch(_compiled(_HUMP).sub("_", name)) is not None


def is_credential(name: str, value: object) -> bool:
    """Whether a value is a credential, which decides on no answer; what is only called a key is one by its form."""
    return is_secret_name(name) and (
        not _compiled(_ANY_KEY).fullmatch(name) or _compiled(_TOKEN).fullmatch(str(value)) is not None
    )


def without_secrets(body: Any) -> Any:
    """Return the JSON body of a request as it may be shown: `[redacted]` replaces its credentials."""
    return _hide(body, "", [])


def without_credentials(body: Any, found: list[str]) -> Any:
    """Return the JSON body of a request without its credentials; what is asked stays as it is.

    Args:
        body: the body.
        found: gets texts that are secret wherever they occur.
    """
    if not isinstance(body, dict):
        return body
    return {
        name: item if _compiled(_CONTENT).fullmatch(name) else _hide(item, name, found) for name, item in body.items()
    }


def _hide(value: Any, name: str, found: list[str], *, is_closed: bool = False) -> Any:
    """Return a JSON value without credentials.

    Args:
        value: what to look at.
        name: its key.
        found: gets the texts that are secret wherever they occur.
        is_closed: whether it is part of headers or credentials, of which only plain members are kept.
    """
    is_named = isinstance(value, str | dict | list) and is_credential(name, value)
    is_closed = (is_closed or is_named) and not _compiled(_PLAIN).fullmatch(name)
    if isinstance(value, list):
        return [_hide(item, "", found, is_closed=is_closed) for item in value]
    if isinstance(value, dict):
        called = (value.get(key) for key in ("name", "key"))
        pairs = (text for text in called if isinstance(text, str) and is_secret_name(text))
        names = {key: key for key in value} | {"value": next(pairs, "value")}
        # a schema describes a member, whatever it is called
        names |= {key: "" for key, item in value.items() if name in _SCHEMAS and isinstance(item, dict | list)}
        return {
            key: item if key in _EXAMPLES and not is_closed else _hide(item, names[key], found, is_closed=is_closed)
            for key, item in value.items()
        }
    if is_closed and value:
        found += _compiled(_TOKEN).findall(str(value)) + (_compiled(_SUSPECT_WORD).findall(value) if is_named else [])
        # a passphrase of several words
        found += [value] if is_named and len(value.split()) > 1 else []
        return REDACTED
    if isinstance(value, str):
        return _compiled(_IN_URL).sub(lambda match: match[1] + _hide(match[3], match[2] or "password", found), value)
    return value


REDACTED = "[redacted]"
"""What replaces a secret."""
NAMES = "PACKBENCH_SECRETS"
"""The variable that names further variables with secrets."""
MIN_LENGTH = 8
"""Shorter values of the environment are not redacted: ordinary text contains them as well."""
_MIN_TOKEN_LENGTH = 4
_LONG_WORD = 16
_MIN_CHARACTERS = 4
_EXCERPT = 300
# of longer ones, and of a longer text of words that follow, all is replaced
_MAX_KEY = 20_000
_MAX_TAIL = 200
_VARIABLE = (
    # an author's name is no secret, and GIT_AUTHOR_NAME occurs in ordinary text
    r"(?i)KEY|TOKEN|SECRET|PASS(W|PHRASE|CODE)|CREDENTIAL|AUTH(?!ORS?(_|$))|HEADERS|PASS$|(^|_)PASS_|(^|_)PATS?(_|$)|"
    # a bare PWD is the current folder
    r"_PWD$|COOKIE|JWT|BEARER|CONNECTION_?STRING|CONN_STR|MNEMONIC|SEED_?(PHRASE|WORDS)|WEBHOOK|"
    r"(^|_)(CREDS?|PRIVATE|SALT|PEPPER|PIN|SAS|T?OTP|HMAC|SIG|SIGNATURE|(RECOVERY|BACKUP)_CODES?)(_|$)"
)
# a number of a few digits may be one of these
_SHORT = r"(?i)(^|_)(PIN|T?OTP)(_|$)"
_PLAIN_VARIABLE = (
    r"(?i)TOKENIZER|MAX_(\w+_)?TOKENS|PUBLIC_KEY|(PRIMARY|FOREIGN|PARTITION|SORT|CACHE)_KEY|KEYBOARD|KEYMAP|"
    r"^PACKBENCH_SECRETS$|_(TYPE|METHOD|NAME|HEADER|FIELD|COLUMN|PREFIX|ALGORITHM|LIMIT|COUNT|TTL|TIMEOUT|LENGTH|SIZE|SCHEME|MODE|"
    r"PROVIDER|BACKEND|ISSUER|AUDIENCE|DOMAIN|REALM|VERSION|FORMAT)$"
)
_MAY_BE_WORD = r"(?i)PASS|PWD|SALT|PEPPER|CRED|PIN"
# stricter than for variables: the value of --tokenizer or --author is no secret
_OPTION = (
    r"(?i)(^|[-_])(api)?(keys?|tokens?|secrets?|passwords?|passwd|passphrase|passcode|auth|authorization|creds?|"
    r"credentials?|mnemonic|salt|pin|otp|sas)$"
)
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
    r"_(?:[A-Za-z0-9]{16}|(?:key|token|secret|KEY|TOKEN|SECRET)[\"'\\]*\s*[:=]|"
    r"(?<=ckr_|_v1_|ale_|rys_|ryu_|igd_|igo_|fo1_|m1r_|m1a_|fm2_))|"
    r"-(?:(?=[A-Za-z0-9_-]{16})[a-z_-]{0,40}+[0-9A-Z]|(?:[Kk]ey|KEY)[\"'\\]*\s*[:=]|us[0-9])|"
    r"\.(?:(?=[A-Za-z0-9_-]{16})[a-z_-]{0,40}+[0-9A-Z]|slack|office)|=(?<=sig=|pwd=|Pwd=|PWD=|ord=|ORD=)|"
    r"/(?:(?<=:/)/(?:[^\s/:@]{0,100}:[^\s/@]{8}|[a-f0-9]{32}[:@])|(?<=1/)/0|(?<=api/)webhooks/)|"
    r"A(?:[KSB]IA|CCA|Iza|BSK|KCp|TATT3|TCTT3|TBB|PIM|CDb|IoT|z(?:Fu|Se|Ca)|C[0-9a-f]{16}|ccessKey|"
    r"(?<=:A)A[A-Za-z0-9_-]{16}|(?<=\+A)|(?<=LTA)I)|J[A-Za-z0-9_-]{10}|GOOG1E|K(?:(?<=SK)[0-9a-f]{16}|ey[\"'\\]*\s*[:=])|"
    r"PRIVATE KEY|Q~|Vmd|ZXI|Z(?:ation|ATION)[\"'\\]*\s*[:=]|z(?:ation|ATION)[\"'\\]*\s*[:=]"
)
_SUSPECT_WORDS = ("earer ", "EARER ", "dapi", "oy2", "pikey")


class Form(NamedTuple):
    """What has the form of a key.

    Attributes:
        name: what it is, for messages and `SECURITY.md`.
        hints: every such text contains one of these.
        pattern: a regular expression; its first group is the key, or else the whole match.
    """

    name: str
    hints: tuple[str, ...]
    pattern: str


# after a letter or digit only if it is the end of a colour, an escaped line break or an escaped sign of a URL
_START = r"(?:(?<![A-Za-z0-9])|(?<=[0-9\[]m)|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
# no word of a language is one; what looks ahead has an end, or else each character would be looked at from each
_ONE = r"(?=[a-z]{0,40}+[0-9A-Z])[A-Za-z0-9]{16,}[A-Za-z0-9_-]*"
_LONG = r"(?=[a-z_-]{0,40}+[0-9A-Z])[A-Za-z0-9_-]{16,}"
_BASE = r"[A-Za-z0-9+/=_-]{40,}"
_VALUE = r"(?=[A-Za-z._~+/=-]{0,200}+[0-9])[A-Za-z0-9._~+/=-]{16,}"


_MAKERS = {
    "Adobe": "p8e-",
    "Brevo": "xkeysib- xsmtpsib-",
    "Buildkite": "bkua_",
    "CircleCI": "CCIPAT_ CCIPRJ_",
    "Contentful": "CFPAT-",
    "DigitalOcean": "dop_v1_ doo_v1_ dor_v1_",
    "Fireworks": "fw_",
    "GitHub": "ghp_ gho_ ghs_ ghu_ ghr_ github_pat_",
    "Google": "AIza GOCSPX- ya29. AQ.Ab 1//0 GOOG1E",
    "Grafana": "glsa_ glc_ eyJrIjoi",
    "Groq": "gsk_",
    "HashiCorp Vault": "hvs. hvb. hvr.",
    "Heroku": "HRKU-",
    "Hugging Face": "hf_ api_org_",
    "Jina AI": "jina_",
    "LangSmith": "lsv2_pt_ lsv2_sk_ ls__",
    "Linear": "lin_api_ lin_oauth_",
    "Netlify": "nfp_",
    "New Relic": "NRAK- NRII- NRJS-",
    "npm": "npm_",
    "NVIDIA": "nvapi-",
    "Perplexity": "pplx-",
    "Plaid": "access-sandbox- access-development- access-production-",
    "PostHog": "phx_",
    "Postman": "PMAK-",
    "Prefect": "pnu_",
    "Pulumi": "pul-",
    "PyPI": "pypi-AgE",
    "Replicate": "r8_",
    "RubyGems": "rubygems_",
    "Shopify": "shpat_ shpca_ shppa_ shpss_",
    "SonarQube": "squ_ sqp_ sqa_",
    "Sourcegraph": "sgp_",
    "Square": "sq0atp- sq0csp-",
    "Stripe": "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
    "Supabase": "sbp_ sb_secret_",
    "Tailscale": "tskey-",
    "Tavily": "tvly-",
    "xAI": "xai-",
    "age": "AGE-SECRET-KEY-1",
}
"""How keys begin, by their maker, where any random text follows."""


def _keys_of(maker: str, beginnings: str, rest: str = "") -> Form:
    """Return the form of a maker's keys.

    Args:
        maker: who issues them.
        beginnings: how they begin, separated by spaces.
        rest: a pattern of what follows; by default characters of which not all are small letters.
    """
    hints = tuple(beginnings.split())
    rest = rest or (_ONE if hints[0].endswith("_") else _LONG)
    beginning = f"(?:{'|'.join(map(re.escape, hints))})"
    # first without a look behind, which takes most of the time
    return Form(f"a key of {maker}", hints, f"(?={beginning}){_START}{beginning}{rest}")


# prefixes that lists such as gitleaks' and the documents of providers name; lengths are lower limits, because lengths
# change, and prefixes are distinctive
FORMS = (
    *starmap(_keys_of, _MAKERS.items()),
    Form(
        "an API key (sk-...)",
        ("sk-",),
        rf"(?=c?sk-){_START}c?sk-(?:(?:ant|proj|svcacct|admin|or-v1|lf)-[A-Za-z0-9_-]{{20,}}|"
        r"(?:[A-Za-z0-9]{1,12}[_-]){0,3}(?=[A-Za-z]{0,100}[0-9])(?=[0-9]{0,100}[A-Za-z])[A-Za-z0-9]{16,}[A-Za-z0-9_-]*)",
    ),
    _keys_of("1Password", "ops_eyJ", _BASE),
    _keys_of("Airtable", "pat", r"[A-Za-z0-9]{14}\.[a-f0-9]{40,}"),
    _keys_of("Alibaba Cloud", "LTAI", r"[A-Za-z0-9]{12,24}(?![A-Za-z0-9])"),
    _keys_of("Artifactory", "AKCp cmVmd", r"[A-Za-z0-9]{50,}"),
    _keys_of("Atlassian", "ATATT3 ATCTT3 ATBB", r"[A-Za-z0-9_=-]{24,}"),
    _keys_of("AWS", "AKIA ASIA ABIA ACCA", r"(?=[A-Z]{0,16}[0-9])[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _keys_of("AWS", "ABSK IQoJb3JpZ2lu FwoGZXIvYXdz bedrock-api-key-", _BASE),
    _keys_of("Azure", "AccountKey= SharedAccessKey= sig=", r"([A-Za-z0-9+/%]{40,}={0,2})"),
    Form("a key of Azure", ("Q~",), rf"{_START}[A-Za-z0-9_~.]{{3}}[0-9]Q~[A-Za-z0-9_~.-]{{31,34}}"),
    Form(
        "a key of Azure",
        ("JQQJ9", "APIM", "ACDb", "AIoT", "AzFu", "AzSe", "AzCa", "+A"),
        r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/]{76}(?:APIM|ACDb|\+A(?:Ba|MC|St))|[A-Za-z0-9]{52}JQQJ9|[A-Za-z0-9_-]{44}AzFu|"
        r"[A-Za-z0-9+/]{42}(?:AzSe|\+ACR)|[A-Za-z0-9+/]{33}(?:AIoT|AzCa|\+A(?:Sb|Eh|Rm)))[A-Za-z0-9+/_-]{5,28}={0,2}"
        r"(?![A-Za-z0-9+/_-])",
    ),
    _keys_of("Cloudflare", "v1.0-", r"[a-f0-9]{24}-[a-f0-9]{40,}"),
    _keys_of("Databricks", "dapi", r"[a-f0-9]{32}(?:-[0-9])?"),
    _keys_of("Discord", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", r"[0-9]{1,30}/([A-Za-z0-9_-]{20,})"),
    Form(
        "a key of Discord",
        (".",),
        rf"(?=[MNO]){_START}[MNO][A-Za-z0-9_-]{{23,27}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,}}",
    ),
    _keys_of("Docker", "dckr_pat_ dckr_oat_", _LONG),
    _keys_of("Doppler", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", rf"(?:[a-z0-9_-]{{2,35}}\.)?{_LONG}"),
    _keys_of("Dropbox", "sl.", rf"(?:u\.)?(?=[A-Za-z0-9_-]{{60}}){_LONG}"),
    _keys_of("Dynatrace", "dt0c01.", r"[A-Z0-9]{24}\.[A-Z0-9]{40,}"),
    _keys_of("ElevenLabs", "sk_", r"[a-f0-9]{40,}"),
    _keys_of("Figma", "figd_ figo_", _LONG),
    _keys_of("Firecrawl", "fc-", r"[a-f0-9]{32}"),
    _keys_of("Fly.io", "fo1_ fm1r_ fm1a_ fm2_", _BASE),
    _keys_of(
        "GitLab",
        "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glimt- glagent- gloas- glsoat- glffct- glwt-",
        rf"{_LONG}(?:\.[A-Za-z0-9]{{2,9}}){{0,2}}",
    ),
    Form("a key of HCP Terraform", (".atlasv1.",), rf"{_START}[A-Za-z0-9]{{14}}\.atlasv1\.[A-Za-z0-9_-]{{40,}}"),
    _keys_of("Mailgun", "key- pubkey-", r"[a-f0-9]{32}"),
    Form(
        "a key of Mailgun or Mailchimp",
        ("-",),
        rf"(?=[a-f0-9]{{32}}-){_START}[a-f0-9]{{32}}-(?:[a-f0-9]{{8}}-[a-f0-9]{{8}}|us[0-9]{{1,2}})(?![A-Za-z0-9-])",
    ),
    _keys_of("Microsoft Teams", "webhook.office.com/webhookb2/", r"([A-Za-z0-9@/-]{60,})"),
    _keys_of("Notion", "ntn_ secret_", r"[A-Za-z0-9]{32,}"),
    _keys_of("NuGet", "oy2", r"[a-z0-9]{43}(?![A-Za-z0-9])"),
    _keys_of("Pinecone", "pcsk_", r"[A-Za-z0-9]{4,8}_[A-Za-z0-9]{30,}"),
    _keys_of("PlanetScale", "pscale_pw_ pscale_tkn_ pscale_oauth_", _LONG),
    _keys_of("Resend", "re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{16,}"),
    _keys_of("SendGrid", "SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _keys_of("Sentry", "sntrys_ sntryu_", _BASE),
    _keys_of(
        "Slack",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxp- xoxr- xoxs- xoxe.xoxb- xoxe.xoxp- xapp- xwfp-",
        r"[A-Za-z0-9%+/=-]{16,}",
    ),
    _keys_of(
        "Slack",
        "hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/",
        r"([A-Za-z0-9/]{20,})",
    ),
    Form("a key of Telegram", (":AA",), rf"{_START}[0-9]{{8,10}}:AA[A-Za-z0-9_-]{{30,}}"),
    _keys_of("Together AI", "tgp_v1_", _LONG),
    _keys_of("Snyk", "snyk_uat.", r"[a-f0-9]{8}\.[A-Za-z0-9_.-]{20,}"),
    _keys_of("Twilio", "SK AC", r"[a-f0-9]{32}(?![A-Za-z0-9])"),
    _keys_of("Voyage AI", "pa-", rf"(?=[A-Za-z0-9_-]{{40}}){_LONG}"),
    Form(
        "a JSON Web Token",
        ("eyJ",),
        # whether the rest follows is known before each beginning in a long text is tried
        r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]++\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10})[A-Za-z0-9_-]*?"
        rf"{_START}(eyJ[A-Za-z0-9_-]{{10,}}\.eyJ[A-Za-z0-9_-]{{10,}}\.[A-Za-z0-9_-]{{10,}})",
    ),
    Form(
        "a private key",
        ("PRIVATE KEY",),
        # up to the next beginning: of many, each would be looked at from each
        r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}(?:(?:(?!---- ?BEGIN)[\s\S]){16,20000}?"
        r"---- ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|(?:(?:\s|\\+[nr])*[A-Za-z0-9+/=]{16,80})+)",
    ),
    Form("a bearer token", ("earer ", "EARER "), rf"(?=[bB])\b(?i:bearer)[ \t]+({_VALUE})"),
    Form(
        "a value that is named a key",
        ("uthorization", "UTHORIZATION", "ey", "EY", "oken", "OKEN", "ecret", "ECRET"),
        r"(?=[aAcCsS])(?i:authorization|api[_-]?key|(?:access|auth)_token|client_secret|secret_?(?:access_?)?key)[\"'\\]*\s*[:=]\s*"
        rf"[\"'\\]*(?:[A-Za-z]+\s+)?({_VALUE})",
    ),
    Form(
        "the login of an address",
        ("://",),
        r"://(?:[^\s/:@]*:((?=[^\s/@0-9]{0,100}[0-9])(?=[^\s/@A-Za-z]{0,100}[A-Za-z])[^\s/@]{8,100})|([a-f0-9]{32}))@",
    ),
    Form(
        "the password of a connection",
        ("wd=", "assword="),
        r";\s?(?i:password|pwd)=((?=[^\s;\"'0-9]{0,100}[0-9])[^\s;\"']{8,})",
    ),
)
# in messages and printed output only: results may contain such texts by chance
_LOOSE_HINTS = ("bearer", "basic", "authorization", "api-key", "sk-", "://")
_LOOSE_FORMS = (
    Form("", (), r"(?i)\b(?:bearer|basic)\s+([\w.~+/=*-]{6,})"),
    # not the words after a name in a mismatch
    Form("", (), r"(?i)\b(?:authorization|api-key)\W{1,4}(?!bearer|basic|no longer|not in|if the)([^\s\"',}]+)"),
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
        names: names of variables that are secret whatever they look like; `PACKBENCH_SECRETS` names further ones.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, values: Iterable[str] = (), names: str = ""
    ) -> None:
        self._environment: Mapping[str, str] = {} if environment is None else environment
        self._names = re.split(r"[,\s]+", f"{names},{self._environment.get(NAMES, '')}")
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
        texts = (value.strip() for value in values)
        self._learn((text, what) for text in texts if _may_be_key(text, words=True) or _may_be_token(text))

    def refresh(self) -> None:
        """Read the environment again if it has more variables: a target may load keys."""
        size = len(self._environment)
        if size == self._size:
            return
        self._size = size
        self._learn(
            (part, f"the value of {name}")
            for name, value in list(self._environment.items())
            for part in _secrets_of_variable(name, value, named=name in self._names)
        )

    def _learn(self, secrets: Iterable[tuple[str, str]]) -> None:
        """Add secrets, each with what it is; a short one is a token."""
        known, tokens, encoded = dict(self._known), dict(self._tokens), set(self._base64)
        for secret, what in secrets:
            if len(secret) < MIN_LENGTH:
                tokens[secret] = what
            else:
                _add_forms(known, encoded, secret, what)
        # replaced as a whole: another thread may be searching
        self._known, self._tokens, self._base64 = known, tokens, encoded
        self._needles = (*known, *tokens, *_SUSPECT_WORDS)

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
        line = single_spaced(self.text(text))
        return line if len(line) <= limit else f"{line[: limit - 1]}…"

    def json(self, value: Any, found: Sequence[Found] = ()) -> Any:
        """Return a JSON value without secrets; `found` is as in `text`.

        Raises:
            RecursionError: the value is nested too deeply.
        """
        if isinstance(value, dict):
            return {self.json(key, found): self.json(item, found) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(item, found) for item in value]
        hidden = self._hide(text := _printed(value), found)
        return value if hidden == text else hidden

    def find(self, value: Any) -> tuple[Found, ...]:
        """Return the secrets in a JSON value, in order."""
        every: list[Found] = []
        for path, item in walk(value):
            texts = item if isinstance(item, dict) else () if isinstance(item, list | tuple) else (item,)
            for text in map(_printed, texts):
                every += [
                    Found(text[span.start : span.end], span.what, json_pointer(path), span.is_known)
                    for span in self._spans(text)
                ]
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
                and span.end - _MAX_TAIL < cuts[last - 1] < span.start + _MAX_KEY
                and _compiled(_WORD_AFTER_BREAK).fullmatch(whole, cuts[last - 1], end)
                and _is_complete(whole[span.start : cuts[last - 1]], span.what)
            ):
                # the text goes on with a word after a complete key
                last -= 1
                end = cuts[last]
            if first < last:
                yield span._replace(start=span.start + removed[first], end=end + removed[last])

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


def _secrets_of_variable(name: str, value: str, *, named: bool = False) -> Iterator[str]:
    """Return the values in an environment variable that look like keys, by its name or by themselves, or are named."""
    if (named or _compiled(_SHORT).search(name)) and _MIN_TOKEN_LENGTH <= len(value.strip()) < MIN_LENGTH:
        yield value.strip()
    if named or (_compiled(_VARIABLE).search(name) and not _compiled(_PLAIN_VARIABLE).search(name)):
        # a password, a line, or a member of an object may be a word
        words = named or _compiled(_MAY_BE_WORD).search(name) or "\n" in value.strip() or value.lstrip().startswith("{")
        yield from (part for part in _parts(value) if _may_be_key(part, words=bool(words)))
    elif _SUSPECT.search(value) or any(map(value.__contains__, _SUSPECT_WORDS)):
        for form in _forms_in(value):
            yield from (match[match.lastindex or 0] for match in _compiled(form.pattern).finditer(value))
    if "://" in value:
        # a user of a provider is often known, one of a company's proxy is not
        secrets = secrets_of_url(value, with_user=name.lower().endswith("_proxy"))
        yield from (part for part in secrets if _may_be_key(part, words=True))


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


def _may_be_token(text: str) -> bool:
    return _MIN_TOKEN_LENGTH <= len(text) < MIN_LENGTH and _is_mixed(text)


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
            for expected, actual in zip(secret, lowered[position : position + len(secret)], strict=False):
                if expected != actual:
                    break
                end += 1
            yield _Span(position, end, "")
            position = lowered.find(secret[:MIN_LENGTH], end)


def _is_complete(text: str, what: str) -> bool:
    """Whether a text ends with a key of the form with this name."""
    patterns = (_compiled(form.pattern) for form in FORMS if form.name == what)
    return any(_span(match)[1] == len(text) for pattern in patterns for match in pattern.finditer(text))


def _printed(leaf: Any) -> str:
    """Return a text, a key or another leaf as JSON writes it: a number may be a password."""
    return leaf if isinstance(leaf, str) else json.dumps(leaf, default=str)


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


# at the first text that needs it: most runs need none
@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def redact_log_record(record: logging.LogRecord, redactor: Redactor) -> bool:
    """Redact the message and all other texts of a log record; true, as a filter that keeps every record."""
    # a case may have loaded keys
    redactor.refresh()
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - the handler reports arguments that do not fit the message
        return True
    redacted = redactor.text(message)
    if redacted != message:
        record.msg, record.args = redacted, None
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    for name, value in vars(record).items():
        # such as the name of the logger, the traceback, and what a call adds by `extra`
        if name != "msg" and isinstance(value, str):
            setattr(record, name, redactor.text(value))
    return True
