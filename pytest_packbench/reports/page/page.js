"use strict";
// The cases of the page: table, filter, address, keys, the view of one case, and marks for review.
// All text of cases, models and files goes through textContent: nothing here parses HTML.
(() => {
  const $ = (id) => document.getElementById(id);
  // the sign of each verdict and the kinds of changes, the worst first: the data have them
  let SIGNS = {};
  let CHANGES = [];
  const RANK = { __proto__: null, failed: 2, error: 3, vacuous: 4, not_run: 5, known_hole: 6, quarantined: 7, passed: 9 };
  const PAGE_ROWS = 100;
  const LONG_TEXT = 1600;
  const MAX_DIFF = 4e6;
  const MARKS = { gold_is_wrong: "Gold is wrong", also_acceptable: "Also acceptable", quarantine: "Quarantine" };
  const MARK_HINTS = {
    gold_is_wrong: "the expected result of the case is not right",
    also_acceptable: "the answer shown here should pass as well",
    quarantine: "leave the case out of the rates until it is clear",
  };
  const MAX_RESULT = 256 * 1024;
  const STORED = "packbench-review";

  // ---- DOM ----

  const READ = new Set(["title", "aria-label"]);
  // joiners stay in words and emoji, tags in flags, and the marks of right-to-left texts everywhere
  const UNSEEN = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u180e\u200b\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]|\r(?!\n)|(?<![^\0-\x7f])[\u200c\u200d]|\u{1f3f4}[\u{e0020}-\u{e007f}]+|[\u{e0000}-\u{e007f}]/gu;

  /** Return a text with characters that nobody sees, or that turn others around, as escapes, as in the terminal. */
  const visible = (text) => String(text).replace(UNSEEN, (character) => {
    if (character.startsWith("\u{1f3f4}")) return character;
    const code = character.codePointAt(0).toString(16);
    return code.length > 4 ? `\\U${code.padStart(8, "0")}` : code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
  });

  /** Create an element; attributes beginning with "on" are listeners, false and null ones are left out. */
  const el = (name, attributes, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value === true ? "" : READ.has(key) ? visible(value) : value);
    }
    add(node, children);
    return node;
  };
  const add = (node, children) => {
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== false) node.append(typeof child === "string" ? visible(child) : child);
    }
    return node;
  };
  const svg = (name, attributes, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return add(node, children);
  };
  const button = (text, onclick, attributes) => el("button", { type: "button", onclick, ...attributes }, text);
  const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  const words = (text) => String(text).replaceAll("_", " ");
  const scrolled = (label, content) => el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, content);
  const number = (value, digits = 2) => (typeof value === "number" ? value.toFixed(digits) : "–");
  const dollars = (cost) => cost.toFixed(cost >= 1 ? 2 : cost >= 0.001 || !cost ? 4 : 6);
  const duration = (ms) => (ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`);
  const folded = (summary, content, open = false) => el("details", { open }, el("summary", {}, summary), content);

  // ---- data ----

  const unpack = async (text) => {
    const raw = Uint8Array.from(atob(text.trim()), (character) => character.charCodeAt(0));
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const block = (run, name) =>
    document.querySelector(`script.packbench-data[data-run="${run}"][data-name="${name}"]`)?.textContent || "";
  const chunks = new Map();

  /** Return an object of the values in a row of a table. */
  const named = (names, values) => values && Object.fromEntries(names.map((name, index) => [name, values[index]]));
  const unpackedChunk = async (row) => {
    const texts = (await unpack(block(row.page, `details-${row.details}`))).split("\x1e");
    return { ...JSON.parse(texts.shift()), texts };
  };
  const detailsOf = async (row) => {
    const key = `${row.page} ${row.details}`;
    if (!chunks.has(key)) {
      if (chunks.size > 4) chunks.clear();
      chunks.set(key, unpackedChunk(row));
    }
    const chunk = await chunks.get(key);
    const read = (place) => (place ? parsed(chunk.texts[place - 1]) : undefined);
    const attempt = (values) => {
      const stored = named(chunk.attempts, values);
      const payloadText = stored?.payload ? chunk.texts[stored.payload - 1] : "";
      return stored && {
        ...stored,
        terms: stored.terms || [],
        hooks: stored.hooks || [],
        payload: payloadText ? parsed(payloadText) : undefined,
        payloadText,
      };
    };
    const stored = named(chunk.details, chunk.cases[row.key]);
    return {
      ...stored,
      case: read(stored.case),
      recording: read(stored.recording),
      trials: stored.trials.map(attempt),
      baseline: attempt(stored.baseline),
      facts: chunk.facts,
    };
  };
  /** A number whose text JavaScript would change: of more than 53 bits, or 1.0. */
  class Exact {
    constructor(text) { this.text = text; }
    toString() { return this.text; }
  }
  // no text of a model can guess it
  const EXACT = `exact ${Math.random()} `;
  const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;

  /** Return the value of a JSON text, with its numbers as they are written; of other text, the text. */
  const parsed = (text) => {
    try {
      const value = JSON.parse(text);
      let isExact = true;
      const kept = text.replace(TOKENS, (token) => {
        if (token[0] === '"' || String(Number(token)) === token) return token;
        isExact = false;
        return `"${EXACT}${token}"`;
      });
      if (isExact) return value;
      return JSON.parse(kept, (_, item) => (typeof item === "string" && item.startsWith(EXACT) ? new Exact(item.slice(EXACT.length)) : item));
    } catch { return text; }
  };
  const isScalar = (value) => value === null || typeof value !== "object" || value instanceof Exact;
  const isObject = (value) => !isScalar(value) && !Array.isArray(value);

  /** Return a value as JSON, indented if a line break is given; numbers as they were written. */
  const jsonText = (value, line = "") => {
    if (value instanceof Exact) return value.text;
    if (isScalar(value)) return JSON.stringify(value) ?? "null";
    const within = line && `${line}  `;
    const [start, end, items] = Array.isArray(value)
      ? ["[", "]", value.map((item) => jsonText(item, within))]
      : ["{", "}", Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}:${line && " "}${jsonText(item, within)}`)];
    return items.length ? `${start}${within}${items.join(`,${within}`)}${line}${end}` : start + end;
  };

  // runs on one page have the same cases, and a review has one line for each
  const markKey = (row) => `${row.suite} ${row.id}`;
  const status = (row) => (row.quarantined ? "quarantined" : row.verdict);
  const isFailing = (row) => ["failed", "error"].includes(status(row)) || (status(row) === "vacuous");
  const rank = (row) => (row.change === "new_failure" ? (status(row) === "failed" ? 0 : 0.5) : row.change === "regressed" && isFailing(row) ? 1 : RANK[status(row)] ?? 8);

  /** Return the rows of a run, with what follows from their columns. */
  const rowsOf = (table, page) => {
    SIGNS = table.signs;
    if (table.changes.length) CHANGES = table.changes;
    const names = Object.keys(table.columns);
    const size = names.length ? table.columns[names[0]].length : 0;
    return Array.from({ length: size }, (_, index) => complete(named(names, names.map((name) => table.columns[name][index])), table, page));
  };
  const complete = (row, table, page) => {
    const file = row.file.replace(/(\.jsonl):\d+$/, "$1");
    const terms = row.terms;
    Object.assign(row, { page, run: table.run, runLabel: table.label || table.run || page, pack: table.pack, id: row.case_id, type: row.case_type });
    row.terms = terms.map(([name]) => name);
    row.lost = terms.filter(([, costs]) => costs).map(([name]) => name);
    const isLinked = table.root && !/^bundled:|^\/|^[a-z]:|\\|(^|\/)\.\.(\/|$)/i.test(file);
    row.link = isLinked ? [table.root, ...file.split("/").map(encodeURIComponent)].join("/") : "";
    row.cause = row.lost.join(" + ") || (isFailing(row) ? row.kind || row.terms[0] || "low score" : "");
    row.text = [row.id, row.test_id, row.answer, row.message, row.input_text, row.expected_text, row.actual_text].map((text) => text ?? "").join("\n").toLowerCase();
    return row;
  };

  // ---- filter ----

  const FIELDS = {
    __proto__: null,
    verdict: (row) => [status(row), row.verdict],
    type: (row) => [row.type],
    difficulty: (row) => [row.difficulty],
    tag: (row) => row.tags,
    // what cost points; where nothing did, what a failed case consists of
    term: (row) => (row.lost.length || !isFailing(row) ? row.lost : row.terms),
    has: (row) => row.terms,
    change: (row) => [row.change || ""],
    kind: (row) => [row.kind || ""],
    id: (row) => [row.id, row.test_id],
    file: (row) => [row.file],
    answer: (row) => [row.answer ?? ""],
    message: (row) => [row.message ?? ""],
    run: (row) => [row.run || "", row.runLabel],
  };
  const CONTAINS = new Set(["answer", "message", "id", "file", "term", "has", "run"]);
  const NUMBERS = { __proto__: null, score: "score", duration: "duration_ms", tokens: "tokens", cost: "cost_usd" };

  /** Return the rows for which each word of a filter is true, and what is to be said about its words. */
  const filtered = (query, facets, rows) => {
    const tests = [];
    for (const [, minus, word] of query.matchAll(/(-?)((?:[^\s":]+:)?"[^"]*"?|\S+)/g)) {
      if (word === "-") continue;
      const test = wordTest(word.toLowerCase(), facets, rows);
      tests.push({ word: minus + word, test: minus ? (row) => !test(row) : test });
    }
    const found = rows.filter((row) => tests.every(({ test }) => test(row)));
    const unknown = tests.map(({ word }) => unknownName(word.toLowerCase(), facets)).filter(Boolean);
    const remarks = unknown.map((name) => `No filter is called “${name}”, or not with this value; see “How to filter”.`);
    if (!found.length && tests.length > 1) {
      remarks.push(`Each word alone: ${tests.map(({ word, test }) => `${word} ${rows.filter(test).length.toLocaleString("en")}`).join(", ")}.`);
    }
    return { found, remarks: found.length && !unknown.length ? [] : remarks };
  };
  const COMPARED = /^([a-z_]+)(<=|>=|<|>|=)(\d+(?:\.\d+)?|\.\d+)(ms|s)?$/;
  const isCompared = ([, name, , , unit] = []) => name in NUMBERS && (!unit || name === "duration");

  /** Return the name of a word that looks like a filter and is none; empty for others, such as the id of a test. */
  const unknownName = (word, facets) => {
    const [, name, sign] = /^-?([a-z_]+)(:(?![:/])|[<>]=?|=)/.exec(word) || [];
    if (!name) return "";
    if (sign === ":") return FIELDS[name] || facets.has(name) || /^-?[^":]+:[^":]+:/.test(word) ? "" : name;
    return isCompared(COMPARED.exec(word.replace(/^-/, "")) || []) ? "" : name;
  };
  const wordTest = (word, facets, rows) => {
    const compared = COMPARED.exec(word);
    if (compared && isCompared(compared)) {
      const [, name, sign, bound, unit] = compared;
      const limit = Number(bound) * (unit === "s" ? 1000 : 1);
      return (row) => {
        const value = row[NUMBERS[name]];
        if (typeof value !== "number") return false;
        return { "<": value < limit, ">": value > limit, "<=": value <= limit, ">=": value >= limit, "=": value === limit }[sign];
      };
    }
    const [, name, quoted] = /^([^:"]+):(.*)$/s.exec(word) || [];
    if (name && (FIELDS[name] || facets.has(name))) {
      // as it is stored, or as it is shown
      const value = words(quoted.replaceAll('"', ""));
      const read = FIELDS[name] || ((row) => [row.facets[facets.get(name)] ?? ""]);
      const lower = (row) => read(row).map((each) => words(each).toLowerCase());
      // a value that no case has may be the beginning of one that is being typed
      const isWhole = !CONTAINS.has(name) && rows.some((row) => lower(row).includes(value));
      const isEqual = isWhole ? (text) => text === value : CONTAINS.has(name) ? (text) => text.includes(value) : (text) => text.startsWith(value);
      return (row) => lower(row).some(isEqual);
    }
    if (Object.hasOwn(SIGNS, word)) return (row) => status(row) === word;
    if (word === "failing") return isFailing;
    if (word === "stale") return (row) => Boolean(row.stale);
    if (CHANGES.includes(word)) return (row) => row.change === word;
    const free = word.replaceAll('"', "");
    return (row) => row.text.includes(free);
  };
  const quote = (text) => (/[\s"]/.test(text) ? `"${text.replaceAll('"', "")}"` : text);

  // ---- address ----

  /** Return a part of an address as text; one that is no text stays as it is. */
  const decoded = (text) => {
    try { return decodeURIComponent(text); } catch { return text; }
  };

  const EMPTY = { q: "", sort: "", dir: "", group: "", page: 1, case: "", run: "" };
  const fromAddress = () => {
    const hash = location.hash.slice(1);
    const query = hash.startsWith("cases?") ? hash.slice(6) : /^(?:run=[^&]*&)?case=/.test(hash) ? hash : "";
    const values = Object.fromEntries(new URLSearchParams(query.replaceAll("+", "%2B")));
    return { ...EMPTY, ...values, page: Math.max(1, Number.parseInt(values.page, 10) || 1) };
  };
  const toAddress = (state) => {
    const parts = [];
    for (const key of ["case", "run", "q", "sort", "dir", "group", "page"]) {
      if (state[key] && !(key === "page" && state.page === 1)) parts.push(`${key}=${encodeURIComponent(state[key])}`);
    }
    return state.case ? `#${parts.join("&")}` : parts.length ? `#cases?${parts.join("&")}` : "#cases";
  };

  // ---- diff ----

  /** Return the parts of two sequences: [" ", both], ["-", first only], ["+", second only]; null if they are too long. */
  const compare = (before, after) => {
    let start = 0;
    let end = 0;
    while (start < Math.min(before.length, after.length) && before[start] === after[start]) start += 1;
    while (
      end < Math.min(before.length, after.length) - start &&
      before[before.length - 1 - end] === after[after.length - 1 - end]
    ) end += 1;
    const a = before.slice(start, before.length - end);
    const b = after.slice(start, after.length - end);
    if (a.length * b.length > MAX_DIFF) return null;
    const width = b.length + 1;
    const table = new Uint16Array((a.length + 1) * width);
    for (let i = a.length - 1; i >= 0; i -= 1) {
      for (let j = b.length - 1; j >= 0; j -= 1) {
        table[i * width + j] = a[i] === b[j]
          ? table[(i + 1) * width + j + 1] + 1
          : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
      }
    }
    const parts = before.slice(0, start).map((item) => [" ", item]);
    let i = 0;
    let j = 0;
    while (i < a.length || j < b.length) {
      if (i < a.length && j < b.length && a[i] === b[j]) { parts.push([" ", a[i]]); i += 1; j += 1; }
      else if (i < a.length && (j === b.length || table[(i + 1) * width + j] >= table[i * width + j + 1])) { parts.push(["-", a[i]]); i += 1; }
      else { parts.push(["+", b[j]]); j += 1; }
    }
    return [...parts, ...before.slice(before.length - end).map((item) => [" ", item])];
  };
  const MARK_NAMES = { "-": "del", "+": "ins" };

  /** Return two texts of one line with the words that differ marked: [first, second]; without marks if little is equal. */
  const wordDiff = (before, after) => {
    [before, after] = [visible(before), visible(after)];
    const split = (text) => text.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) || [];
    const parts = compare(split(before), split(after));
    const side = (sign) => {
      const node = el("span", {});
      let last = "";
      for (const [mark, text] of parts) {
        if (mark !== " " && mark !== sign) continue;
        if (mark === " ") node.append(text);
        else if (last === mark) node.lastChild.append(text);
        else node.append(el("mark", {}, text));
        last = mark;
      }
      return node;
    };
    const equal = parts ? parts.reduce((size, [mark, text]) => size + (mark === " " && /[\p{L}\p{N}]/u.test(text) ? text.length : 0), 0) : 0;
    return equal * 3 > Math.min(before.length, after.length) ? [side("-"), side("+")] : [before, after];
  };

  /** Return a diff of two texts by line, with unchanged lines folded away. */
  const lineDiff = (before, after) => {
    const parts = compare(before.split("\n"), after.split("\n"));
    if (!parts) return el("p", { class: "muted" }, "Too long to compare line by line.");
    const pre = el("div", { class: "diff", role: "group", "aria-label": "Difference by line", tabindex: "0" });
    const isNear = (index) => parts.slice(Math.max(0, index - 3), index + 4).some(([mark]) => mark !== " ");
    let skipped = 0;
    const flush = () => {
      if (skipped) pre.append(el("div", { class: "skipped" }, `${plural(skipped, "equal line")}`));
      skipped = 0;
    };
    parts.forEach(([mark, line], index) => {
      if (mark === " " && !isNear(index)) { skipped += 1; return; }
      flush();
      const name = MARK_NAMES[mark];
      const text = `${mark} ${line}`;
      pre.append(el("div", { class: `line ${name || "both"}` }, name ? el(name, {}, text) : text));
    });
    flush();
    return pre;
  };

  // ---- values ----

  const pretty = (value) => (typeof value === "string" ? value : value === undefined ? "" : jsonText(value, "\n"));

  /** Return JSON as text, indented, with keys, strings and other values told apart. */
  const jsonNode = (value) => {
    const pre = el("pre", { class: "json", tabindex: "0", role: "group", "aria-label": "JSON" });
    if (typeof value === "string") return add(pre, [value]);
    const text = visible(pretty(value));
    if (text.length > 200000) return add(pre, [text]);
    let end = 0;
    for (const match of text.matchAll(/"(?:[^"\\]|\\.)*"(\s*:)?|\b(?:true|false|null)\b|-?\d[\d.eE+-]*/g)) {
      if (match.index > end) pre.append(text.slice(end, match.index));
      const kind = match[1] ? "key" : match[0].startsWith('"') ? "string" : "literal";
      pre.append(el("span", { class: `json-${kind}` }, match[0]));
      end = match.index + match[0].length;
    }
    pre.append(text.slice(end));
    return pre;
  };

  const textNode = (text) => {
    if (text === "") return el("span", { class: "muted" }, "(empty text)");
    if (text.length <= LONG_TEXT) return el("div", { class: "prose" }, text);
    return el("details", { class: "long" },
      el("summary", {}, el("span", { class: "prose" }, `${text.slice(0, LONG_TEXT / 2).trimEnd()}…`),
        el("span", { class: "more" }, `show all ${text.length.toLocaleString("en")} characters`)),
      el("div", { class: "prose" }, text));
  };

  /** Return a value for readers: objects as a list of names and values, texts as text. */
  const valueNode = (value, depth = 0) => {
    if (typeof value === "string") return textNode(value);
    if (value === null) return el("span", { class: "muted" }, "null");
    if (isScalar(value)) return el("code", {}, String(value));
    if (Array.isArray(value)) {
      if (!value.length) return el("span", { class: "muted" }, "none");
      if (value.every((item) => isScalar(item) && String(item).length < 60)) {
        return el("ul", { class: "chips" }, value.map((item) => el("li", {}, el("code", {}, String(item)))));
      }
      if (value.every((item) => typeof item === "string")) return el("ol", { class: "texts" }, value.map((item) => el("li", {}, textNode(item))));
      const isFlat = (item) => isObject(item) && Object.values(item).every(isScalar);
      if (value.length <= 8 && value.every(isFlat)) return el("ol", { class: "texts" }, value.map((item) => el("li", {}, valueNode(item, 1))));
      return value.length > 3 || depth > 1 ? folded(plural(value.length, "item"), jsonNode(value)) : jsonNode(value);
    }
    const entries = Object.entries(value);
    if (!entries.length) return el("span", { class: "muted" }, "none");
    if (depth > 1) return jsonNode(value);
    return el("dl", { class: "values" }, entries.map(([name, item]) => [
      el("dt", {}, words(name)), el("dd", {}, valueNode(item, depth + 1)),
    ]));
  };

  // ---- parts of the view of a case ----

  const badge = (verdict) => el("span", { class: `verdict-badge is-${verdict}` },
    el("span", { class: "sign", "aria-hidden": "true" }, SIGNS[verdict] || "?"), ` ${words(verdict)}`);

  const part = (title, ...content) => el("section", { class: "part" }, el("h2", {}, title), ...content);

  /** Return a part of the view, or what is wrong with its data: the other parts are shown all the same. */
  const tried = (title, make) => {
    try { return make(); } catch (error) {
      return part(title, el("p", { class: "notice" }, `This part can't be shown: ${error.message}. The files of the run have its data.`));
    }
  };

  const scoreBar = (score, threshold) => {
    const x = (value) => String(Math.max(0, Math.min(1, value)) * 200);
    const passes = score >= threshold - 1e-9;
    return svg("svg", { class: `score-bar ${passes ? "passes" : "misses"}`, viewBox: "0 0 200 16", width: "200", height: "16", role: "img", "aria-label": `score ${number(score)}, threshold ${number(threshold)}` },
      svg("rect", { class: "track", x: "0", y: "4", width: "200", height: "8", rx: "4" }),
      svg("rect", { class: "fill", x: "0", y: "4", width: x(score), height: "8", rx: "4" }),
      svg("line", { class: "limit", x1: x(threshold), x2: x(threshold), y1: "0", y2: "16" }));
  };

  /** Return the terms as a waterfall: where each one takes the score. */
  const waterfall = (terms, score, threshold) => {
    let sum = 0;
    const steps = terms.map((term) => {
      const from = sum;
      if (term.effect === "zero") sum = 0;
      else if (term.effect === "add" || term.effect === "clamp") sum += term.value;
      return { term, from, to: sum };
    });
    const low = Math.min(0, ...steps.map((step) => step.to));
    const high = Math.max(1, ...steps.map((step) => step.to));
    const x = (value) => ((value - low) / (high - low)) * 240;
    const points = (term) => (term.effect === "zero" ? "= 0" : term.effect === "note" ? "note" : `${term.value < 0 ? "−" : "+"}${Math.abs(term.value).toFixed(2)}`);
    const bar = ({ term, from, to }) => {
      const kind = term.effect === "note" ? "note" : term.effect === "clamp" ? "clamp" : term.effect === "zero" || term.value < 0 ? "down" : "up";
      const drawn = svg("svg", { class: "waterfall", viewBox: "0 0 240 14", width: "240", height: "14", "aria-hidden": "true", focusable: "false" },
        svg("line", { class: "axis", x1: x(0), x2: x(0), y1: "0", y2: "14" }));
      if (kind !== "note") {
        drawn.append(svg("rect", { class: kind, x: Math.min(x(from), x(to)), y: "3", width: Math.max(2, Math.abs(x(to) - x(from))), height: "8", rx: "1.5" }));
      } else drawn.append(svg("circle", { class: "note", cx: Math.max(3, x(from)), cy: "7", r: "2.5" }));
      if (typeof threshold === "number") drawn.append(svg("line", { class: "limit", x1: x(threshold), x2: x(threshold), y1: "0", y2: "14" }));
      return drawn;
    };
    return scrolled("Terms", el("table", { class: "terms" },
      el("caption", { class: "unseen" }, "Terms of the score, in order"),
      el("thead", {}, el("tr", {}, ["term", "points", "score so far", "why"].map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, steps.map((step) => el("tr", { class: `effect-${step.term.effect}` },
        el("th", { scope: "row" }, el("code", {}, step.term.name)),
        el("td", { class: "number" }, points(step.term)),
        el("td", {}, bar(step)),
        el("td", {}, step.term.detail || "")))),
      typeof score === "number" ? el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, "score"),
        el("td", { class: "number" }, number(score)), el("td", {}, typeof threshold === "number" ? `threshold ${number(threshold)}` : ""), el("td", {}))) : null));
  };

  /** Return what the guards and checks decided; many that passed are folded. */
  const hookTable = (hooks) => {
    const isQuiet = (hook) => ["pass", "skip", "allow", "ok"].includes(String(hook.decision).toLowerCase());
    const table = (rows) => scrolled("Decisions", el("table", { class: "plain" },
      el("caption", { class: "unseen" }, "Decisions of guards and checks, in order"),
      el("thead", {}, el("tr", {}, ["guard or check", "decision", "rule"].map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, rows.map((hook) => el("tr", { class: isQuiet(hook) ? "quiet" : "loud" },
        el("th", { scope: "row" }, el("code", {}, hook.hook)), el("td", {}, hook.decision), el("td", { class: "number" }, hook.rule ?? ""))))));
    const loud = hooks.filter((hook) => !isQuiet(hook));
    const summary = loud.length ? `${plural(loud.length, "decision")} other than pass or skip` : "none objected";
    return [loud.length ? table(loud) : null,
      loud.length === hooks.length ? null : folded(`All ${plural(hooks.length, "decision")} in order (${summary})`, table(hooks))];
  };

  const contentNode = (content) => {
    if (Array.isArray(content) && content.every((item) => isObject(item) && typeof item.text === "string")) return content.map((item) => textNode(item.text));
    return typeof content === "string" ? (isObject(parsed(content)) ? jsonNode(parsed(content)) : textNode(content)) : valueNode(content, 1);
  };
  const message = (role, content, more) => el("li", { class: `message role-${/^[a-z]+$/.test(role) ? role : "other"}` },
    el("p", { class: "role" }, role), contentNode(content), more);
  const toolCalls = (calls) => (Array.isArray(calls) && calls.length
    ? el("div", {}, calls.map((call) => el("div", { class: "tool-call" }, el("code", {}, call?.name ?? call?.function?.name ?? call?.function ?? "tool"), jsonNode(call?.arguments ?? call?.args ?? call?.function?.arguments ?? call))))
    : null);
  const messageOf = (each) => (isObject(each)
    ? message(String(each.role ?? "message"), each.content ?? "", toolCalls(each.tool_calls))
    : message("message", each));

  /** Return the exchanges of a recording, folded. */
  const transcript = (recording) => {
    const objects = (value) => (Array.isArray(value) ? value.filter(isObject) : []);
    const exchanges = objects(recording?.exchanges);
    const gateway = objects(recording?.gateway);
    const tokens = (usage) => {
      const counts = [usage?.tokens_input, usage?.tokens_output];
      return counts.some((count) => typeof count === "number") ? `, ${counts.map((count) => count ?? "?").join(" + ")} tokens` : "";
    };
    const items = exchanges.map((exchange, index) => folded(
      `${index + 1}. ${exchange.role}${exchange.refusal ? ": refused" : ""}${exchange.problem ? `: ${exchange.problem.kind}` : ""}${tokens(exchange.usage)}`,
      el("ol", { class: "messages" },
        exchange.prompt?.system ? message("system", exchange.prompt.system) : null,
        Array.isArray(exchange.prompt?.messages) ? exchange.prompt.messages.map(messageOf) : exchange.prompt?.messages ? message("messages", exchange.prompt.messages) : null,
        message("answer", exchange.refusal ?? exchange.answer ?? "", [toolCalls(exchange.tool_calls), exchange.problem ? el("p", { class: "problem" }, exchange.problem.message) : null]))));
    const calls = gateway.map((call, index) => folded(
      `${index + 1}. ${call.provider} ${call.method} ${call.path}: ${call.status ?? "no answer"}${call.end && call.end !== "complete" ? `, ${call.end}` : ""}${tokens(call.usage)}`,
      el("ol", { class: "messages" },
        (Array.isArray(call.request?.messages) ? call.request.messages.map(messageOf) : call.request ? [message("request", call.request)] : []),
        message("answer", call.body ?? call.text ?? call.stream ?? "(binary)"))));
    return [...items, ...calls];
  };

  /** Return the first list of messages with roles in a result; empty without one. */
  const conversation = (value, depth) => {
    if (!depth || !value || typeof value !== "object") return [];
    if (Array.isArray(value)) return value.length && value.every((each) => isObject(each) && typeof each.role === "string") ? value : [];
    for (const item of Object.values(value)) {
      const found = conversation(item, depth - 1);
      if (found.length) return found;
    }
    return [];
  };

  const trialsTable = (trials, shown, choose) => scrolled("Trials", el("table", { class: "plain" },
    el("caption", { class: "unseen" }, "Trials of this case"),
    el("thead", {}, el("tr", {}, ["trial", "verdict", "score", "answer", "time", "what happened"].map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, trials.map((trial, index) => el("tr", {}, el("th", { scope: "row" }, button(String((trial.trial ?? index) + 1), () => choose(index), { "aria-pressed": String(trial === shown), "aria-label": `Show trial ${(trial.trial ?? index) + 1}` })),
      el("td", {}, badge(trial.verdict)), el("td", { class: "number" }, number(trial.score)), el("td", {}, trial.answer ?? "–"),
      el("td", { class: "number" }, duration(trial.duration_ms || 0)), el("td", {}, trial.message || ""))))));

  const pairNode = (expected, actual) => {
    const [first, second] = wordDiff(expected, actual);
    return el("dl", { class: "pair" }, el("dt", {}, "expected"), el("dd", {}, first), el("dt", {}, "actual"), el("dd", {}, second));
  };

  /** Return expected, actual and the baseline's answer beside each other, and what differs line by line. */
  const expectation = (row, details, shown) => {
    // the short texts of a row are those of its worst trial
    const isRow = details.trials.length === 1 || (shown.verdict !== "passed" && (shown.answer ?? null) === (row.answer ?? null));
    const expected = isObject(details.case) ? details.case.expected : undefined;
    const before = details.baseline;
    const actual = shown.answer ?? null;
    const said = (attempt) => {
      if (attempt.answer !== null && attempt.answer !== undefined) return attempt.answer;
      if (attempt === shown && isRow && row.actual_text) return row.actual_text;
      if (attempt.message) return attempt.message;
      if (attempt.refused) return "refused";
      // only packs that expect a decision compare it
      return expected?.decision && attempt.decision ? words(attempt.decision) : "no answer";
    };
    const now = said(shown);
    // a committed baseline has verdicts and no results
    const isStored = before && ((before.answer ?? null) !== null || before.message || before.refused || before.payload !== undefined || expected?.decision);
    const was = isStored ? said(before) : null;
    const [wasNode, nowNode] = was !== null && was !== now ? wordDiff(was, now) : [was, now];
    // where several parts are expected, one text for the answer would hide the part that is wrong
    const partsOf = (attempt) => {
      const parts = comparable(expected, attempt?.payload)?.[1];
      const names = isObject(expected) && isObject(parts) ? Object.keys(expected) : [];
      return names.length > 1 && names.every((name) => name in parts) ? Object.fromEntries(names.map((name) => [name, parts[name]])) : null;
    };
    const shownParts = (attempt, node) => (partsOf(attempt) ? valueNode(partsOf(attempt)) : el("p", { class: "answer" }, node));
    const isSame = isStored && was === now && pretty(before.payload ?? null) === pretty(shown.payload ?? null);
    const columns = [
      el("div", {}, el("h3", {}, "Expected"), expected === undefined
        ? el("p", { class: "muted" }, row.expected_text || "The case file is not at hand.") : markEqual(valueNode(expected), actual)),
      el("div", {}, el("h3", {}, "Actual"), shownParts(shown, nowNode),
        shown.match_level ? el("p", { class: "muted" }, `match: ${words(shown.match_level)}${typeof shown.match_depth === "number" ? `, depth ${shown.match_depth}` : ""}`) : null,
        shown.decision && actual !== null && expected?.decision ? el("p", { class: "muted" }, `decision: ${words(shown.decision)}`) : null),
      before ? el("div", {}, el("h3", {}, "Baseline"), isStored ? shownParts(before, wasNode) : el("p", { class: "muted" }, "its answer is not stored"),
        el("p", { class: "muted" }, badge(before.verdict), typeof before.score === "number" ? ` score ${number(before.score)}` : ""),
        isSame ? el("p", { class: "muted" }, "the same answer") : null) : null,
    ];
    // what passed has no difference, whatever its form; nor has a part that got its points
    const texts = shown.verdict === "passed" ? null : comparable(withoutRight(expected, shown.terms), shown.payload)?.map((value) => pretty(sorted(value)));
    const isDifferent = texts && texts[0] !== texts[1];
    const lines = [];
    if (isDifferent && texts.some((text) => text.includes("\n"))) {
      lines.push(el("h3", {}, "Expected (−) against actual (+), by line"), el("div", { class: "against-expected" }, lineDiff(...texts)));
    } else if (isRow && shown.verdict !== "passed" && (row.expected_text || row.actual_text)) lines.push(pairNode(row.expected_text || "", row.actual_text || ""));
    else if (isDifferent) lines.push(pairNode(...texts));
    return [el("div", { class: `columns ${before ? "three" : "two"}` }, columns), lines];
  };

  /** Return what is expected without the parts whose terms got their points. */
  const withoutRight = (expected, terms) => {
    if (!isObject(expected)) return expected;
    const about = (name) => terms.filter((term) => term.name === name || term.name.endsWith(`/${name}`) || term.name.endsWith(` ${name}`));
    const isRight = (name) => about(name).length > 0 && about(name).every((term) => term.effect === "add" && term.value > 0);
    return Object.fromEntries(Object.entries(expected).filter(([name]) => !isRight(name)));
  };

  /** Mark the values of a list that are the actual answer. */
  const markEqual = (node, actual) => {
    for (const item of node.querySelectorAll?.(".chips li") || []) {
      if (actual && actual === item.textContent) add(item, [el("span", { class: "is-answer" }, " ← the answer")]);
    }
    return node;
  };

  /** Return the parts of what is expected and of the result that have the same names; null without any. */
  const comparable = (expected, payload) => {
    if (!isObject(expected) || payload === undefined || payload === null) return null;
    const kind = (value) => (value instanceof Exact ? "number" : typeof value);
    for (const name of ["equals", "answer", "output", "text", "json", "result"]) {
      const value = expected[name];
      if (value === undefined || value === null) continue;
      const other = isObject(payload) && name in payload ? payload[name] : isObject(payload) ? payload.answer ?? payload.output ?? payload : payload;
      if (kind(value) === kind(other)) return [value, other];
    }
    if (!isObject(payload)) return null;
    const names = Object.keys(expected).filter((name) => name in payload);
    if (!names.length) return null;
    const chosen = (value) => Object.fromEntries(names.map((name) => [name, value[name]]));
    return [chosen(expected), chosen(payload)];
  };
  const sorted = (value) => {
    // 1.0 is 1, but integers of more than 53 bits can't be told apart as numbers
    if (value instanceof Exact) return /^-?\d+$/.test(value.text) ? value : Number(value.text);
    if (Array.isArray(value)) return value.map(sorted);
    return isObject(value) ? Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])])) : value;
  };

  const historyStrip = (history, now) => el("ol", { class: "history", "aria-label": "Verdicts of earlier runs, oldest first, and of this run" },
    [...history, now].map((verdict, index) => el("li", { class: `is-${verdict}${index === history.length ? " now" : ""}`, title: `${words(verdict)}${index === history.length ? " (this run)" : ""}` },
      el("span", { "aria-hidden": "true" }, SIGNS[verdict] || "?"), el("span", { class: "unseen" }, words(verdict)))));

  const copyText = async (text, source) => {
    try { await navigator.clipboard.writeText(text); return true; } catch {
      const range = document.createRange();
      range.selectNodeContents(source);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      try { return document.execCommand("copy"); } catch { return false; }
    }
  };

  // ---- the application ----

  const start = async (container) => {
    const pages = [...document.querySelectorAll('script.packbench-data[data-name="rows"]')].map((script) => script.dataset.run);
    const rows = [];
    for (const page of pages) {
      for (const row of rowsOf(JSON.parse(await unpack(block(page, "rows"))), page)) rows.push(Object.assign(row, { position: rows.length }));
    }
    const hasRuns = pages.length > 1;
    const byKey = new Map();
    for (const row of rows) {
      for (const key of [row.test_id, row.id]) {
        for (const name of [`${row.page} ${key}`, ` ${key}`]) if (!byKey.has(name)) byKey.set(name, row);
      }
    }
    const facets = new Map(rows.flatMap((row) => Object.keys(row.facets)).map((name) => [name.toLowerCase(), name]));
    const has = (test) => rows.some(test);
    const { marks, drafts, dropped } = storedMarks();
    let state = fromAddress();
    let shownRows = [];
    let scroll = 0;

    // -- table --

    const COLUMNS = [
      { key: "verdict", title: "verdict", value: rank, cell: (row) => badge(status(row)) },
      { key: "id", title: "case", value: (row) => row.id, row: true, cell: (row) => [
        el("a", { class: "case-link", href: addressOf(row) }, row.id), row.stale ? el("span", { class: "tag" }, "stale") : null,
        marks.has(markKey(row)) ? el("span", { class: "tag" }, `marked: ${MARKS[marks.get(markKey(row)).mark].toLowerCase()}`) : null,
        drafts.has(markKey(row)) ? el("span", { class: "tag" }, "mark begun") : null,
        row.input_text ? el("span", { class: "clip input", title: row.input_text }, row.input_text) : null] },
      hasRuns && { key: "run", title: "run", value: (row) => row.runLabel, cell: (row) => el("span", { class: "clip", title: row.run }, row.runLabel) },
      has((row) => row.type) && { key: "type", title: "type", value: (row) => row.type, cell: (row) => words(row.type) },
      has((row) => row.difficulty) && { key: "difficulty", title: "difficulty", value: (row) => ["easy", "medium", "hard"].indexOf(row.difficulty) + row.difficulty, cell: (row) => row.difficulty },
      { key: "score", title: "score", number: true, value: (row) => row.score ?? null, cell: (row) => number(row.score) },
      { key: "answer", title: "answer", value: (row) => row.answer ?? "", cell: (row) => {
        const was = row.before?.[2];
        return [el("span", { class: "clip", title: row.answer ?? row.message }, row.answer ?? row.message ?? (row.refused ? "(refused)" : "–")),
          was && was !== row.answer ? el("span", { class: "clip was", title: was }, `was ${was}`) : null];
      } },
      has((row) => row.change) && { key: "change", title: "change", value: (row) => CHANGES.indexOf(row.change), cell: (row) => changeNode(row) },
      has((row) => row.trials > 1) && { key: "trials", title: "trials passed", number: true, value: (row) => row.passed / row.trials, cell: (row) => `${row.passed} / ${row.trials}` },
      { key: "cause", title: "decided by", value: (row) => row.cause, cell: (row) => (isFailing(row) ? words(row.cause) : "") },
      { key: "duration", title: has((row) => row.trials > 1) ? "time, all trials" : "time", number: true, value: (row) => row.duration_ms || 0, cell: (row) => duration(row.duration_ms || 0) },
      has((row) => row.tokens) && { key: "tokens", title: "tokens", number: true, value: (row) => row.tokens ?? null, cell: (row) => (typeof row.tokens === "number" ? row.tokens.toLocaleString("en") : "–") },
      has((row) => row.cost_usd) && { key: "cost", title: "cost, USD", number: true, value: (row) => row.cost_usd ?? null, cell: (row) => (typeof row.cost_usd === "number" ? dollars(row.cost_usd) : "–") },
    ].filter(Boolean);
    const changeNode = (row) => {
      if (!row.change || row.change === "same") return "";
      return el("span", { class: `change is-${row.change}` }, words(row.change));
    };
    const GROUPS = {
      __proto__: null,
      "": ["no groups", null],
      terms: ["fails on the same term", (row) => (isFailing(row) ? row.cause : status(row))],
      type: ["type", (row) => row.type || "(no type)"],
      difficulty: ["difficulty", (row) => row.difficulty || "(no difficulty)"],
      verdict: ["verdict", status],
      ...Object.fromEntries([...facets.values()].map((name) => [`facet.${name}`, [words(name), (row) => row.facets[name] ?? `(no ${words(name)})`]])),
    };

    const addressOf = (row) => toAddress({ ...state, case: row.test_id, run: hasRuns ? row.page : "" });
    const go = (changes, { replace = false } = {}) => {
      state = { ...state, ...changes };
      const address = toAddress(state);
      if (address === location.hash) show();
      else if (replace) { history.replaceState(null, "", address); show(); }
      else location.hash = address;
    };

    const filter = el("input", { id: "case-filter", type: "search", "aria-describedby": "case-filter-help", autocomplete: "off", spellcheck: "false",
      placeholder: "failed type:negative term:citations -tag:food", oninput: () => go({ q: filter.value, page: 1, case: "" }, { replace: true }) });
    const count = el("p", { id: "case-count", role: "status" });
    const remark = el("p", { id: "case-filter-remark", class: "muted", role: "status", hidden: true });
    const groupSelect = el("select", { id: "case-group", onchange: () => go({ group: groupSelect.value, page: 1 }) },
      Object.entries(GROUPS).map(([value, [title]]) => el("option", { value }, title)));
    const quick = el("div", { class: "quick", role: "group", "aria-label": "Ready filters" });
    const pager = el("nav", { id: "case-pages", "aria-label": "Pages of cases" });
    const heads = new Map();
    const table = el("table", { id: "case-table" }, el("caption", { class: "unseen" }, "Cases of the run; the buttons in the header sort"));
    const headRow = el("tr", {}, COLUMNS.map((column) => {
      const cell = el("th", { scope: "col", class: column.number ? "number" : null },
        button(column.title, () => sortBy(column), { "data-sort": column.key }));
      heads.set(column.key, cell);
      return cell;
    }));
    table.append(el("thead", {}, headRow));
    const example = (text) => button(text, () => { go({ q: text, page: 1 }); filter.focus(); }, { class: "word" });
    const firstOf = (read, otherwise) => read(rows.find((row) => read(row)) || {}) || otherwise;
    const help = folded("How to filter", el("div", { id: "case-filter-help" },
      el("p", {}, "Words are combined: a case has to match all of them. A plain word is searched in ids, answers, messages, and what failed cases were asked; a minus excludes. ",
        el("code", {}, "term:"), " finds cases that lost points there, ", el("code", {}, "has:"), " all that have the term."),
      el("p", {}, "Try ", ["failing", `type:${quote(firstOf((row) => row.type, "negative"))}`, `difficulty:${firstOf((row) => row.difficulty, "hard")}`,
        `term:${quote(firstOf((row) => row.lost?.[0] || row.terms?.[0], "citations"))}`, `tag:${quote(firstOf((row) => row.tags?.[0], "food"))}`, "change:new_failure", "score<0.8", "duration>1000",
        ...[...facets.values()].slice(0, 1).map((name) => `${name}:${quote(firstOf((row) => row.facets?.[name], "x"))}`)].map(example),
      ". Names: verdict, type, difficulty, tag, term, has, change, kind, id, file, answer, message, score, duration, tokens, cost",
        facets.size ? `, ${[...facets.keys()].join(", ")}` : "", ".")));
    const review = el("section", { id: "review", hidden: true, "aria-labelledby": "review-title" });
    const notice = el("p", { class: "notice", hidden: true });
    const list = el("div", { class: "case-list" },
      el("div", { class: "toolbar" },
        el("div", { class: "search" }, el("label", { for: "case-filter" }, "Filter cases"), filter),
        el("div", {}, el("label", { for: "case-group" }, "Group by"), groupSelect),
        button("Keys", () => keys.showModal(), { class: "quiet-button", "aria-keyshortcuts": "?" })),
      quick, help, notice, el("div", { class: "status-line" }, count, remark),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of cases" }, table), pager, review);
    const view = el("section", { id: "case-view", hidden: true, "aria-labelledby": "case-title", tabindex: "-1" });
    const keys = el("dialog", { id: "case-keys", "aria-labelledby": "case-keys-title" },
      el("h2", { id: "case-keys-title" }, "Keys"),
      el("dl", { class: "keys" }, [["/", "filter the cases"], ["j  k  ↓  ↑", "next, previous case"], ["Enter", "open the case"], ["Esc", "close the case"], ["n", "next failing case"], ["?", "these keys"]]
        .map(([key, text]) => [el("dt", {}, key.split("  ").map((each) => [el("kbd", {}, each), " "])), el("dd", {}, text)])),
      el("form", { method: "dialog" }, el("button", {}, "Close")));

    const sortBy = (column) => {
      const isSame = state.sort === column.key;
      const first = column.number && column.key !== "score" ? "desc" : "asc";
      const second = first === "asc" ? "desc" : "asc";
      const current = state.dir || "asc";
      if (!isSame) go({ sort: column.key, dir: first, page: 1 });
      else if (current === first) go({ dir: second, page: 1 });
      else go({ sort: "", dir: "", page: 1 });
    };

    const collator = new Intl.Collator("en", { numeric: true });
    const ordered = (found) => {
      const column = COLUMNS.find((each) => each.key === state.sort);
      const group = GROUPS[state.group]?.[1];
      const sign = state.dir === "desc" ? -1 : 1;
      const keyed = found.map((row) => ({ row, value: column ? column.value(row) : rank(row), group: group ? group(row) : "" }));
      const sizes = new Map();
      for (const { group: name, row } of keyed) {
        const size = sizes.get(name) || { failing: 0, all: 0 };
        size.all += 1;
        size.failing += isFailing(row) ? 1 : 0;
        sizes.set(name, size);
      }
      const compareValues = (a, b) => {
        if (a === b) return 0;
        // what is not known comes last in either direction
        if (a === null || b === null) return (a === null ? 1 : -1) * sign;
        return typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b);
      };
      keyed.sort((a, b) =>
        (group && a.group !== b.group
          ? sizes.get(b.group).failing - sizes.get(a.group).failing || sizes.get(b.group).all - sizes.get(a.group).all || collator.compare(a.group, b.group)
          : 0) || sign * compareValues(a.value, b.value) || a.row.position - b.row.position);
      return { sizes, keyed };
    };

    const showTable = () => {
      const { found, remarks } = filtered(state.q, facets, rows);
      remark.textContent = visible(remarks.join(" "));
      remark.hidden = !remarks.length;
      const { sizes, keyed } = ordered(found);
      shownRows = keyed.map((each) => each.row);
      const pageCount = Math.max(1, Math.ceil(keyed.length / PAGE_ROWS));
      const page = Math.min(state.page, pageCount);
      const onPage = keyed.slice((page - 1) * PAGE_ROWS, page * PAGE_ROWS);
      for (const body of [...table.tBodies]) body.remove();
      let body = null;
      let last = null;
      for (const { row, group } of onPage) {
        if (body === null || group !== last) {
          body = el("tbody", {});
          table.append(body);
          if (state.group) {
            const size = sizes.get(group);
            body.append(el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: String(COLUMNS.length) }, words(group), " ",
              el("span", { class: "muted" }, `${plural(size.all, "case")}${size.failing ? `, ${size.failing} failing` : ""}`))));
          }
          last = group;
        }
        body.append(el("tr", { "data-case": row.id, class: `is-${status(row)}`, onclick: (event) => {
          if (!event.target.closest("a, button") && !String(getSelection())) location.hash = addressOf(row);
        } }, COLUMNS.map((column) => el(column.row ? "th" : "td", { scope: column.row ? "row" : null, class: column.number ? "number" : `col-${column.key}` }, column.cell(row)))));
      }
      if (!onPage.length) table.append(el("tbody", {}, el("tr", {}, el("td", { colspan: String(COLUMNS.length), class: "none" }, "No case matches. Remove a word of the filter, or press Esc in its field."))));
      for (const [key, cell] of heads) {
        if (key === state.sort) cell.setAttribute("aria-sort", state.dir === "desc" ? "descending" : "ascending");
        else cell.removeAttribute("aria-sort");
      }
      const failing = found.filter(isFailing).length;
      count.textContent = `${found.length === rows.length ? plural(rows.length, "case") : `${found.length.toLocaleString("en")} of ${plural(rows.length, "case")}`}${failing ? `, ${failing} failing` : ""}`;
      pager.replaceChildren();
      if (pageCount > 1) {
        add(pager, [button("Previous", () => go({ page: page - 1 }), { disabled: page === 1 }), el("span", {}, ` page ${page} of ${pageCount} `),
          button("Next", () => go({ page: page + 1 }), { disabled: page === pageCount })]);
      }
      if (document.activeElement !== filter) filter.value = state.q;
      groupSelect.value = state.group in GROUPS ? state.group : "";
      showQuick();
    };

    const READY = [["failing", "failing", isFailing], ["change:new_failure", "new failures", (row) => row.change === "new_failure"], ["error", "errors", (row) => status(row) === "error"],
      ["change:recovered", "recovered", (row) => row.change === "recovered"], ["stale", "stale", (row) => row.stale], ["quarantined", "quarantined", (row) => row.quarantined], ["passed", "passed", (row) => status(row) === "passed"]]
      .map(([word, title, test]) => [word, title, rows.filter(test).length]).filter(([, , size]) => size);
    const showQuick = () => {
      const current = state.q.split(/\s+/).filter(Boolean);
      const focused = document.activeElement?.dataset?.word;
      quick.replaceChildren(...READY.map(([word, title, size]) => {
        const isOn = current.includes(word);
        return button([title, " ", el("span", { class: "size" }, size.toLocaleString("en"))], () => go({ q: (isOn ? current.filter((each) => each !== word) : [...current, word]).join(" "), page: 1 }),
          { "aria-pressed": String(isOn), "data-word": word });
      }));
      if (focused) quick.querySelector(`[data-word="${focused}"]`)?.focus();
    };

    // -- case --

    const current = () => byKey.get(`${state.run} ${state.case}`) || byKey.get(` ${state.case}`);
    const neighbour = (row, step, test = () => true) => {
      const order = shownRows.includes(row) ? shownRows : rows;
      const from = order.indexOf(row);
      for (let index = from + step; index >= 0 && index < order.length; index += step) if (test(order[index])) return order[index];
      return null;
    };
    const open = (row) => { if (row) go({ case: row.test_id, run: hasRuns ? row.page : "" }); };
    const close = () => go({ case: "", run: "" });

    const showCase = async (row, chosen = -1) => {
      const title = el("h1", { id: "case-title" }, row.id);
      const previous = neighbour(row, -1);
      const next = neighbour(row, 1);
      const failing = neighbour(row, 1, isFailing) || shownRows.find((each) => each !== row && isFailing(each));
      const bar = el("div", { class: "case-bar" },
        button("← All cases", close, { id: "case-close", "aria-keyshortcuts": "Escape" }),
        el("span", { class: "spacer" }),
        button("Previous", () => open(previous), { disabled: !previous, "aria-keyshortcuts": "k" }),
        button("Next", () => open(next), { disabled: !next, "aria-keyshortcuts": "j" }),
        button("Next failing", () => open(failing), { id: "case-next-failing", disabled: !failing, "aria-keyshortcuts": "n" }));
      view.replaceChildren(bar, title, el("p", { class: "muted", role: "status" }, "Unpacking…"));
      view.hidden = false;
      document.body.classList.add("case-open");
      let details;
      try { details = await detailsOf(row); } catch (error) {
        view.lastChild.textContent = `The details of this case can't be unpacked: ${error.message}. Write the page again with "packbench report --html".`;
        return;
      }
      if (current() !== row) return;
      const several = details.trials.length > 1;
      const shown = details.trials[chosen] || details.trials.find((trial) => trial.verdict === row.verdict) || details.trials[0];
      const which = `trial ${details.trials.indexOf(shown) + 1} of ${details.trials.length}`;
      const ofTrial = several ? ` of ${which}` : "";
      const input = isObject(details.case) ? details.case.input ?? details.case : details.case;
      const command = el("code", { class: "command", tabindex: "0" }, row.command);
      const copied = el("span", { role: "status", class: "muted" });
      const facts = [
        ["type", words(row.type)], ["difficulty", row.difficulty],
        ...Object.entries(row.facets).map(([name, value]) => [words(name), value]),
        ["model", shown.llm_backend === "unknown" ? "not known" : [shown.llm_backend, shown.llm_model].filter(Boolean).join(" / ")],
        ...details.facts.map((name) => [words(name), String(shown[name] ?? "")]),
        [several ? `time${ofTrial}` : "time", duration(shown.duration_ms || 0)],
        [several ? "time of all trials" : "", duration(row.duration_ms || 0)],
        [several ? "tokens of all trials" : "tokens", typeof row.tokens === "number" ? `${row.tokens.toLocaleString("en")}${several ? "" : ` (${shown.tokens_input ?? "?"} in, ${shown.tokens_output ?? "?"} out)`}` : ""],
        [several ? "cost of all trials" : "cost", typeof row.cost_usd === "number" ? `${dollars(row.cost_usd)} USD` : ""],
        ["run", hasRuns ? `${row.runLabel} (${row.run})` : ""],
      ].filter(([name, value]) => name && value);
      const transcriptPart = () => {
        const exchanges = transcript(details.recording);
        const messages = conversation(shown.payload, 3);
        return exchanges.length || messages.length ? part("Transcript",
          messages.length ? folded(`Conversation in the result (${plural(messages.length, "message")})`, el("ol", { class: "messages" }, messages.map(messageOf))) : null,
          exchanges) : null;
      };
      const score = several && typeof row.score === "number" ? `mean score ${number(row.score)}` : `score ${number(row.score)}`;
      add(view.replaceChildren(bar) || view, [
        title,
        el("p", { class: "case-head" }, badge(status(row)), typeof row.score === "number" && typeof row.threshold === "number"
          ? [" ", el("span", { class: "score" }, `${score} ${row.score >= row.threshold - 1e-9 ? "≥" : "<"} ${number(row.threshold)}`), " ", scoreBar(row.score, row.threshold)] : null,
          row.change && row.change !== "same" ? [" ", el("span", { class: `change is-${row.change}` }, words(row.change))] : null,
          row.stale ? [" ", el("span", { class: "tag" }, "stale recording")] : null),
        several ? el("p", { class: "muted", id: "case-trial" }, `Shown is ${which}`, typeof shown.score === "number" ? `, with score ${number(shown.score)}` : "", "; choose another one under “Trials”.") : null,
        row.message || shown.message ? el("p", { class: `problem is-${status(row)}` }, row.kind ? el("strong", {}, `${words(row.kind)}: `) : null, row.message || shown.message) : null,
        details.remark ? el("p", { class: "notice" }, `Shown as it is now: ${details.remark}.`) : null,
        shown.remark ? el("p", { class: "notice" }, shown.remark) : null,
        shown.cut ? el("p", { class: "notice" }, "The result is too long for this page, and cut here; payloads.jsonl in the folder of the run has all of it.") : null,
        details.history.length ? el("div", { class: "history-line" }, el("span", { class: "muted" }, "earlier runs "), historyStrip(details.history, status(row))) : null,
        tried("Input", () => part("Input", typeof details.case === "string" ? el("p", { class: "muted" }, "The case is too long for this page and cut here, or is no JSON.") : null, input === undefined ? el("p", { class: "muted" }, "The input is not at hand: the case file was not readable when this page was written.") : valueNode(input))),
        tried("Expected and actual", () => part("Expected and actual", ...expectation(row, details, shown))),
        shown.terms.length ? tried("Score, term by term", () => part(`Score${ofTrial}, term by term`, waterfall(shown.terms, shown.score, shown.threshold))) : null,
        several ? part(`Trials: ${row.passed} of ${row.trials} passed${row.quarantined ? ", not counted" : ""}`, trialsTable(details.trials, shown, (index) => showCase(row, index))) : null,
        shown.hooks.length ? tried("Guards and checks", () => part("Guards and checks", ...hookTable(shown.hooks))) : null,
        tried("Transcript", transcriptPart),
        shown.payload !== undefined ? tried("Result of the target", () => part("Result of the target",
          folded("As the target returned it", jsonNode(shown.payload)),
          details.baseline?.payload !== undefined && details.baseline ? folded("Against the baseline's result, by line", lineDiff(pretty(details.baseline.payload), pretty(shown.payload))) : null)) : null,
        part("File and command",
          el("p", {}, row.link ? el("a", { href: row.link }, row.file) : el("code", {}, row.file)),
          el("div", { class: "command-line" }, command, button("Copy", async () => {
            copied.textContent = (await copyText(row.command, command)) ? "Copied" : "Select the text and copy it";
          }, { id: "case-copy", "aria-label": "Copy the command" }), copied),
          el("dl", { class: "facts" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
          row.tags.length ? el("ul", { class: "chips", "aria-label": "Tags" }, row.tags.map((tag) => el("li", {}, el("a", { href: toAddress({ ...EMPTY, q: `tag:${quote(tag)}` }) }, tag)))) : null,
          isObject(details.case) && details.case.notes ? tried("Notes of the case", () => folded("Notes of the case", valueNode(details.case.notes))) : null),
        markForm(row, shown),
      ]);
      document.title = visible(`${row.id} · ${documentTitle}`);
    };

    /** Return why the shown answer can't be added to the accepted ones, and what to do instead; empty if it may be possible. */
    const notAcceptable = (row, shown) => {
      if (shown.verdict === "passed") return "this answer passes already";
      if (shown.verdict !== "failed") return "there is no answer that was scored";
      // a pack may have decided it; what its terms tell comes after that
      if (row.can_accept === false || row.pack === "agent_safety") return "this case has no list of accepted answers; choose “Gold is wrong”";
      const lost = shown.terms.filter((term) => term.effect === "add" && term.value <= 0);
      const isSingle = (term) => /^(?:exact|numeric|contains|regex|set|json_schema|text) /.test(term.name);
      if (row.pack !== "generic" || !lost.length || !lost.every(isSingle)) return "";
      return `${lost[0].name} accepts one value; use the rule one_of in suite.yaml, or choose “Gold is wrong”`;
    };
    const markForm = (row, shown) => {
      const marked = marks.get(markKey(row));
      const begun = drafts.get(markKey(row)) || marked;
      const by = el("input", { id: "mark-by", type: "text", maxlength: "200", required: true, autocomplete: "name", value: begun?.by ?? [...marks.values()].at(-1)?.by ?? "" });
      const reason = el("textarea", { id: "mark-reason", rows: "3", maxlength: "2000", required: true }, begun?.reason ?? "");
      const said = el("p", { role: "status", class: "muted" }, drafts.has(markKey(row)) ? "Begun, and not marked yet." : "");
      const keepDraft = () => {
        const mark = form.querySelector("input[name=mark]:checked")?.value;
        drafts.set(markKey(row), { suite: row.suite, case: row.id, case_sha256: row.case_sha256, run_id: row.run || "", mark, reason: reason.value, by: by.value });
        said.textContent = "Begun, and not marked yet.";
        keep();
        showReview();
      };
      const form = el("form", { class: "mark", oninput: keepDraft, onsubmit: (event) => {
        event.preventDefault();
        const mark = form.querySelector("input[name=mark]:checked")?.value;
        const missing = !mark ? "Choose a mark." : !reason.value.trim() ? "Write a reason." : !by.value.trim() ? "Write who says so." : !row.case_sha256 ? "This case could not be read, and can't be marked." : "";
        if (missing) { said.textContent = missing; return; }
        marks.set(markKey(row), {
          version: 1, suite: row.suite, case: row.id, case_sha256: row.case_sha256, mark, reason: reason.value.trim(), by: by.value.trim(),
          answer: shown.answer ?? null, run_id: row.run || "", marked_at: new Date().toISOString(),
          // the text itself: a value would lose digits
          result: !shown.cut && shown.payloadText.length <= MAX_RESULT ? shown.payloadText : "",
        });
        drafts.delete(markKey(row));
        keep();
        showReview();
        said.textContent = "Marked. The list of marks is below the table of cases; download review.jsonl there or here.";
        form.querySelector("#mark-download").hidden = false;
      } },
      el("fieldset", { id: "case-mark" }, el("legend", { class: "unseen" }, "Mark this case for review"),
        el("div", { class: "choices" }, Object.entries(MARKS).map(([value, title]) => {
          const wrong = value === "also_acceptable" && begun?.mark !== value ? notAcceptable(row, shown) : "";
          return el("label", {}, el("input", { type: "radio", name: "mark", value, checked: begun?.mark === value, disabled: Boolean(wrong) }),
            ` ${title}`, el("span", { class: "muted" }, wrong ? `: not here, ${wrong}` : ` ${MARK_HINTS[value]}`));
        })),
        el("label", { for: "mark-reason" }, "Why"), reason, el("label", { for: "mark-by" }, "Who"), by,
        el("div", { class: "actions" }, el("button", { id: "mark-save", type: "submit" }, "Mark"),
          button("Download review.jsonl", download, { id: "mark-download", hidden: !marks.size }),
          begun ? button(marked ? "Remove the mark" : "Discard", () => { marks.delete(markKey(row)); drafts.delete(markKey(row)); keep(); showReview(); show(); }) : null), said));
      return part("Is the case itself right?", el("p", { class: "muted" }, "A mark changes nothing here. Download the marks as review.jsonl, and apply them with “packbench review review.jsonl”."), form);
    };

    /** Return the marks and begun marks of this page; those of runs or cases that it no longer has are dropped. */
    function storedMarks() {
      let stored = {};
      try { stored = JSON.parse(sessionStorage.getItem(`${STORED} ${location.pathname}`)) || {}; } catch { /* begin anew */ }
      const name = (...parts) => JSON.stringify(parts);
      const known = new Set(stored.marks || stored.drafts ? rows.map((row) => name(row.suite, row.id, row.run || "", row.case_sha256)) : []);
      const isKnown = ([, mark]) => known.has(name(mark.suite, mark.case, mark.run_id, mark.case_sha256));
      const [all, begun] = [stored.marks || [], stored.drafts || []];
      const found = new Map(all.filter(isKnown));
      return { marks: found, drafts: new Map(begun.filter(isKnown)), dropped: all.length - found.size };
    }
    const keep = () => {
      try { sessionStorage.setItem(`${STORED} ${location.pathname}`, JSON.stringify({ marks: [...marks], drafts: [...drafts] })); } catch { /* kept in memory */ }
    };
    const download = () => {
      const line = ({ result, ...mark }) => JSON.stringify(mark).replace(/\}$/, () => (result ? `,"result":${result}}\n` : "}\n"));
      const text = [...marks.values()].map(line).join("");
      const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/jsonl" })), download: "review.jsonl" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    };
    const showReview = () => {
      review.hidden = !marks.size && !drafts.size && !dropped;
      const linked = (mark) => {
        const row = rows.find((each) => each.id === mark.case && each.suite === mark.suite && (each.run || "") === mark.run_id);
        return row ? el("a", { href: addressOf(row) }, mark.case) : mark.case;
      };
      review.replaceChildren(el("h3", { id: "review-title" }, `Marked for review: ${plural(marks.size, "case")}`),
        el("ul", {}, [...marks].map(([key, mark]) => el("li", {}, linked(mark), `: ${MARKS[mark.mark].toLowerCase()}, ${mark.reason} (${mark.by}) `,
          button("Remove", () => { marks.delete(key); drafts.delete(key); keep(); showReview(); showTable(); }, { "aria-label": `Remove the mark of ${mark.case}` }))),
          [...drafts.values()].map((draft) => el("li", {}, linked(draft), ": begun, and not marked yet; review.jsonl does not have it"))),
        dropped ? el("p", { class: "notice" }, `${plural(dropped, "mark")} of an earlier version of this page dropped: its run or case has changed since.`) : "",
        button("Download review.jsonl", download, { id: "review-download", disabled: !marks.size }),
        el("p", { class: "muted" }, "Apply them with “packbench review review.jsonl”: it prints the changes, and writes them with --write."));
    };

    // -- events --

    const documentTitle = document.title;
    let openCase = null;
    const show = () => {
      const row = state.case ? current() : null;
      notice.hidden = !state.case || Boolean(row);
      if (!notice.hidden) notice.textContent = visible(`This page has no case “${state.case}”.`);
      showTable();
      if (row) {
        if (!openCase) scroll = window.scrollY;
        const isNew = openCase !== row;
        openCase = row;
        showCase(row).then(() => { if (isNew) { window.scrollTo(0, 0); view.focus({ preventScroll: true }); } });
        return;
      }
      if (openCase) {
        const closed = openCase;
        openCase = null;
        view.hidden = true;
        view.replaceChildren();
        document.body.classList.remove("case-open");
        document.title = documentTitle;
        if (location.hash.startsWith("#cases")) {
          window.scrollTo(0, scroll);
          const link = [...table.querySelectorAll("a.case-link")].find((each) => each.getAttribute("href") === addressOf(closed));
          if (link) link.focus({ preventScroll: Boolean(scroll) });
          else filter.focus({ preventScroll: true });
        }
      }
    };
    const isTyping = (target) => target.closest?.("input, textarea, select, dialog[open]");
    const move = (step) => {
      if (openCase) { open(neighbour(openCase, step)); return; }
      const links = [...table.querySelectorAll("a.case-link")];
      if (!links.length) return;
      const at = links.indexOf(document.activeElement);
      const link = links[Math.max(0, Math.min(links.length - 1, at + step))];
      link.focus();
      link.scrollIntoView({ block: "nearest" });
    };
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
      if (event.key === "Escape") {
        if (event.target === filter && filter.value) { go({ q: "", page: 1 }, { replace: true }); filter.value = ""; }
        else if (isTyping(event.target)) event.target.blur();
        else if (openCase) close();
        else return;
      } else if (isTyping(event.target)) {
        if (event.target === filter && (event.key === "ArrowDown" || event.key === "Enter")) { filter.blur(); move(1); } else return;
      } else if (event.key === "/") {
        if (openCase) close();
        filter.focus();
        filter.select();
        list.scrollIntoView({ block: "start" });
      } else if (event.key === "j") move(1);
      else if (event.key === "k") move(-1);
      else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && table.contains(document.activeElement)) move(event.key === "ArrowDown" ? 1 : -1);
      else if (event.key === "n") open(openCase ? neighbour(openCase, 1, isFailing) || shownRows.find((row) => isFailing(row) && row !== openCase) : shownRows.find(isFailing) || rows.find(isFailing));
      else if (event.key === "?") keys.showModal();
      else return;
      event.preventDefault();
    });
    window.addEventListener("hashchange", () => {
      const next = fromAddress();
      // a link to another section of the page keeps filter and order
      const isOurs = /^#(cases|(run=[^&]*&)?case=)/.test(location.hash);
      state = isOurs ? next : { ...state, case: "", run: "" };
      show();
      if (!isOurs && location.hash.length > 1) $(decoded(location.hash.slice(1)))?.scrollIntoView();
    });

    const allPassed = rows.length && rows.every((row) => status(row) === "passed");
    if (allPassed) list.prepend(el("p", { class: "all-passed" }, el("span", { "aria-hidden": "true" }, "✓ "), rows.length === 1 ? "The only case passed." : `All ${rows.length.toLocaleString("en")} cases passed.`));
    container.append(list);
    container.hidden = false;
    (document.querySelector("main") || container).append(view, keys);
    for (const other of document.querySelectorAll("#cases-static, .cases-static")) other.hidden = true;
    showReview();
    show();
    if (location.hash.startsWith("#cases?")) list.scrollIntoView({ block: "start" });
  };

  const startTheme = () => {
    const toggle = $("theme-toggle") || $("theme");
    if (!toggle) return;
    const system = matchMedia("(prefers-color-scheme: dark)");
    const set = (theme) => {
      if (theme) document.documentElement.dataset.theme = theme;
      const isDark = (theme || (system.matches ? "dark" : "light")) === "dark";
      toggle.textContent = isDark ? "Light theme" : "Dark theme";
    };
    let chosen = "";
    try { chosen = localStorage.getItem("packbench-theme") || ""; } catch { /* not stored */ }
    set(["light", "dark"].includes(chosen) ? chosen : "");
    system.addEventListener("change", () => set(document.documentElement.dataset.theme));
    toggle.addEventListener("click", () => {
      const now = document.documentElement.dataset.theme || (system.matches ? "dark" : "light");
      const theme = now === "dark" ? "light" : "dark";
      try { localStorage.setItem("packbench-theme", theme); } catch { /* not stored */ }
      set(theme);
    });
    toggle.hidden = false;
  };

  startTheme();
  const container = $("packbench-cases") || document.querySelector(".cases-app");
  if (!container || !document.querySelector("script.packbench-data")) return;
  const say = (text) => {
    container.append(el("p", { class: "notice" }, text));
    container.hidden = false;
  };
  if (typeof DecompressionStream === "undefined") {
    say("This browser can't unpack the table of cases. Open the page in a current version of Chrome, Edge, Firefox or Safari, or read summary.md and records.jsonl beside it.");
    return;
  }
  start(container).catch((error) => say(`The table of cases can't be shown: ${error.message}. Write the page again with "packbench report --html", or read summary.md beside it.`));
})();
