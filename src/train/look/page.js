"use strict";
/*
 * Draws the report from the JSON beside it. A text of the run only ever becomes a text node; there
 * is no markup from data, no evaluation, no request. docs/report.md says what is shown.
 */
(() => {
const D = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main"), head = document.querySelector("header");
const SVG = "http://www.w3.org/2000/svg";

/* ------------------------------------------------------------ building */
function el(tag, props, ...kids) {
  const e = tag.startsWith("svg:") ? document.createElementNS(SVG,
      tag.slice(4)) : document.createElement(tag);
  for (const k in props || {}) {
    const v = props[k];
    if (v === null || v === undefined || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...kids.flat(3).filter(x => x !== null && x !== undefined && x !== false));
  return e;
}
const svg = (tag, props, ...kids) => el("svg:" + tag, props, ...kids);
/* control and direction characters are shown, not obeyed */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const visible = t => String(t ?? "").replace(HIDDEN, c => c < " "
  ? String.fromCharCode(0x2400 + c.charCodeAt(0))
  : "\u27e8U+" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9");
function plain(x, d) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e10 || size < 1e-4) return x.toExponential(1);
  return size >= 1000 ? Math.round(x).toLocaleString("en") : String(+x.toPrecision(d));
}
const num = (x, d = 3) => plain(x, d).replace("-", "−");
const pct = x => x === null || x === undefined || Number.isNaN(x) ? "–" : (100 * x).toFixed(1) +
    "\u00a0%";
const drawn = x => Math.max(-1e300, Math.min(1e300, x)); /* differences of two stay finite */
const clock = s => s < 90 ? Math.round(s) + " s" : s < 5400 ? Math.floor(s / 60) + " min " +
    Math.round(s % 60) + " s"
  : Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
const few = (n, one, many = one + "s") => `${n} ${n === 1 ? one : many}`;
const ICON = { good: "✓", warn: "!", bad: "✕", off: "–" };
const WORD = { good: "well", warn: "look", bad: "wrong", off: "not judged" };
const last = a => { for (let i = (a || []).length; i--;) if (a[i] !== null) return a[i];
    return null; };
const first = a => (a || []).find(x => x !== null) ?? null;
const quote = t => /^[\w@%+=:,./-]+$/.test(t) ? t : "'" + String(t).replace(/'/g, "'\\''") + "'";
const store = { /* a page from disk may have no storage */
  get: k => { try { return localStorage.getItem("ares-report-" + k); } catch { return null; } },
  set: (k, v) => { try { localStorage.setItem("ares-report-" + k, v);
      } catch { /* not remembered */ } },
};

/* ------------------------------------------------------------ runs: one of them is in hand */
const RUNS = D.runs, several = RUNS.length > 1;
let R, S, X; /* the run, its series, its steps */
function take(i) { R = RUNS[i] || RUNS[0]; S = R.series; X = S.step; }
take(0);
{ /* names: unlike each other */
  const full = r => (r.project ? r.project + "/" : "") + r.name;
  for (const r of RUNS) r.label = RUNS.filter(o => full(o) === full(r)).length > 1 ? r.dir :
      several ? r.name : full(r);
  if (several) for (const r of RUNS) if (RUNS.filter(o => o.label === r.label).length > 1) r.label = r.dir;
}
/* of texts that were encoded anew only the update has entropies (env.token_exact) */
const ENTROPY = RUNS.some(r => r.series["rollout/entropy"]) ? "rollout/entropy" : "actor/entropy";
/* runs whose names differ in a trailing seed alone are one variant: a line with a band */
const VARIANTS = [];
for (const r of RUNS) {
  const name = r.label.replace(/[-_./ =]*(seed|run|s|r)?[-_=]?\d+$/i, "") || r.label;
  const v = VARIANTS.find(o => o.name === name);
  if (v) v.runs.push(r); else VARIANTS.push({ name, runs: [r] });
}
for (const v of VARIANTS) if (v.runs.length === 1) v.name = v.runs[0].label;
const AXIS = [...new Set(RUNS.flatMap(r => r.series.step))].sort((a, b) => a - b);
/* a variant's values on AXIS: of one run, or mean and standard error where every run has a value */
function course(v, metric) {
  const maps = v.runs.map(r => new Map(r.series.step.map((s, i) => [s,
      (r.series[metric] || [])[i] ?? null])));
  const y = [], band = [];
  for (const s of AXIS) {
    const x = maps.map(m => m.get(s) ?? null);
    if (x.includes(null)) { y.push(null); band.push(null); continue; }
    const n = x.length, mean = x.reduce((a, b) => a + b, 0) / n;
    const se = n > 1 ? Math.sqrt(x.reduce((a, b) => a + (b - mean) ** 2, 0) / (n - 1) / n) : 0;
    y.push(drawn(mean)); band.push(n > 1 && Number.isFinite(se) ? [mean - se, mean + se] : null);
  }
  return { name: v.name + (v.runs.length > 1 ? ` (${v.runs.length} runs)` : ""), x: AXIS, y, band,
      note: v.runs.length > 1 ? "± standard error" : null };
}

/* ------------------------------------------------------------ columns */
function bytes(b64) {
  const text = atob(b64), out = new Uint8Array(text.length);
  for (let i = 0; i < out.length; i++) out[i] = text.charCodeAt(i);
  return out;
}
function ints(b64, w) {
  const b = bytes(b64), n = b.length / w, out = new Int32Array(n);
  for (let i = 0; i < n; i++) for (let k = w; k--;) out[i] = out[i] * 256 + b[i * w + k];
  return out;
}
function halfs(b64) {
  const b = bytes(b64), out = new Float32Array(b.length / 2);
  for (let i = 0; i < out.length; i++) {
    const h = b[2 * i] | b[2 * i + 1] << 8, e = h >> 10 & 31, m = h & 1023, s = h & 32768 ? -1 : 1;
    out[i] = e === 0 ? s * m * 2 ** -24 : e === 31 ? (m ? NaN : s * Infinity) : s * (1 +
        m / 1024) * 2 ** (e - 15);
  }
  return out;
}
function runs(list, n) { const out = new Float32Array(n); for (const [at,
    count] of list) out.fill(1, at, at + count); return out; }
function levels(list, n, rest) {
  const out = new Float32Array(n).fill(rest);
  let at = 0;
  for (const [x, count] of list) { out.fill(x === null ? NaN : x, at, at + count); at += count; }
  return out;
}
function columns(a) { /* an answer's tokens, unpacked when it is first shown */
  if (a.cols || !a.tok) return a.cols || null;
  const t = a.tok, piece = ints(t.p, D.pw), n = piece.length, c = { n, piece };
  c.text = Array.from(piece, p => D.pieces[p]);
  if (t.e) {
    c.entropy = halfs(t.e);
    const w = R.window || 100;
    c.window = new Float32Array(n).fill(NaN);
    let sum = 0;
    for (let i = 1; i < n; i++) {
      sum += c.entropy[i] || 0;
      if (i > w) sum -= c.entropy[i - w] || 0;
      if (i >= w) c.window[i - w] = sum / w;
    }
  }
  if (t.lp) c.logprob = halfs(t.lp);
  if (t.rp) c.ref = halfs(t.rp);
  if (t.r) c.ratio = halfs(t.r);
  if (t.k) c.kl = halfs(t.k);
  if (t.v) c.value = halfs(t.v);
  if (t.w) c.weight = levels(t.w, n, 1);
  if (t.h) c.hwe = runs(t.h, n);
  if (t.c) c.clip = runs(t.c, n);
  if (t.i) c.id = ints(t.i, 3);
  c.mask = a.discarded ? new Float32Array(n) : t.m ? runs(t.m, n) : new Float32Array(n).fill(1);
  c.advantage = t.a ? levels(t.a, n, a.adv || 0) : new Float32Array(n).fill(a.adv || 0);
  return a.cols = c;
}
const textOf = a => a.text ?? columns(a).text.join("");

/* ------------------------------------------------------------ charts */
function ticks(lo, hi, n) {
  if (!(hi > lo)) { const p = Math.abs(lo) * .1 || 1; lo -= p; hi += p; }
  const raw = (hi - lo) / n, p = 10 ** Math.floor(Math.log10(raw)), l = raw / p;
  const s = p * (l <= 1 ? 1 : l <= 2 ? 2 : l <= 5 ? 5 : 10), out = [];
  for (let v = Math.ceil(lo / s - 1e-9) * s; v <= hi + s * 1e-9;
      v += s) out.push(Math.abs(v) < s * 1e-9 ? 0 : v);
  return out;
}
const hovers = []; /* every chart follows one pointer: the step */
function chart(title, lines, opt = {}) {
  const W = 340, H = 150, L = 44, B = 20, T = 6, w = W - L - 8, h = H - B - T;
  lines = lines.map((l, i) => ({ ...l, i })).filter(l => l.y && l.y.some(v => v !== null));
      /* i: a run's colour stays */
  if (!lines.length) return null;
  let lo = Infinity, hi = -Infinity;
  for (const l of lines) {
    for (const v of l.y) if (v !== null) { lo = Math.min(lo, drawn(v)); hi = Math.max(hi, drawn(v)); }
    for (const b of l.band || []) if (b) { lo = Math.min(lo, drawn(b[0]));
        hi = Math.max(hi, drawn(b[1])); }
  }
  if (opt.zero) lo = Math.min(lo, 0);
  if (!(hi > lo)) { const p = Math.abs(hi) * .1 || 1; hi += p; lo -= lo >= 0 && lo - p < 0 ? 0 : p;
      }
  const pad = (hi - lo) * .06;
  hi += pad;
  if (lo !== 0) lo -= lo > 0 && lo - pad < 0 ? lo : pad;
  const x0 = AXIS[0], x1 = AXIS[AXIS.length - 1];
  const px = x => L + (x1 > x0 ? (x - x0) / (x1 - x0) : .5) * w,
      py = y => T + h - (drawn(y) - lo) / (hi - lo) * h;
  const say = lines.map(l => `${l.name} from ${num(first(l.y))} to ${num(last(l.y))}`).join(", ");
  const g = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img",
      "aria-label": visible(title + ": " + say) });
  for (const v of ticks(lo, hi, 5)) g.append(svg("path", { d: `M${L} ${py(v)}h${w}`,
      stroke: "var(--line)" }), svg("text", { x: L - 7, y: py(v) + 4, "text-anchor": "end" },
      num(v)));
  for (const v of ticks(x0, x1, 5)) if (Number.isInteger(v)) g.append(svg("text", { x: px(v),
      y: H - 5, "text-anchor": "middle" }, v));
  for (const l of lines) {
    const c = `var(--c${l.i % 6})`, dash = l.i >= 6 ? "6 3" : null, xs = l.x || X;
    const pts = xs.map((x, k) => [x, l.y[k], l.band && l.band[k]]).filter(p => p[1] !== null &&
        p[1] !== undefined);
    const b = pts.filter(p => p[2]);
    if (b.length > 1) g.append(svg("path", { d: "M" + b.map(p => px(p[0]) + " " +
        py(p[2][1])).join("L") + "L" + b.reverse().map(p => px(p[0]) + " " +
        py(p[2][0])).join("L") + "Z", fill: c, "fill-opacity": .14 }));
    g.append(svg("path", { d: "M" + pts.map(p => px(p[0]).toFixed(1) + " " +
        py(p[1]).toFixed(1)).join("L"), fill: "none", stroke: c, "stroke-width": 2,
        "stroke-linejoin": "round", "stroke-linecap": "round", "stroke-dasharray": dash }));
    if (pts.length <= 30) for (const p of pts) g.append(svg("circle", { cx: px(p[0]), cy: py(p[1]),
        r: pts.length < 4 ? 3.4 : 2.3, fill: c }));
  }
  const hair = svg("path", { d: "", stroke: "var(--faint)", "stroke-width": 1 }), now = el("span",
      { class: "now num" });
  g.append(hair);
  hovers.push(k => {
    hair.setAttribute("d", k === null ? "" : `M${px(AXIS[k])} ${T}v${h}`);
    const at = l => l.y[(l.x || X).indexOf(AXIS[k])];
    now.textContent = k === null ? (lines.length === 1 ? num(last(lines[0].y)) : "") :
        `step ${AXIS[k]}` + lines.map(l => "  " + num(at(l))).join(" ·");
  });
  hovers[hovers.length - 1](null);
  const stepAt = e => { const r = g.getBoundingClientRect(); return x0 +
      ((e.clientX - r.left) / r.width * W - L) / w * (x1 - x0); };
  g.addEventListener("pointermove", e => {
    const v = stepAt(e);
    let k = 0;
    AXIS.forEach((x, i) => { if (Math.abs(x - v) < Math.abs(AXIS[k] - v)) k = i; });
    hovers.forEach(f => f(k));
  });
  g.addEventListener("pointerleave", () => hovers.forEach(f => f(null)));
  if (!several) g.addEventListener("click", e => { if (R.groups.length) go("answers",
      { step: Math.round(stepAt(e)) }); });
  const legend = lines.length > 1 || lines[0].note ? lines.map(l => el("span", {}, el("i",
      { style: `border-color:var(--c${l.i % 6})` + (l.i >= 6 ? ";border-top-style:dashed" : "") }),
      visible(l.name) + (l.note ? " – " + l.note : ""))) : "";
  return el("figure", { class: "panel chart" }, el("h3", {}, el("span", { class: "cut1",
      title: visible(title) }, visible(title)), now), g, el("div", { class: "legend" }, legend));
}
function spark(y, color = "var(--c0)") {
  const v = y.map((a, i) => [i, a]).filter(p => p[1] !== null).map(([i, a]) => [i, drawn(a)]),
      n = y.length - 1 || 1;
  const lo = Math.min(...v.map(p => p[1])), hi = Math.max(...v.map(p => p[1]));
  const at = p => (3 + p[0] / n * 114).toFixed(1) + " " + (hi > lo ?
      29 - (p[1] - lo) / (hi - lo) * 24 : 17).toFixed(1);
  const g = svg("svg", { viewBox: "0 0 120 34", preserveAspectRatio: "none",
      "aria-hidden": "true" });
  if (v.length) g.append(svg("path", { d: "M" + v.map(at).join("L") + (v.length === 1 ? "h.1" : ""),
      fill: "none", stroke: color, "stroke-width": 1.8, "vector-effect": "non-scaling-stroke",
      "stroke-linejoin": "round", "stroke-linecap": "round" }));
  return g;
}

/* ------------------------------------------------------------ overview */
function command(label, text) {
  const b = el("button", { onclick: () => {
    const told = ok => { b.textContent = ok ? "copied" : "select it";
        setTimeout(() => { b.textContent = "copy"; }, 1500); };
    navigator.clipboard ? navigator.clipboard.writeText(text).then(() => told(true),
        () => told(false)) : told(false);
  } }, "copy");
  return [el("div", { class: "small dim" }, label), el("div", { class: "cmd" }, el("code", {},
      visible(text)), b)];
}
function repeat() {
  const sft = R.algorithm === "sft" ? " sft" : "", dir = R.dir, from = R.run && R.run.cwd,
      ranks = R.run && R.run.ranks > 1 ? " --ranks " + R.run.ranks : "";
  return command("the same run, bit for bit" + (from ? ", from " + visible(from) : ""),
      `ares-train${sft}${ranks} --config ${quote(dir + "/config.yaml")} trainer.run_dir=${quote(dir + "_again")}`);
}
const talk = () => !R.model_kept ? el("p", { class: "small dim" },
    "The run directory keeps no checkpoint, so there is no model to talk to.") : command("talk to the model",
    `ares-train generate --model ${quote(R.dir)} --prompt "…"`);
function dumbbell(rows) {
  const W = 440, step = rows.length > 5 ? 28 : 36, H = 30 + rows.length * step,
      px = v => 96 + 312 * Math.max(-.1, Math.min(1.1, v));
  const g = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", class: "dumbbell",
      "aria-label": visible("validation accuracy before and after: " +
      rows.map(r => `${r[0]} ${pct(r[1])} to ${pct(r[2])}`).join(", ")) });
  for (const v of [0, .25, .5, .75, 1]) g.append(svg("path", { d: `M${px(v)} 6V${H - 20}`,
      stroke: "var(--line)" }), svg("text", { x: px(v), y: H - 4, "text-anchor": "middle" },
      100 * v + " %"));
  rows.forEach(([name, a, b], i) => {
    const y = 24 + i * step, c = b >= a ? "var(--c0)" : "var(--c1)",
        t = b >= a ? "var(--accent)" : "var(--orange)", short = visible(name).slice(0, 14);
    g.append(svg("text", { x: 86, y: y + 4, "text-anchor": "end", class: i ? "" : "all" }, short,
        svg("title", {}, visible(name))),
      svg("path", { d: `M${px(a)} ${y}L${px(b)} ${y}`, stroke: c, "stroke-width": 5,
          "stroke-linecap": "round", opacity: .35 }),
      svg("circle", { cx: px(a), cy: y, r: 5, fill: "var(--panel)", stroke: c, "stroke-width": 2 }),
          svg("circle", { cx: px(b), cy: y, r: 6.5, fill: c }),
      svg("text", { x: px((a + b) / 2), y: y - 10, "text-anchor": "middle",
          style: `fill:${t};font-weight:650;font-size:12px` },
          (b >= a ? "+" : "−") + (100 * Math.abs(b - a)).toFixed(1)));
  });
  return g;
}
function marked(text,
    other) { /* words that the other text lacks at the same place of the longest common sequence */
  const a = text.split(/(\s+)/), b = other.split(/(\s+)/);
  if (a.length * b.length > 4e5) return [visible(text)];
  const m = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length; i--;) for (let j = b.length; j--;) m[i][j] = a[i] === b[j] ? m[i + 1][j +
      1] + 1 : Math.max(m[i + 1][j], m[i][j + 1]);
  const out = [];
  for (let i = 0, j = 0; i < a.length;) {
    if (j < b.length && a[i] === b[j]) { out.push(visible(a[i])); i++; j++; }
    else if (j < b.length && m[i][j + 1] > m[i + 1][j]) j++;
    else { out.push(a[i].trim() ? el("mark", {}, visible(a[i])) : a[i]); i++; }
  }
  return out;
}
function said(a, other) {
  const right = a[2] !== null && a[2] >= .5, known = a[2] !== null;
  return el("div", { class: "said " + (known ? right ? "yes" : "no" : "") },
    el("div", { class: "small dim" }, known ? el("b", { class: right ? "good" : "bad" },
        right ? "✓ right" : "✕ wrong") : "not judged",
        ` · score ${num(a[1])} · ${few(a[3] ?? 0, "token")}` + (a[4] ? "" : " · cut")),
    el("div", { class: "text", dir: "auto" }, other ? marked(a[0], other[0]) : visible(a[0])));
}
const emphasis = line => line.split(/(\d[\d.,]* %)/).map((t, i) => i % 2 ? el("em", {},
    t) : visible(t));
const byGroup = () => Object.keys(S).map(k => [k,
    k.match(/^val\/[^/]*?=?([^/=]+)\/accuracy$/)]).filter(m => m[1]).map(([k, m]) => [m[1],
    first(S[k]), last(S[k])]).filter(r => r[1] !== null && S["val/accuracy"] &&
    r[1] !== undefined).sort((a, b) => ["easy", "medium", "hard"].indexOf(a[0]) - ["easy", "medium",
    "hard"].indexOf(b[0])).slice(0, 7);
function verdictList(rules) {
  return el("ul", { class: "checks" }, rules.map(r => el("li", {}, el("span",
      { class: "i " + r.level, role: "img", "aria-label": WORD[r.level] }, ICON[r.level]),
    el("div", { title: r.rule ? "rule: " + r.rule : null }, r.metric && S[r.metric] ? el("a",
        { href: "#curves/" + (several ? "run=" + RUNS.indexOf(R) + "&" : "") + "find=" +
        encodeURIComponent(r.metric) }, el("b", {}, visible(r.title))) : el("b", {},
        visible(r.title)), el("small", {}, visible(r.why))),
    S[r.metric] ? spark(S[r.metric],
        `var(--${r.level === "off" ? "faint" : r.level === "good" ? "c0" : r.level})`) :
        el("span"))));
}
function summary(rules) {
  const judged = rules.filter(r => r.level !== "off"), bad = rules.filter(r => r.level === "bad"),
      warn = rules.filter(r => r.level === "warn");
  if (!bad.length && !warn.length) return el("b", { class: "good" },
      judged.length === 1 ? "The one check is well." : judged.length === 2 ? "Both checks are well."
      : `All ${judged.length} checks are well.`);
  const list = x => x.map(r => visible(r.title).replace(/^[A-Z](?=[a-z ])/,
      c => c.toLowerCase())).join(", ");
  return el("b", { class: bad.length ? "bad" : "warn" }, (bad.length ?
      `Something is wrong: ${list(bad)}. ` : "") + (warn.length ?
      `${few(warn.length, "check asks", "checks ask")} for a look: ${list(warn)}.` : ""));
}
const CARDS = [["reward/accuracy", "Accuracy, training", pct], ["critic/score/mean", "Reward", num],
    [ENTROPY, "Entropy, nats", num], ["actor/kl", "KL to reference", num],
  ["response_length/mean", "Length, tokens", num], ["actor/grad_norm", "Gradient norm", num],
      ["timing_s/step", "Seconds a step", num], ["perf/throughput", "Tokens a second", num],
  ["train/loss", "Loss, training", num], ["val/loss", "Loss, validation", num], ["actor/lr",
      "Learning rate", num], ["critic/rewards/mean", "Reward with KL", num]];
function notes(r) {
  const out = r.notes.slice();
  if (r.state === "running") out.unshift(`The run is under way: what had been written when this page was made, step ${r.steps}${r.planned ? " of " + r.planned : ""}.`);
  if (r.state === "died") out.unshift(`The run's process is gone after step ${r.steps}${r.planned ? " of " + r.planned : ""}; the same command goes on.`);
  if (r.thin > 1) out.push(`Curves show every ${r.thin}th of ${r.steps} steps, and the last.`);
  return out.length ? el("p", { class: "note" }, out.map((t, i) => [i ? el("br") : null,
      visible(t)])) : null;
}
function overview() {
  if (several) return together();
  const v = R.val, h1 = el("h1", { class: R.head[0] }, emphasis(R.head[1])),
      two = R.paired && v.steps.length > 1;
  const size = R.prompts && R.algorithm !== "sft" ? ` of ${R.prompts} prompts × ${R.n} answers` :
      "";
  const what = R.algorithm ? (R.algorithm === "sft" ? "Supervised fine-tuning" :
      R.algorithm.toUpperCase()) + (R.model ? " on " + R.model : "") + ": " : "";
  const facts = `${what}${R.steps}${R.planned && R.planned !== R.steps ? " of " + R.planned : ""} ${R.steps === 1 ? "step" : "steps"}${size}, ${R.tokens ? num(R.tokens) + " tokens, " : ""}${clock(R.seconds)}. `;
  const hero = el("div", { class: "hero" }, el("div", {}, h1, el("p", {}, visible(facts),
      summary(R.verdicts))),
    two ? el("div", {}, dumbbell([["all", R.paired.before, R.paired.after], ...byGroup()])) : null);
  const cards = CARDS.filter(c => last(S[c[0]]) !== null).slice(0, 8).map(([k, name, f]) => el("a",
      { class: "panel card", href: "#curves/find=" + encodeURIComponent(k) },
    el("div", { class: "small dim" }, name), el("div", { class: "v num" }, f(last(S[k]))), el("div",
        { class: "was num" }, "from " + f(first(S[k]))), spark(S[k])));
  let example = null;
  const sizeOf = q => q.q.length + q.a[0][0][0].length + q.a[1][0][0].length;
      /* of the shorter ones */
  const lone = v.rows.filter(q => two && q.a[0].length && q.a[1].length);
  const fixed = lone.filter(q => q.a[0][0][2] !== null && q.a[0][0][2] < .5 &&
      q.a[1][0][2] >= .5).sort((a, b) => sizeOf(a) - sizeOf(b));
  const q = fixed[Math.floor(fixed.length / 4)];
  if (q) example = el("section", { class: "panel" }, el("h3", {},
      fixed.length === 1 ? "The question it now gets right" :
      `One of ${fixed.length} questions it now gets right`),
    el("p", { class: "text q" }, visible(q.q), q.truth ? el("span", { class: "dim" },
        "   truth " + visible(q.truth)) : null),
    el("div", { class: "pair" }, el("div", {}, el("div", { class: "small dim" },
        "before, step " + v.steps[0]), said(q.a[0][0])), el("div", {}, el("div",
        { class: "small dim" }, "after, step " + v.steps[1]), said(q.a[1][0], q.a[0][0]))),
    el("p", { class: "small" }, el("a", { href: "#before" }, "all questions, before and after")));
  const changed = R.config.filter(c => c[3]).length;
  const again = el("section", { class: "panel" }, el("h3", {}, "Again, and on"), repeat(), talk(),
      el("p", { class: "small dim" }, el("a", { href: "#config" },
      `${few(changed, "option differs", "options differ")} from ${changed === 1 ? "its default" : "their defaults"}`)));
  return [notes(R), hero, el("section", { class: "panel" }, el("h2", { class: "tight" },
      "Is it healthy?"), verdictList(R.verdicts)), el("div", { class: "grid cards" }, cards),
      el("div", { class: "grid over" }, example, again)];
}

/* ------------------------------------------------------------ overview of several runs */
function pairedWith(a, b) { /* after their last validations, question by question: b less a */
  if (!a.paired || !b.paired || a.val.left_out || b.val.left_out) return null;
  const mean = r => new Map(r.val.rows.map(q => [q.q + "\n" + q.truth,
      q.a[q.a.length - 1].map(x => x[2]).filter(x => x !== null)]).filter(x => x[1].length).map(([k,
      x]) => [k, x.reduce((s, y) => s + y, 0) / x.length]));
  const x = mean(a), y = mean(b),
      d = [...x.keys()].filter(k => y.has(k)).map(k => y.get(k) - x.get(k)), n = d.length;
  if (n < 2) return null;
  const m = d.reduce((s, v) => s + v, 0) / n, sd = Math.sqrt(d.reduce((s, v) => s + (v - m) ** 2,
      0) / (n - 1));
  return { n, mean: m, half: 1.96 * sd / Math.sqrt(n) };
}
function together() {
  const cell = (k, f) => el("td", { class: "n" }, f(last(S[k])));
  const body = RUNS.map((r, i) => {
    take(i);
    const count = l => r.verdicts.filter(v => v.level === l).length, p = i ? pairedWith(RUNS[0],
        r) : null;
    const say = r.verdicts.filter(v => v.level === "bad" || v.level === "warn");
    return el("tr", {}, el("td", {}, el("a", { href: `#config/run=${i}` }, el("b", {},
        visible(r.label))), el("div", { class: "small dim" }, r.state,
        r.planned ? ` · ${r.steps} of ${r.planned} steps` : ` · ${r.steps} steps`)),
      el("td", {}, el("div", { class: "headline " + r.head[0] }, emphasis(r.head[1])), el("div",
          { class: "small dim" }, say.map(v => el("div", {}, el("span", { class: v.level,
          "aria-label": WORD[v.level] }, ICON[v.level] + " "), el("b", {}, visible(v.title)),
          ": " + visible(v.why))))),
      el("td", { class: "nowrap" }, ["bad", "warn", "good"].map(l => count(l) ? el("span",
          { class: "chip " + l, "aria-label": `${count(l)} ${WORD[l]}` },
          `${ICON[l]} ${count(l)}`) : null)),
      el("td", { class: "n" }, r.paired ? `${pct(r.paired.before)} → ${pct(r.paired.after)}` : "–",
          p ? el("div", { class: "small dim" },
          `${p.mean < 0 ? "−" : "+"}${(100 * Math.abs(p.mean)).toFixed(1)} ± ${(100 * p.half).toFixed(1)} points`) : null),
      cell("critic/score/mean", num), cell(ENTROPY, num), cell("response_length/mean",
          num), el("td", { class: "n" }, (r.seconds / 60).toFixed(1)));
  });
  take(0);
  const heads = [["run"], ["what it learnt, and what is not well"], ["checks"],
      ["validation accuracy", "n"], ["reward", "n"], ["entropy", "n"], ["length", "n"], ["minutes",
      "n"]];
  const some = [["Accuracy, training", "reward/accuracy"], ["Accuracy, validation", "val/accuracy"],
      ["Reward", "critic/score/mean"], ["Entropy", ENTROPY], ["KL to the reference",
      "actor/kl"], ["Answer length", "response_length/mean"], ["Gradient norm", "actor/grad_norm"],
      ["Loss, training", "train/loss"]];
  const differ = RUNS.some((r, i) => i && pairedWith(RUNS[0], r));
  return [...RUNS.map(r => r.notes.length || r.state === "died" || r.state === "running" ? el("p",
      { class: "note" }, el("b", {}, visible(r.label) + ": "),
      visible(notes(r).textContent)) : null),
    el("div", { class: "hero one" }, el("h1", {}, `${RUNS.length} runs, side by side`)),
    el("section", { class: "panel scroll" }, el("table", { class: "runs" }, el("thead", {}, el("tr", {},
        heads.map(([t, c]) => el("th", { class: c }, t)))), el("tbody", {}, body)),
      differ ? el("p", { class: "small dim" },
          `Below an accuracy: the paired difference to ${visible(RUNS[0].label)} after the last validation, question by question, with its 95 % interval.`) : null),
    el("div", { class: "grid charts space" }, some.map(([t, k]) => chart(t,
        VARIANTS.map(v => course(v, k)))).filter(Boolean))];
}

/* ------------------------------------------------------------ curves */
const LEVELS_OF = "{easy,medium,hard}";
const CHARTS = [
  ["What it learns", [["Accuracy", [["reward/accuracy", "training"], ["val/accuracy",
      "validation"]]], ["Reward", [["critic/score/mean", "mean", "10–90 % of answers"]]],
    ["Validation accuracy by group", "val/*=*/accuracy"], ["Training accuracy by difficulty",
        `reward/${LEVELS_OF}/accuracy`], ["Accuracy by source", "rollout/source/*/accuracy"],
    ["Accuracy by source ", "source/*/accuracy"], ["Groups that a filter dropped",
        "rollout/dynamic_filter/*"], ["Pairs of VAPOR", [["vapor/pref_accuracy", "chosen likelier"],
        ["vapor/pref_success_rate", "prompts with a pair"]]], ["Margin of VAPOR's pairs, nats",
        [["vapor/pref_margin", "chosen less rejected"]]], ["Answers with VAPOR's span",
        [["vapor/extract_success_rate", "share"]]], ["Success by environment", "env/*/success"],
        ["Success in validation", "val-env/*/success"], ["Loss of supervised training",
        [["train/loss", "training"], ["val/loss", "validation"]]]]],
  ["What it says", [["Answer length", [["response_length/mean", "mean", "10–90 % of answers"]]],
      ["Cut answers", [["response_length/clip_ratio", "share"]]], ["Distinct answers in a group",
      [["report/distinct_answers_frac", "share"]]],
    ["Length by difficulty", `response_length/${LEVELS_OF}/mean`], ["Turns by environment",
        "env/*/num_turns"], ["Failed judgements", "reward/failed/*"], ["Answers without a result",
        [["reward/extract_fail_rate", "share"]]]]],
  ["How sure it is", [["Entropy", [[ENTROPY, "all"], ["actor/entropy_correct",
      "right answers"], ["actor/entropy_wrong", "wrong answers"]]],
    ["KL to the reference", [["actor/kl", "all"], ["aepo/kl/easy", "easy"], ["aepo/kl/medium",
        "medium"], ["aepo/kl/hard", "hard"]]], ["HWE tokens an answer",
        `aepo/hwe_num/${LEVELS_OF}`],
    ["Entropy threshold tau", [["aepo/tau", "tau"], ["aepo/tau_batch_median",
        "median of the batch"]]], ["Alpha", `aepo/alpha/${LEVELS_OF}`], ["KL multiplier lambda",
        `aepo/kl_lambda/${LEVELS_OF}`]]],
  ["How it moves", [["Gradient norm", [["actor/grad_norm", "norm"]]], ["KL of a step's update",
      [["actor/ppo_kl_k3", "k3"]]], ["Clipped tokens", [["actor/pg_clipfrac_higher", "above"],
      ["actor/pg_clipfrac_lower", "below"]]],
    ["VAPOR's ratio of an answer", [["vapor/hybrid_ratio_max", "largest"],
        ["vapor/hybrid_ratio_mean", "mean"]]], ["Answers beyond VAPOR's clip",
        [["vapor/clip_frac_high", "above"], ["vapor/clip_frac_low", "below"]]],
    ["Importance ratio", [["actor/ratio_max", "largest"], ["actor/ratio_mean", "mean"],
        ["actor/ratio_min", "least"]]], ["Loss", [["actor/pg_loss", "policy"], ["actor/final_loss",
        "with KL"]]], ["Learning rate", [["actor/lr", "rate"]]],
    ["Groups whose answers differ", [["rollout/mixed_groups_frac", "share"]]],
    ["Tokens with a gradient", [["update/active_frac", "share"]]], ["Groups",
        [["filter/generated_groups", "drawn"], ["filter/kept_groups", "kept"]]], ["Critic",
        [["critic/vf_loss", "loss of values"], ["critic/vf_explained_var", "explained"]]]]],
  ["What it costs", [["Seconds a step", [["timing_s/step", "all"], ["timing_s/gen", "rollout"],
      ["timing_s/update_actor", "update"]]], ["Tokens a second", [["perf/throughput", "tokens"]]],
      ["Memory, GB", [["perf/cpu_memory_used_gb", "in use"], ["perf/max_memory_allocated_gb",
      "device"]]]]]];
function spread(p) { /* the metrics that are there, by pattern */
  const rx = new RegExp("^" + p.replace(/[.]/g, "\\.").replace(/\*/g,
      "(.+)").replace(/\{([^}]*)\}/g, (_, o) => "(" + o.split(",").join("|") + ")") + "$");
  const order = ["easy", "medium", "hard"];
  if (p.includes(LEVELS_OF)) return order.map(l => [p.replace(LEVELS_OF, l), l]); /* a colour each */
  return [...new Set(RUNS.flatMap(r => Object.keys(r.series)))].map(k => [k,
      k.match(rx)]).filter(m => m[1]).map(([k, m]) => [k, m[m.length - 1]]).sort((a,
      b) => order.indexOf(a[1]) - order.indexOf(b[1])).slice(0, 12);
}
function curves(q) {
  const body = el("div");
  const find = el("input", { type: "search", placeholder: "find a metric", value: q.find || "",
      "aria-label": "find a metric", oninput: () => draw() });
  const smooth = el("button", { "aria-pressed": "false",
      onclick: () => { smooth.setAttribute("aria-pressed", String(!on())); draw(); } }, "smooth");
  const on = () => smooth.getAttribute("aria-pressed") === "true";
  const soft = y => { let m = null; return on() ? y.map(v => v === null ? null : (m = m === null ?
      v : .8 * m + .2 * v)) : y; };
  const all = (title, k) => chart(title, VARIANTS.map(v => { const c = course(v, k);
      return { ...c, y: soft(c.y) }; }));
  const make = ([title, of]) => {
    const list = typeof of === "string" ? spread(of) : of;
    const one = list.length === 1 && typeof of === "string", head = title.trim() +
        (one ? ": " + list[0][1] : "");
    if (several) return list.map(([k, name]) => all(list.length > 1 ? `${head}, ${name}` :
        head, k));
    return [chart(head, list.map(([k, name, note]) => ({ name, y: soft(S[k] || []),
        band: note ? R.bands[k] : null, note: R.bands[k] && note })),
        { zero: /share|Cut|Clipped/.test(title) })];
  };
  const draw = () => {
    hovers.length = 0;
    body.replaceChildren();
    const w = find.value.trim().toLowerCase(), most = 60;
    if (!w) {
      for (const [name, list] of CHARTS) { const c = list.flatMap(make).filter(Boolean);
          if (c.length) body.append(el("h2", { class: "sec" }, name), el("div",
          { class: "grid charts" }, c)); }
      return;
    }
    const every = [...new Set(RUNS.flatMap(r => Object.keys(r.series)))].filter(k => k !== "step"),
        names = every.filter(k => w.split(/\s+/).every(x => k.toLowerCase().includes(x)));
    body.append(el("p", { class: "dim small" }, `${names.length} of ${every.length} metrics` +
        (names.length > most ? `; the first ${most} are drawn` : "")),
      el("div", { class: "grid charts" }, names.slice(0, most).map(k => several ? all(k,
          k) : chart(k, [{ name: k, y: soft(S[k]), band: R.bands[k],
          note: R.bands[k] && "10–90 % of answers" }])).filter(Boolean)));
  };
  draw();
  return [several ? null : notes(R), el("div", { class: "bar" }, find, smooth, el("span",
      { class: "small dim" }, several ? "point at a step: every chart shows it" :
      "point at a step: every chart shows it; click: its answers")), body];
}

/* ------------------------------------------------------------ answers, token by token */
const unit = x => Math.max(0, Math.min(1, x));
/* scales are fixed, not per answer, so that answers compare */
const BY = {
  none: { name: "plain" },
  entropy: { name: "entropy", key: "entropy", k: "heat", a: x => unit(x / 2.2) ** .6 * .78,
      ends: ["0", "2.2 nats"],
      say: "how open the choice was: entropy over the whole vocabulary; underlined: high-window-entropy (HWE) tokens" },
  window: { name: "window entropy", key: "window", k: "heat", a: x => unit(x) ** .7 * .78,
      ends: ["0", "1 nat"],
      say: "mean entropy of the next tokens; underlined: HWE tokens, whose window reaches tau" },
  surprise: { name: "surprise", key: "logprob", k: "heat", a: x => unit(-x / 4) ** .7 * .78,
      ends: ["p = 1", "p = 0.02"], say: "minus the log-probability of the sampled token" },
  advantage: { name: "advantage", key: "advantage", two: true, a: x => unit(Math.abs(x) / 2.5) * .6,
      ends: ["−2.5", "+2.5"], say: "what the update pushes: blue up, orange down" },
  ratio: { name: "ratio", key: "ratio", two: true, sign: x => Math.log(x),
      a: x => unit(Math.abs(Math.log(x)) / .3) * .75, ends: ["0.74", "1.35"],
      say: "importance ratio new / old; blue: became likelier; dashed: clipped" },
  kl: { name: "KL", key: "kl", k: "kl", a: x => unit(x / .3) ** .6 * .75, ends: ["0", "0.3"],
      say: "KL to the reference at this token, as the loss adds it" },
  weight: { name: "KL weight", key: "weight", two: true, sign: x => x - 1,
      a: x => unit(Math.abs(x - 1)) * .7, ends: ["0", "2"],
      say: "factor on the KL term; orange: let loose, blue: held back; no colour: 1" },
  shared: { name: "shared", key: "shared", k: "plus", a: x => x * .45, ends: ["alone",
      "all answers"], say: "how many of the group's answers have said the same up to here: where it ends, they part" },
  mask: { name: "mask", key: "mask", k: "plus", a: x => x ? .22 : 0, ends: ["not trained",
      "trained"], say: "tokens that the loss counts" },
};
const NO_ENTROPIES = "no entropies in this run's rollouts (with env.token_exact: false texts are encoded anew)";
const WHY_NOT = { entropy: NO_ENTROPIES, window: NO_ENTROPIES,
    surprise: "no log-probabilities in this run's rollouts",
    kl: "no KL at tokens: the run has no reference, or KL acts nowhere",
    weight: "every token has the weight 1 (worker.actor.dynamic_kl_loss)" };
function missing(by) { /* why it cannot be shown; null: it can */
  if (by === "none") return null;
  R.can ??= {};
  if (by in R.can) return R.can[by];
  const vapor = { ratio: "VAPOR has one ratio per answer, not per token: Curves has it",
      kl: "VAPOR keeps no KL of single tokens: Curves has their mean" };
  const part = { entropy: "e", window: "e", surprise: "lp", ratio: "r", kl: "k", weight: "w" }[by];
  const toks = R.groups.flatMap(g => g.answers.map(a => a.tok)).filter(Boolean);
  let why = null;
  if (!toks.length) why = "no tokens in this run's rollouts: set trainer.rollout_log=tokens";
  else if (part && !toks.some(t => t[part])) why = R.algorithm === "vapor" && vapor[by] ?
      vapor[by] : by === "ratio" ? (R.on_policy ?
      "one update a step: every ratio is 1" :
      "no ratios in this run's rollouts: every ratio is 1, or the program was older") : WHY_NOT[by];
  return R.can[by] = why;
}
const accOf = g => { const a = g.answers.filter(x => x.acc !== null);
    return a.length ? a.reduce((s, x) => s + x.acc, 0) / a.length : null; };
const spreadOf = g => Math.max(...g.answers.map(a => a.adv ||
    0)) - Math.min(...g.answers.map(a => a.adv || 0));
function entropyOf(g) {
  let s = 0, n = 0;
  for (const a of g.answers) { const c = columns(a); if (c &&
      c.entropy) for (const x of c.entropy) if (x === x) { s += x; n++; } }
  return n ? s / n : 0;
}
const ORDERS = { "spread of advantage": g => -spreadOf(g), "lowest accuracy": g => accOf(g) ?? 2,
    "longest": g => -Math.max(...g.answers.map(a => a.n || 0)),
    "highest entropy": g => -entropyOf(g), "as drawn": g => g.place };
const state = { step: null, g: 0, by: null, order: "spread of advantage", find: "", on: null };
function share(g) { /* of each token: the share of the other answers that begin with the same tokens up to it */
  const cs = g.answers.map(columns).filter(Boolean);
  for (const c of cs) {
    if (c.shared) continue;
    c.shared = new Float32Array(c.n);
    let others = cs.filter(o => o !== c);
    for (let i = 0; i < c.n && others.length; i++) { others = others.filter(o => i < o.n &&
        o.piece[i] === c.piece[i]); c.shared[i] = others.length / (cs.length - 1); }
  }
}
function inLines(t) { /* nodes of a text: newlines are shown and kept */
  const out = [];
  for (const part of t.split(/(\n)/)) if (part === "\n") out.push(el("span", { class: "nl",
      "aria-hidden": "true" }, "↵"), "\n"); else if (part) out.push(visible(part));
  return out.length ? out : ["·"];
}
const PART = 256; /* tokens */
let printed = () => {}; /* makes all of a view that is about to be printed */
addEventListener("beforeprint", () => printed());
const LEVELS = 24; /* of colour: a class each, which is far cheaper than a style a token */
{
  let rules = "";
  for (const k of ["heat", "plus", "minus", "kl"]) for (let i = 1; i <= LEVELS;
      i++) rules += `.${k}${i}{background:rgba(var(--${k}),${(i / LEVELS * .8).toFixed(3)})}`;
  document.head.append(el("style", {}, rules));
}
const kindOf = (b, x) => b.two ? ((b.sign ? b.sign(x) : x) >= 0 ? "plus" : "minus") : b.k;
function paint(c, by, from, to) { /* the tokens from..to, which have spans */
  const b = BY[by], col = b.key && c[b.key], hwe = c.hwe && (by === "entropy" || by === "window" ||
      by === "weight"), clip = c.clip && by === "ratio";
  for (let i = from; i < to; i++) {
    const s = c.spans[i];
    let name = c.base[i];
    if (col) { const x = col[i], at = Math.round(b.a(x) / .8 * LEVELS * (c.mask[i] ||
        by === "mask" ? 1 : .4)); if (at > 0) name += " " + kindOf(b, x) + at; }
    if (hwe && c.hwe[i]) name += " hwe";
    if (clip && c.clip[i]) name += " clip";
    if (!c.mask[i]) name += " off";
    if (s.className !== name) s.className = name;
  }
}
function strip(canvas, c,
    by) { /* the whole answer in one line: the largest value of what falls into a pixel */
  const b = BY[by], col = b.key && c[b.key], W = canvas.width = Math.min(c.n, 1200),
      H = canvas.height = 16, x = canvas.getContext("2d"),
      css = getComputedStyle(document.documentElement), ink = {};
  x.clearRect(0, 0, W, H);
  if (!col) return;
  for (const k of ["heat", "plus", "minus", "kl", "mark"]) ink[k] = css.getPropertyValue("--" + k);
  for (let p = 0; p < W; p++) {
    const from = Math.floor(p * c.n / W), to = Math.max(Math.floor((p + 1) * c.n / W), from + 1);
    let best = 0, at = -1;
    for (let i = from; i < to; i++) { const a = b.a(col[i]); if (a > best) { best = a; at = i; } }
    if (at < 0) continue;
    x.fillStyle = `rgba(${ink[kindOf(b, col[at])]},${Math.min(1, best * 1.25)})`;
    x.fillRect(p, 0, 1, H);
    if (c.hwe && c.hwe[at] && (by === "entropy" ||
        by === "window")) { x.fillStyle = ink.mark; x.fillRect(p, 13, 1, 3); }
  }
}
function hits(c, what) { /* tokens that a found text touches */
  const out = new Uint8Array(c.n);
  if (!what) return out;
  const all = c.text.join("").toLowerCase(), ends = [];
  let at = 0;
  for (const t of c.text) ends.push(at += t.length);
  for (let p = all.indexOf(what), i = 0; p >= 0; p = all.indexOf(what,
      p + 1)) { while (i < c.n && ends[i] <= p) i++; for (let k = i;
      k < c.n && (k === i || ends[k - 1] < p + what.length); k++) out[k] = 1; }
  return out;
}
/* the last thing the user says, where the prompt is ChatML */
function ask(g) {
  const m = g.prompt.match(/<\|im_start\|>user\n([\s\S]*?)<\|im_end\|>/g);
  return m ? m[m.length - 1].replace(/^<\|im_start\|>user\n|<\|im_end\|>$/g, "").trim() : g.prompt;
}
function ungrouped() { /* why there are no answers */
  if (R.algorithm === "sft") return "Supervised training samples no answers.";
  if (R.rollout_log === "none") return "This run kept no rollouts: set trainer.rollout_log=tokens for a run that shows its answers.";
  return "There are no rollouts in the run directory (trainer.rollout_log=tokens makes them).";
}
function answers(q) {
  if (!R.groups.length) return [el("p", { class: "note" }, ungrouped())];
  const steps = [...new Set(R.groups.map(g => g.step))].sort((a, b) => a - b);
  if (q.step !== undefined && !Number.isNaN(+q.step)) { const s = +q.step;
      state.step = steps.reduce((a, b) => Math.abs(b - s) < Math.abs(a - s) ? b : a, steps[0]);
      state.g = 0; }
  if (!steps.includes(state.step)) { state.step = steps[steps.length - 1]; state.g = 0; }
  if (q.group !== undefined) state.g = Math.max(0, Math.floor(+q.group) || 0);
  if (q.by && BY[q.by]) state.by = q.by;
  if (!state.by || missing(state.by)) state.by = missing("entropy") ? "none" : "entropy";
  const side = el("aside", { class: "panel side", "aria-label": "steps and groups" }),
      view = el("div"), inspect = el("div", { class: "inspect", role: "status",
      "aria-live": "polite" });
  let boxes = [], seg = null, scales = null;
  const seen = new IntersectionObserver(all => { for (const e of all) if (e.isIntersecting)
      build(e.target.tokens); }, { rootMargin: "300px", scrollMargin: "300px" });
  printed = () => { for (const b of boxes) b.c.parts.forEach(build); };
  const contains = g => !state.find || [g.prompt,
      ...g.answers.map(textOf)].some(t => t.toLowerCase().includes(state.find));
  const list = () => R.groups.filter(g => g.step === state.step &&
      contains(g)).map(g => [ORDERS[state.order](g), g.place, g]).sort((a,
      b) => a[0] - b[0] || a[1] - b[1]).map(x => x[2]);
  function map() {
    const all = [...new Set(R.map.map(m => m[0]))], of = new Map(all.map(s => [s, []]));
    for (const m of R.map) of.get(m[0]).push(m);
    const most = Math.max(...[...of.values()].map(m => m.length)), cw = Math.min(30,
        272 / all.length), ch = Math.max(1, Math.min(11, 130 / most)), W = 272, H = most * ch + 16;
    const g = svg("svg", { viewBox: `0 0 ${W} ${H}`, class: "map", role: "img",
        "aria-label": `every group of ${all.length} steps; orange: answers wrong, blue: right, pale: not in this file` });
    const gap = cw > 5 ? 1.5 : 0;
    all.forEach((s, i) => {
      of.get(s).sort((a, b) => (b[2] ?? -1) - (a[2] ?? -1)).forEach((m, k) => g.append(svg("rect",
          { x: i * cw, y: k * ch, width: cw - gap, height: ch - (ch > 4 ? 1.5 : 0),
          rx: cw > 8 ? 2 : 0, fill: m[2] === null ? "var(--line)" :
          `color-mix(in oklab, var(--c0) ${Math.round(100 * m[2])}%, var(--c1))`,
          opacity: m[3] ? .9 : .35 })));
      if (s === state.step) g.append(svg("rect", { x: i * cw - 1, y: -1, width: Math.max(2,
          cw + .5), height: most * ch + 1, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5,
          rx: 3 }));
      if (cw > 14 || i % Math.ceil(20 / cw) === 0) g.append(svg("text", { x: i * cw + cw / 2 - 1,
          y: H - 3, "text-anchor": "middle" }, s));
    });
    g.addEventListener("click", e => { const r = g.getBoundingClientRect(),
        s = all[Math.floor((e.clientX - r.left) / r.width * W / cw)];
        if (steps.includes(s)) { state.step = s; state.g = 0; refresh(); } });
    return g;
  }
  const turn = d => { const s = steps[steps.indexOf(state.step) + d];
      if (s !== undefined) { state.step = s; state.g = 0; refresh(); } };
  function sideways() {
    const gs = list(), keep = side.scrollTop;
    side.replaceChildren(el("div", { class: "bar turn" }, el("button", { onclick: () => turn(-1),
        "aria-label": "previous step" }, "‹"), el("b", {}, "Step " + state.step), el("button",
        { onclick: () => turn(1), "aria-label": "next step" }, "›")), map(),
      el("div", { class: "small dim key" }, "each square a group: ", el("i", { class: "sq sq1" }),
          " wrong to ", el("i", { class: "sq sq0" }), " right"),
      el("label", { class: "small dim" }, "order ", el("select",
          { onchange: e => { state.order = e.target.value; state.g = 0; refresh();
          } }, Object.keys(ORDERS).map(o => el("option", { selected: o === state.order }, o)))),
      el("ul", { class: "groups" }, gs.map((g, i) => el("li", {}, el("button",
          { "aria-current": i === state.g ? "true" : null, onclick: () => { state.g = i; refresh();
          } }, el("span", { class: "q" }, visible(ask(g).slice(0, 300))), el("span",
          { class: "dots" }, g.answers.slice(0, 16).map(a => el("i",
          { class: a.acc === null || a.discarded ? "u" : a.acc >= .5 ? "r" : "" })), el("span", {},
          [visible(g.level ?? ""), pct(accOf(g))].filter(Boolean).join(" · "))))))));
    side.scrollTop = keep;
  }
  const KEYS_HERE = [["←→", "tokens"], ["↑↓", "answers"], ["np", "groups"], ["[]", "steps"], ["c",
      "colour"], ["?", "all keys"]];
  function note() {
    const o = state.on, c = o && o.c;
    if (!o) { inspect.replaceChildren(el("span", { class: "small dim" },
        "point at a token, or move with"), ...KEYS_HERE.map(([k, t]) => el("span",
        { class: "small dim" }, [...k].map(x => el("kbd", {}, x)), " " + t))); return; }
    const i = o.i, f = (n, v) => v === undefined || v === null || Number.isNaN(v) ? null : el("div",
        {}, n, el("b", {}, typeof v === "string" ? v : num(v)));
    inspect.replaceChildren(...[f("token " + (i + 1) + " of " + c.n,
        JSON.stringify(visible(c.text[i]))), f("id", c.id && String(c.id[i])), f("probability",
        c.logprob && Math.exp(c.logprob[i])), f("entropy", c.entropy && c.entropy[i]),
        f("window entropy", c.window && c.window[i]), f("HWE", c.hwe && (c.hwe[i] ? "yes" : "no")),
      f("advantage", c.advantage[i]), f("ratio", c.ratio && c.ratio[i] === c.ratio[i] ?
          num(c.ratio[i], 4) + (c.clip && c.clip[i] ? " clipped" : "") : null), f("reference p",
          c.ref && Math.exp(c.ref[i])), f("KL", c.kl && c.kl[i]), f("KL weight",
          c.weight && c.weight[i]), f("value", c.value && c.value[i]), f("trained",
          c.mask[i] ? "yes" : "no")].filter(Boolean));
  }
  function light(b, i) {
    if (state.on) spanAt(state.on.c, state.on.i).classList.remove("on");
    state.on = b ? { box: b.box, c: b.c, i, b } : null;
    if (b) spanAt(b.c, i).classList.add("on");
    note();
  }
  function plainText(a) { /* without columns: what the environment wrote is pale */
    if (!a.spans) return inLines(a.text);
    const points = Array.from(a.text), out = [];
    let at = 0;
    for (const [from, count] of a.spans) {
      if (from > at) out.push(el("span", { class: "tokoff" }, inLines(points.slice(at,
          from).join(""))));
      out.push(el("span", {}, inLines(points.slice(from, from + count).join(""))));
      at = from + count;
    }
    if (at < points.length) out.push(el("span", { class: "tokoff" },
        inLines(points.slice(at).join(""))));
    return out;
  }
  const SPECIAL = /^(<\|.*\|>|<\/?s>|<(eos|pad|bos)>)$/;
  /* An answer's text stands at once, in parts of some hundred tokens; a part's tokens become spans
     when it comes into view or a token of it is in hand, since thousands of spans take a second. */
  function fill(box, c, a) {
    const ends = new Set(a.ends || []);
    c.hit = hits(c, state.find);
    c.base = new Array(c.n); c.spans = new Array(c.n); c.parts = [];
    let at = 0, from = 0, turn = 1;
    for (let i = 0; i < c.n; i++) {
      const t = c.text[i];
      if (a.ends) at += t.length < 2 ? t.length : Array.from(t).length;
      const over = t && ends.delete(at) && i + 1 < c.n;
      if (!over && i + 1 < c.n && i + 1 - from < PART) continue;
      const node = el("span", {}, visible(c.text.slice(from, i + 1).join("").replace(/\n/g, "↵\n")));
      c.parts.push(node.tokens = { c, node, from, to: i + 1, built: false });
      seen.observe(node);
      box.append(node);
      if (over) box.append(el("span", { class: "turnline", "data-turn": "turn " + ++turn }));
      from = i + 1;
    }
    if (c.parts.length) build(c.parts[0]);
  }
  function build(part) { /* a span for each of its tokens */
    const { c, node, from, to } = part, f = document.createDocumentFragment();
    if (part.built) return;
    part.built = true;
    seen.unobserve(node);
    for (let i = from; i < to; i++) {
      const t = c.text[i], s = document.createElement("span");
      if (t.includes("\n") || !t) s.append(...inLines(t)); else s.textContent = visible(t);
      c.base[i] = "tok" + (t[0] === "<" && SPECIAL.test(t) ? " sp" : "") + (c.hit[i] ? " hit" : "");
      s.place = i;
      c.spans[i] = s;
      f.append(s);
    }
    paint(c, state.by, from, to);
    node.replaceChildren(f);
  }
  function spanAt(c, i) { build(c.parts.find(p => i < p.to)); return c.spans[i]; }
  function card(a, k) {
    const c = columns(a), right = a.acc !== null && a.acc >= .5, known = a.acc !== null,
        n = few(a.n ?? 0, "token");
    const box = el("div", { class: "toks", dir: "auto", tabindex: "0", role: "group",
        "aria-label": `answer ${k + 1}: ${known ? right ? "right" : "wrong" : "not judged"}, score ${num(a.score)}, ${n}` });
    const chip = (text, kind) => el("span", { class: "chip num" + (kind ? " " + kind : "") }, text);
    const top = el("header", {}, el("b", { class: right ? "good" : "bad" },
        known ? right ? "✓" : "✕" : ""), a.turn !== undefined && a.turn !== null ?
        chip(`sample ${a.sample + 1}, turn ${a.turn + 1}`) : null, chip("score " + num(a.score)),
        chip("adv " + (a.adv > 0 ? "+" : "") + num(a.adv), a.adv ? a.adv > 0 ? "up" : "down" : ""),
        chip(n),
      a.finished ? null : chip("cut", "warn"), a.discarded ? chip("discarded", "bad") : null,
          a.failed ? chip("not judged", "bad") : null,
      Object.entries(a.rewards || {}).map(([name, x]) => chip(visible(name) + " " + num(x))));
    const at = el("article", { class: "panel ans " + (known ? right ? "right" : "wrong" : "") +
        (a.finished ? "" : " cut") }, top);
    if (!c) { box.append(...plainText(a)); at.append(box); return at; }
    fill(box, c, a);
    const cv = el("canvas", { class: "strip", "aria-hidden": "true" }), b = { box, c, cv };
    if (c.n) boxes.push(b);
    if (c.n > 100) {
      at.append(cv);
      cv.addEventListener("click", e => { const r = cv.getBoundingClientRect(),
          i = Math.min(c.n - 1, Math.floor((e.clientX - r.left) / r.width * c.n)); light(b, i);
          box.scrollTop = spanAt(c, i).offsetTop - box.offsetTop - 80; });
    }
    const find = e => e.target.closest?.(".tok")?.place ?? -1;
    box.addEventListener("pointermove", e => { const i = find(e);
        if (i >= 0 && !(state.on && state.on.box === box && state.on.i === i)) light(b, i); });
    box.addEventListener("click", e => { const i = find(e); if (i >= 0) light(b, i); });
    at.append(box);
    return at;
  }
  const scaleOf = b => !b.key ? null : el("span", { class: "scale" }, b.ends[0], el("i",
      { style: `background:linear-gradient(90deg,${b.two ? "rgba(var(--minus),.75),transparent,rgba(var(--plus),.75)" : `transparent,rgba(var(--${b.k}),.78)`})` }), b.ends[1], el("span", {}, " " + b.say));
  function show() {
    const gs = list(), g = gs[state.g] || gs[state.g = 0];
    boxes = [];
    state.on = null;
    seen.disconnect();
    const find = el("input", { type: "search", class: "narrow",
        placeholder: "find text in this step", "aria-label": "find text in this step",
        value: state.find, onchange: e => { state.find = e.target.value.trim().toLowerCase();
        state.g = 0; refresh(); } });
    seg = el("div", { class: "seg", role: "group", "aria-label": "colour tokens by" },
        Object.keys(BY).map(k => { const m = missing(k); return el("button", { "data-by": k,
        disabled: !!m, title: m, onclick: () => { state.by = k; colour(); } }, BY[k].name); }));
    scales = el("div", { class: "scales" });
    const tools = el("div", { class: "bar" }, seg, find);
    if (!g) { view.replaceChildren(tools, el("p", { class: "dim" },
        "no answer of this step has " + JSON.stringify(visible(state.find)))); return; }
    share(g);
    const about = [g.truth !== undefined ? "truth " + visible(g.truth) : "", visible(g.level ?? ""),
        pct(accOf(g)) + " right", g.row >= 0 ? "row " + g.row : "",
        visible(String(g.source || "").split("/").pop())].filter(Boolean).join("  ·  ");
    view.replaceChildren(tools, scales,
      el("div", { class: "panel ask" }, el("div", { class: "text", dir: "auto" }, visible(ask(g))),
          el("div", { class: "small dim" }, about), el("details", {}, el("summary", {},
          "the prompt as the model reads it"), el("pre", {}, visible(g.prompt)))),
      el("div", { class: "cols",
          style: `--col:${Math.max(...g.answers.map(a => a.n || 0)) > 400 ? 460 : 320}px` },
          g.answers.map(card)), inspect);
    note();
  }
  function colour() { /* what stands there, by state.by */
    const off = Object.keys(BY).filter(missing);
    for (const b of seg.children) b.setAttribute("aria-pressed", String(b.dataset.by === state.by));
    scales.replaceChildren(...[scaleOf(BY[state.by]), off.length ? el("details", {}, el("summary",
        {}, `${few(off.length, "colour")} cannot be shown`), off.map(k => el("div",
        { class: "small dim" }, `${BY[k].name}: ${missing(k)}`))) : null].filter(Boolean));
    for (const b of boxes) for (const p of b.c.parts) if (p.built) paint(b.c, state.by, p.from, p.to);
    for (const b of boxes) if (b.c.n > 100) strip(b.cv, b.c, state.by);
        /* reads styles, so after them */
    if (state.on) spanAt(state.on.c, state.on.i).classList.add("on");
    history.replaceState(null, "",
        `#answers/${several ? `run=${RUNS.indexOf(R)}&` : ""}step=${state.step}&group=${state.g}&by=${state.by}`);
  }
  function refresh() { sideways(); show(); colour(); }
  keys.answers = e => {
    const gs = list(), o = state.on, at = o ? boxes.indexOf(o.b) : -1, k = e.key;
    const put = (b, i) => { if (!b) return; i = Math.max(0, Math.min(b.c.n - 1, i)); light(b, i);
        spanAt(b.c, i).scrollIntoView({ block: "nearest" }); };
    if (k === "ArrowRight" || k === "ArrowLeft") put(o ? o.b : boxes[0],
        o ? o.i + (k === "ArrowRight" ? 1 : -1) : 0);
    else if ((k === "Home" || k === "End") && o) put(o.b, k === "Home" ? 0 : o.c.n - 1);
    else if (k === "ArrowDown" || k === "ArrowUp") { if (!o && k === "ArrowUp") return false;
        put(boxes[Math.max(0, Math.min(boxes.length - 1, at + (k === "ArrowDown" ? 1 : -1)))],
        o ? o.i : 0); }
    else if (k === "n" || k === "p") { state.g = Math.max(0, Math.min(gs.length - 1,
        state.g + (k === "n" ? 1 : -1))); refresh(); }
    else if (k === "[" || k === "]") turn(k === "]" ? 1 : -1);
    else if (k === "c") { const ok = Object.keys(BY).filter(b => !missing(b));
        state.by = ok[(ok.indexOf(state.by) + 1) % ok.length]; colour(); }
    else if (k === "Escape" && o) light(null);
    else return false;
    return true;
  };
  refresh();
  const shown = R.groups.length, out = R.groups_all - shown;
  return [notes(R), out ? el("p", { class: "note" },
      `${out} of ${few(R.groups_all, "group")} are left out to keep this file below ${num(D.budget / 1e6)} MB: of each step those of widest advantage are kept, the first and the last step first. The run directory has all; ares-train report --budget-mb makes a larger page.`) : null,
    R.map.length < R.groups_all ? el("p", { class: "note" },
        "The map shows every k-th step of a long run, and every group in this file.") : null,
        el("div", { class: "answers" }, side, view)];
}

/* ------------------------------------------------------------ before and after */
function before() {
  const v = R.val;
  if (!v.rows.length) return [el("p", { class: "note" },
      "The run directory has no validation answers: data.val_files and trainer.val_freq make them.")];
  const two = v.steps.length > 1, mean = (e,
      w) => { const x = e.a[w].map(s => s[2]).filter(s => s !== null);
      return x.length ? x.reduce((s, y) => s + y, 0) / x.length : null; };
  const right = (e, w) => { const m = mean(e, w); return m !== null && m > 0; };
  const kinds = { "got right": e => mean(e, 1) > mean(e, 0), "lost": e => mean(e, 1) < mean(e, 0),
      "right both times": e => mean(e, 0) === mean(e, 1) && right(e, 1),
      "wrong both times": e => mean(e, 0) === mean(e, 1) && !right(e, 1) };
  const body = el("div"), pick = el("div", { class: "flow" });
  let kind = null, n = 40;
  const count = e => { const r = w => e.a[w].filter(x => x[2] !== null && x[2] >= .5).length;
      return e.a[0].length > 1 ? ` · ${r(0)} → ${r(1)} of ${e.a[0].length} right` : ""; };
  const draw = () => {
    const rows = v.rows.filter(e => !kind || kinds[kind](e));
    pick.replaceChildren(...(two ?
        Object.keys(kinds).map(k => { const c = v.rows.filter(kinds[k]).length;
        return el("button", { "aria-pressed": String(kind === k),
        onclick: () => { kind = kind === k ? null : k; n = 40; draw();
        } }, el("b", { class: k === "got right" ? "good" : k === "lost" ? "bad" : "" }, c),
        el("span", { class: "dim small" }, `${k} · ${pct(c / v.rows.length)}`)); }) : []));
    body.replaceChildren(...rows.slice(0, n).map(e => el("div", { class: "qrow" }, el("div", {},
        el("div", { class: "text", dir: "auto" }, visible(e.q)), el("div", { class: "small dim" },
        (e.truth ? "truth " + visible(e.truth) : "") + (two ? count(e) : ""))),
        e.a[0][0] ? said(e.a[0][0]) : el("div"), two && e.a[1][0] ? said(e.a[1][0],
        e.a[0][0]) : el("div"))),
      rows.length > n ? el("button", { class: "more", onclick: () => { n += 100; draw();
          } }, `${rows.length - n} more`) : "");
  };
  draw();
  const title = two ? `${few(v.n, "validation question")}, before (step ${v.steps[0]}) and after (step ${v.steps[1]})` : `${few(v.n, "validation question")} at step ${v.steps[0]}`;
  return [notes(R), v.left_out ? el("p", { class: "note" },
      `${v.left_out} of ${v.n} questions are left out to keep this file small; those that changed sides are kept first. The run directory has all.`) : null, el("h2", {}, title), pick, body];
}

/* ------------------------------------------------------------ timing */
/* phases that add up to a step; those that lie inside another one (score, shape, observe) are not among them */
const INSIDE = ["gen", "reward", "old", "ref", "values", "adv", "update_critic", "update_actor"];
const PHASE = { gen: "rollout", reward: "reward", old: "old log-probs", ref: "reference log-probs",
    values: "values", adv: "advantages", update_actor: "actor update",
    update_critic: "critic update", other: "rest of the step", save_checkpoint: "checkpoint",
    validation: "validation" };
function timing() {
  const T = X.map((step, i) => {
    const s = k => Math.max(0, Math.min(1e12, (S["timing_s/" + k] || [])[i] || 0)), t = { step };
    for (const k of INSIDE) t[k] = s(k);
    t.other = Math.max(0, s("step") - INSIDE.reduce((a, k) => a + t[k], 0));
    t.save_checkpoint = s("save_checkpoint");
    t.validation = s("validation");
    return t;
  });
  const P = [...INSIDE, "other", "save_checkpoint", "validation"], tot = t => P.reduce((s,
      p) => s + t[p], 0), sum = p => T.reduce((s, t) => s + t[p], 0), all = T.reduce((s,
      t) => s + tot(t), 0);
  if (!all) return [el("p", { class: "note" }, "This run has logged no times.")];
  const shown = P.filter(p => sum(p) > all * 5e-4), most = Math.max(...T.map(tot), 1e-9),
      bw = Math.max(2, Math.min(60, 900 / T.length)), W = 60 + bw * T.length + 10;
  const color = p => `var(--c${Math.max(0, shown.indexOf(p)) % 6})`,
      dim = p => shown.indexOf(p) >= 6 ? .5 : .9;
  const g = svg("svg", { viewBox: `0 0 ${W} 300`, role: "img", class: "wide",
      "aria-label": "seconds of each step by phase: " +
      shown.map(p => `${PHASE[p]} ${pct(sum(p) / all)}`).join(", ") });
  for (const v of ticks(0, most, 5)) { const y = 270 - v / most * 255;
      if (y > 4) g.append(svg("path", { d: `M50 ${y}H${W}`, stroke: "var(--line)" }), svg("text",
      { x: 44, y: y + 4, "text-anchor": "end" }, num(v))); }
  T.forEach((t, i) => {
    let y = 270;
    for (const p of shown) { const h = t[p] / most * 255; if (h <= 0) continue; y -= h;
        g.append(svg("rect", { x: 52 + i * bw, y, width: bw - (bw > 6 ? 3 : 0), height: h,
        fill: color(p), opacity: dim(p) }, svg("title", {},
        `step ${t.step}: ${PHASE[p]} ${num(t[p])} s`))); }
    if (bw > 18 || i % Math.ceil(24 / bw) === 0) g.append(svg("text", { x: 52 + i * bw + bw / 2 - 1,
        y: 286, "text-anchor": "middle" }, t.step));
  });
  /* shares to a tenth that sum to 100.0 %: the largest takes what rounding leaves */
  const order = [...shown].sort((a, b) => sum(b) - sum(a)), total = order.reduce((s,
      p) => s + sum(p), 0), tenths = order.map(p => Math.round(1000 * sum(p) / total));
  tenths[0] += 1000 - tenths.reduce((a, b) => a + b, 0);
  const median = p => { const s = T.map(t => t[p]).filter(Boolean).sort((a, b) => a - b);
      return s[s.length >> 1]; };
  return [notes(R), el("h2", {}, `Where ${clock(R.seconds)} went` + (R.thin > 1 ?
      `, of every ${R.thin}th step` : "")),
    el("div", { class: "panel split" }, g, el("table", {}, el("thead", {}, el("tr", {}, el("th", {},
        "phase"), el("th", { class: "n" }, "seconds"), el("th", { class: "n" }, "share"), el("th",
        { class: "n" }, "a step, median"))),
      el("tbody", {}, order.map((p, i) => el("tr", {}, el("td", {}, el("i", { class: "sq",
          style: `background:${color(p)};opacity:${dim(p)}` }), PHASE[p]), el("td", { class: "n" },
          num(sum(p))), el("td", { class: "n" }, (tenths[i] / 10).toFixed(1) + " %"), el("td",
          { class: "n" }, num(median(p))))),
        el("tr", {}, el("td", {}, el("b", {}, "all")), el("td", { class: "n" }, el("b", {},
            num(total))), el("td", { class: "n" }, "100.0 %"), el("td"))))),
    el("div", { class: "grid charts space" }, [chart("Tokens a second", [{ name: "tokens",
        y: S["perf/throughput"] || [] }], { zero: true }), chart("Memory, GB", [{ name: "in use",
        y: S["perf/cpu_memory_used_gb"] || [] }, { name: "device",
        y: S["perf/max_memory_allocated_gb"] || [] }], { zero: true })].filter(Boolean))];
}

/* ------------------------------------------------------------ configuration */
const shownValue = v => v === null || v === undefined ? "null" : typeof v === "string" ? v :
    JSON.stringify(v);
function between() { /* options that differ between the runs */
  const maps = RUNS.map(r => new Map(r.config.map(c => [c[0], shownValue(c[1])]))),
      names = [...new Set(RUNS.flatMap(r => r.config.map(c => c[0])))];
  const rows = names.filter(k => new Set(maps.map(m => m.get(k))).size > 1);
  return el("section", { class: "panel scroll" }, el("h3", {},
      `${few(rows.length, "option differs", "options differ")} between the runs`), el("table", {},
      el("thead", {}, el("tr", {}, el("th", {}, "option"), RUNS.map(r => el("th", {},
      visible(r.label))))), el("tbody", {}, rows.map(k => el("tr", {}, el("td",
      { class: "mono small" }, visible(k)), maps.map(m => el("td", { class: "mono small" },
      visible(m.get(k) ?? "–"))))))));
}
function config() {
  const body = el("tbody"), on = () => all.getAttribute("aria-pressed") === "true";
  const all = el("button", { "aria-pressed": "false",
      onclick: () => { all.setAttribute("aria-pressed", String(!on())); draw();
      } }, "show defaults too");
  const find = el("input", { type: "search", placeholder: "find an option",
      "aria-label": "find an option", oninput: () => draw() });
  const draw = () => {
    const w = find.value.trim().toLowerCase(), every = on() || w;
    body.replaceChildren(...R.config.filter(c => (c[3] || every) && (!w || (c[0] +
        shownValue(c[1])).toLowerCase().includes(w))).map(([k, v, d, set]) => el("tr",
        { class: set ? "set" : "" }, el("td", { class: "mono small" }, visible(k)), el("td",
        { class: "mono small" }, visible(shownValue(v))), el("td", { class: "mono small dim" },
        set ? visible(shownValue(d)) : ""))));
  };
  draw();
  const facts = R.run ? Object.entries(R.run).filter(([, v]) => v !== null).map(([k, v]) => el("tr",
      {}, el("td", { class: "mono small" }, visible(k)), el("td", { class: "mono small" },
      visible(Array.isArray(v) && k === "command" ? v.map(quote).join(" ") : shownValue(v))))) :
      null;
  return [notes(R), several ? between() : null, el("h2", { class: several ? "sec" : "" },
      "Configuration" + (several ? " of " + visible(R.label) : "")), el("div", { class: "bar" },
      find, all),
    R.config.length ? el("div", { class: "panel scroll" }, el("table", {}, el("thead", {}, el("tr",
        {}, el("th", {}, "option"), el("th", {}, "this run"), el("th", {}, "default"))),
        body)) : el("p", { class: "note" },
        "The run directory has no config.yaml that can be read."),
    el("div", { class: "again" }, repeat(), talk()),
    facts ? [el("h2", { class: "sec" }, "The program, the machine and the times"), el("div",
        { class: "panel scroll" }, el("table", {}, el("tbody", {}, facts)))] : el("p",
        { class: "small dim" },
        "The run has no run.json (an older program wrote it): program, machine and times are not known.")];
}

/* ------------------------------------------------------------ moving about */
const VIEWS = { overview: ["Overview", overview], curves: ["Curves", curves], answers: ["Answers",
    answers], before: ["Before / after", before], timing: ["Timing", timing],
    config: ["Configuration", config] };
const keys = {};
let view = null;
function go(name, q) { location.hash = name + (q ? "/" + Object.entries(q).map(([k,
    v]) => k + "=" + encodeURIComponent(v)).join("&") : ""); }
const chooser = several ? el("select", { "aria-label": "run", onchange: e => go(view,
    { run: e.target.value }) }, RUNS.map((r, i) => el("option", { value: i },
    visible(r.label)))) : null;
function route() {
  const [name, rest] = location.hash.slice(1).split("/"), q = {};
  for (const p of (rest || "").split("&").filter(Boolean)) {
    const i = p.indexOf("=");
    let v = p.slice(i + 1);
    try { v = decodeURIComponent(v); } catch { /* as it stands */ }
    q[p.slice(0, i)] = v;
  }
  view = Object.hasOwn(VIEWS, name) ? name : "overview";
  if (q.run !== undefined && RUNS[+q.run] && RUNS[+q.run] !== R) { take(+q.run); state.step = null;
      state.g = 0; state.by = null; }
  if (chooser) { chooser.value = String(RUNS.indexOf(R)); chooser.hidden = view === "overview" ||
      view === "curves"; }
  hovers.length = 0;
  main.replaceChildren(el("section", { id: "view-" + view, "aria-label": VIEWS[view][0] },
      VIEWS[view][1](q)));
  for (const a of head.querySelectorAll("nav a")) if (a.hash === "#" +
      view) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
  scrollTo(0, 0);
}
const theme = t => { document.documentElement.dataset.theme = t; store.set("theme", t); };
const turnTheme = () => { theme(document.documentElement.dataset.theme === "dark" ? "light" :
    "dark"); route(); };
const KEYS = [["1 – 6", "the views"], ["← →", "token before, after"], ["Home End",
    "first, last token"], ["↑ ↓", "the answer before, after, at the same token"], ["n  p",
    "next, previous group"], ["]  [", "next, previous step"], ["c", "next colour"], ["/", "find"],
    ["t", "light, dark"], ["Esc", "let go"]];
const help = el("dialog", { "aria-label": "keys" }, el("h2", {}, "Keys"), el("table", {},
    el("tbody", {}, KEYS.map(r => el("tr", {}, el("td", {}, el("kbd", {}, r[0])), el("td", {},
    r[1]))))), el("button", { onclick: () => help.close() }, "close"));
const title = several ? `${RUNS.length} runs` : visible(R.label);
document.title = title + " – ares-train report";
head.append(el("div", { class: "row" }, el("b", { class: "cut1", title }, title),
    several ? null : el("span", { class: "chip " + ({ finished: "good", stopped: "warn",
    died: "warn" }[R.state] || "") }, R.state === "died" ? "not finished" : R.state), chooser,
    el("span", { class: "grow" }),
  el("nav", { "aria-label": "views" }, Object.entries(VIEWS).map(([k, v]) => el("a",
      { href: "#" + k }, v[0]))), el("button", { onclick: turnTheme, "aria-label": "light or dark",
      title: "light or dark (t)" }, "◐"), el("button", { onclick: () => help.showModal(),
      "aria-label": "keys", title: "keys (?)" }, "?")));
document.body.append(help);
document.documentElement.dataset.theme = store.get("theme") ||
    (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
addEventListener("hashchange", route);
addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey || help.open) return;
  if (/INPUT|SELECT|TEXTAREA/.test(e.target.tagName)) { if (e.key === "Escape") e.target.blur();
      return; }
  const i = "123456".indexOf(e.key);
  if (e.key.length === 1 && i >= 0) go(Object.keys(VIEWS)[i]);
  else if (e.key === "?") help.showModal();
  else if (e.key === "t") turnTheme();
  else if (e.key === "/") { const f = main.querySelector("input[type=search]"); if (!f) return;
      f.focus(); }
  else if (!(keys[view] && keys[view](e))) return;
  e.preventDefault();
});
route();
document.documentElement.dataset.ready = "1";
})();
