"use strict";
(() => {
const D = JSON.parse(document.getElementById("data").textContent), R = D.run, S = D.series, X = S.step;
const main = document.getElementById("main"), head = document.querySelector("header");
const SVG = "http://www.w3.org/2000/svg";
/* ------------------------------------------------------------ building: text is always a text node, never markup */
function el(tag, props, ...kids) {
  const e = tag.startsWith("svg:") ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const k in props || {}) {
    const v = props[k];
    if (v === null || v === undefined || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...kids.flat().filter(x => x !== null && x !== undefined && x !== false));
  return e;
}
const svg = (tag, props, ...kids) => el("svg:" + tag, props, ...kids);
/* control and direction characters are shown, not obeyed */
const visible = t => String(t).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g,
  c => c < " " ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : "\u27e8U+" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9");
const num = (x, d = 3) => plain(x, d).replace("-", "−"), plain = (x, d) => x === null || x === undefined || Number.isNaN(x) ? "–" : x === 0 ? "0" : Math.abs(x) >= 1e5 || Math.abs(x) < 1e-4 ? x.toExponential(1) : Math.abs(x) >= 1000 ? Math.round(x).toLocaleString("en") : String(+x.toPrecision(d));
const pct = x => x === null || x === undefined ? "–" : (100 * x).toFixed(1) + " %";
const clock = s => s < 90 ? Math.round(s) + " s" : s < 5400 ? Math.floor(s / 60) + " min " + Math.round(s % 60) + " s" : Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
const ICON = { good: "✓", warn: "!", bad: "✕", off: "–" }, WORD = { good: "well", warn: "look", bad: "wrong", off: "not judged" };
const last = a => { for (let i = (a || []).length; i--;) if (a[i] !== null) return a[i]; return null; };
const first = a => (a || []).find(x => x !== null) ?? null;
const store = { get: k => { try { return localStorage.getItem("ares-report-" + k); } catch { return null; } }, set: (k, v) => { try { localStorage.setItem("ares-report-" + k, v); } catch { /* a page from disk may have none */ } } };

/* ------------------------------------------------------------ columns */
const bytes = b64 => Uint8Array.from(atob(b64), c => c.charCodeAt(0));
const ints = (b64, w) => { const b = bytes(b64), n = b.length / w, out = new Int32Array(n); for (let i = 0; i < n; i++) for (let k = w; k--;) out[i] = out[i] * 256 + b[i * w + k]; return out; };
function halfs(b64) {
  const b = bytes(b64), out = new Float32Array(b.length / 2);
  for (let i = 0; i < out.length; i++) {
    const h = b[2 * i] | b[2 * i + 1] << 8, e = h >> 10 & 31, m = h & 1023, s = h & 32768 ? -1 : 1;
    out[i] = e === 0 ? s * m * 2 ** -24 : e === 31 ? (m ? NaN : s * Infinity) : s * (1 + m / 1024) * 2 ** (e - 15);
  }
  return out;
}
const runs = (list, n, set) => { const out = new Float32Array(n); for (const [at, count] of list || []) out.fill(set ? set : 1, at, at + count); return out; };
function weights(list, n) { const out = new Float32Array(n).fill(1); let at = 0; for (const [w, count] of list) { out.fill(w, at, at + count); at += count; } return out; }
function columns(a) { /* an answer's tokens, unpacked when it is first shown */
  if (a.cols || !a.tok) return a.cols || null;
  const t = a.tok, piece = ints(t.p, D.pw), n = piece.length, c = { n, piece };
  if (t.e) {
    c.entropy = halfs(t.e);
    const w = R.window; c.window = new Float32Array(n).fill(NaN);
    for (let i = 0; i < n - w; i++) { let s = 0; for (let k = 1; k <= w; k++) s += c.entropy[i + k]; c.window[i] = s / w; }
  }
  if (t.lp) c.logprob = halfs(t.lp);
  if (t.rp) c.ref = halfs(t.rp);
  if (t.r) c.ratio = halfs(t.r);
  if (t.k) c.kl = halfs(t.k);
  if (t.w) c.weight = weights(t.w, n);
  if (t.h) c.hwe = runs(t.h, n);
  if (t.c) c.clip = runs(t.c, n);
  if (t.i) c.id = ints(t.i, 3);
  c.mask = a.discarded ? new Float32Array(n) : t.m ? runs(t.m, n) : new Float32Array(n).fill(1);
  c.advantage = new Float32Array(n).fill(a.adv || 0);
  c.text = Array.from(piece, p => D.pieces[p]);
  return a.cols = c;
}
const textOf = a => a.text ?? columns(a).text.join("");

/* ------------------------------------------------------------ charts */
function ticks(lo, hi, n) {
  if (!(hi > lo)) { const p = Math.abs(lo) * .1 || 1; lo -= p; hi += p; }
  const raw = (hi - lo) / n, p = 10 ** Math.floor(Math.log10(raw)), l = raw / p, s = p * (l <= 1 ? 1 : l <= 2 ? 2 : l <= 5 ? 5 : 10), out = [];
  for (let v = Math.ceil(lo / s - 1e-9) * s; v <= hi + s * 1e-9; v += s) out.push(Math.abs(v) < s * 1e-9 ? 0 : v);
  return out;
}
const hovers = []; /* every chart follows one pointer: the step */
function chart(title, lines, opt = {}) {
  const W = 400, H = opt.height || 168, L = 46, B = 20, T = 6, w = W - L - 8, h = H - B - T;
  lines = lines.filter(l => l.y && l.y.some(v => v !== null));
  if (!lines.length) return null;
  let lo = Infinity, hi = -Infinity;
  for (const l of lines) { for (const v of l.y) if (v !== null && Number.isFinite(v)) { lo = Math.min(lo, v); hi = Math.max(hi, v); } for (const b of l.band || []) if (b) { lo = Math.min(lo, b[0]); hi = Math.max(hi, b[1]); } }
  if (opt.zero) lo = Math.min(lo, 0);
  if (!(hi > lo)) { const p = Math.abs(hi) * .1 || 1; hi += p; lo -= lo >= 0 && lo - p < 0 ? 0 : p; }
  const pad = (hi - lo) * .06; hi += pad; if (lo !== 0) lo -= lo > 0 && lo - pad < 0 ? lo : pad;
  const x0 = X[0], x1 = X[X.length - 1] || 1, px = x => L + (x1 > x0 ? (x - x0) / (x1 - x0) : .5) * w, py = y => T + h - (y - lo) / (hi - lo) * h;
  const g = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title + ": " + lines.map(l => `${l.name} from ${num(first(l.y))} to ${num(last(l.y))}`).join(", ") });
  for (const v of ticks(lo, hi, 5)) g.append(svg("path", { d: `M${L} ${py(v)}h${w}`, stroke: "var(--line)" }), svg("text", { x: L - 7, y: py(v) + 4, "text-anchor": "end" }, num(v)));
  for (const v of ticks(x0, x1, 5)) if (Number.isInteger(v)) g.append(svg("text", { x: px(v), y: H - 5, "text-anchor": "middle" }, v));
  for (const r of opt.rules || []) if (r.at > lo && r.at < hi) g.append(svg("path", { d: `M${L} ${py(r.at)}h${w}`, stroke: `var(--${r.level})`, "stroke-dasharray": "3 4" }));
  lines.forEach((l, i) => {
    const c = l.color || `var(--c${i % 6})`, pts = X.map((x, k) => [x, l.y[k], l.band && l.band[k]]).filter(p => p[1] !== null && Number.isFinite(p[1]));
    if (l.band) { const b = pts.filter(p => p[2]); if (b.length > 1) g.append(svg("path", { d: "M" + b.map(p => px(p[0]) + " " + py(p[2][1])).join("L") + "L" + b.reverse().map(p => px(p[0]) + " " + py(p[2][0])).join("L") + "Z", fill: c, "fill-opacity": .13 })); }
    g.append(svg("path", { d: "M" + pts.map(p => px(p[0]).toFixed(1) + " " + py(p[1]).toFixed(1)).join("L"), fill: "none", stroke: c, "stroke-width": 2, "stroke-linejoin": "round", "stroke-linecap": "round", "stroke-dasharray": l.dash || null }));
    if (pts.length <= 30) for (const p of pts) g.append(svg("circle", { cx: px(p[0]), cy: py(p[1]), r: pts.length < 4 ? 3.4 : 2.3, fill: c }));
  });
  const hair = svg("path", { d: "", stroke: "var(--faint)", "stroke-width": 1 }), now = el("span", { class: "now num" });
  g.append(hair);
  const show = k => {
    hair.setAttribute("d", k === null ? "" : `M${px(X[k])} ${T}v${h}`);
    now.textContent = k === null ? (lines.length === 1 ? num(last(lines[0].y)) : "") : `step ${X[k]}` + lines.map(l => "  " + num(l.y[k])).join(" ·");
  };
  hovers.push(show); show(null);
  g.addEventListener("pointermove", e => { const r = g.getBoundingClientRect(), v = x0 + ((e.clientX - r.left) / r.width * W - L) / w * (x1 - x0); let k = 0; X.forEach((x, i) => { if (Math.abs(x - v) < Math.abs(X[k] - v)) k = i; }); hovers.forEach(f => f(k)); });
  g.addEventListener("pointerleave", () => hovers.forEach(f => f(null)));
  g.addEventListener("click", e => { const t = hair.getAttribute("d"); if (t && D.groups.length) { const r = g.getBoundingClientRect(), v = x0 + ((e.clientX - r.left) / r.width * W - L) / w * (x1 - x0); go("answers", { step: Math.round(v) }); } });
  return el("figure", { class: "panel chart", style: "margin:0", "data-name": opt.metrics || title }, el("h3", {}, title, now), g,
    el("div", { class: "legend" }, lines.length > 1 || lines[0].note ? lines.map((l, i) => el("span", {}, el("i", { style: `border-color:${l.color || `var(--c${i % 6})`}` + (l.dash ? ";border-top-style:dashed" : "") }), l.name + (l.note ? " – " + l.note : ""))) : ""));
}
function spark(y, color = "var(--c0)") {
  const v = y.map((a, i) => [i, a]).filter(p => p[1] !== null), lo = Math.min(...v.map(p => p[1])), hi = Math.max(...v.map(p => p[1])), n = y.length - 1 || 1;
  const at = p => (3 + p[0] / n * 114).toFixed(1) + " " + (hi > lo ? 29 - (p[1] - lo) / (hi - lo) * 24 : 17).toFixed(1), g = svg("svg", { viewBox: "0 0 120 34", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (v.length) g.append(svg("path", { d: "M" + v.map(at).join("L"), fill: "none", stroke: color, "stroke-width": 1.8, "vector-effect": "non-scaling-stroke", "stroke-linejoin": "round" }));
  return g;
}

/* ------------------------------------------------------------ overview */
function command(label, text) { const b = el("button", { onclick: () => { navigator.clipboard?.writeText(text); b.textContent = "copied"; setTimeout(() => { b.textContent = "copy"; }, 1200); } }, "copy"); return [el("div", { class: "small dim" }, label), el("div", { class: "cmd" }, el("code", {}, text), b)]; }
function dumbbell(rows) {
  const W = 440, H = 30 + rows.length * 44, px = v => 78 + v * 330;
  const g = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "validation accuracy before and after: " + rows.map(r => `${r[0]} ${pct(r[1])} to ${pct(r[2])}`).join(", "), style: "width:100%;display:block" });
  for (const v of [0, .25, .5, .75, 1]) g.append(svg("path", { d: `M${px(v)} 6V${H - 20}`, stroke: "var(--line)" }), svg("text", { x: px(v), y: H - 4, "text-anchor": "middle" }, 100 * v + " %"));
  rows.forEach(([name, a, b], i) => {
    const y = 28 + i * 44, c = b >= a ? "var(--c0)" : "var(--c1)";
    g.append(svg("text", { x: 68, y: y + 4, "text-anchor": "end", style: "font-size:13px" + (name === "all" ? ";font-weight:650;fill:var(--ink)" : "") }, visible(name)), svg("path", { d: `M${px(a)} ${y}L${px(b)} ${y}`, stroke: c, "stroke-width": 5, "stroke-linecap": "round", opacity: .35 }), svg("circle", { cx: px(a), cy: y, r: 5, fill: "var(--panel)", stroke: c, "stroke-width": 2 }), svg("circle", { cx: px(b), cy: y, r: 6.5, fill: c }),
      svg("text", { x: px((a + b) / 2), y: y - 11, "text-anchor": "middle", style: `fill:${c};font-weight:650;font-size:12px` }, (b >= a ? "+" : "−") + (100 * Math.abs(b - a)).toFixed(1)));
  });
  return g;
}
const marked = (text, other) => { /* words that the other text has not at the same place of its longest common sequence */
  const a = text.split(/(\s+)/), b = other.split(/(\s+)/);
  if (a.length * b.length > 4e5) return [visible(text)];
  const m = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length; i--;) for (let j = b.length; j--;) m[i][j] = a[i] === b[j] ? m[i + 1][j + 1] + 1 : Math.max(m[i + 1][j], m[i][j + 1]);
  const out = []; let i = 0, j = 0;
  while (i < a.length) { if (j < b.length && a[i] === b[j]) { out.push(visible(a[i])); i++; j++; } else if (j < b.length && m[i][j + 1] > m[i + 1][j]) j++; else { out.push(a[i].trim() ? el("mark", {}, visible(a[i])) : a[i]); i++; } }
  return out;
};
const said = (a, other) => el("div", { class: "said " + (a[2] ? "yes" : "no") }, el("div", { class: "small dim", style: "margin-bottom:4px" }, el("b", { class: a[2] ? "good" : "bad" }, a[2] ? "✓ right" : "✕ wrong"), ` · score ${num(a[1])} · ${a[3]} tokens` + (a[4] ? "" : " · cut")), el("div", { class: "text", dir: "auto" }, other ? marked(a[0], other[0]) : visible(a[0])));

function overview() {
  const v = D.val, [level, line] = D.head, h1 = el("h1", { class: level });
  line.split(/<em>|<\/em>/).forEach((t, i) => h1.append(i % 2 ? el("em", {}, t) : t)); /* written by the program itself */
  const rules = D.verdicts, judged = rules.filter(r => r.level !== "off"), wrong = rules.filter(r => r.level === "bad" || r.level === "warn");
  const sum = wrong.length ? `${wrong.length} of ${judged.length} checks ask for a look: ${wrong.map(r => r.title.toLowerCase()).join(", ")}.` : `All ${judged.length} checks are well.`;
  const facts = `${R.algorithm?.toUpperCase()} on ${R.model}: ${R.steps}${R.planned && R.planned !== R.steps ? " of " + R.planned : ""} steps of ${R.prompts} prompts × ${R.n} answers, ${num(R.tokens)} tokens, ${clock(R.seconds)}. `;
  const hero = el("div", { class: "hero" }, el("div", {}, h1, el("p", {}, visible(facts), el("b", { class: wrong.some(r => r.level === "bad") ? "bad" : wrong.length ? "warn" : "good" }, sum))),
    v && v.steps.length > 1 ? el("div", {}, dumbbell([["all", v.acc[0], v.acc[1]], ...(v.by || [])])) : null);
  const list = el("ul", { class: "checks" }, rules.map(r => el("li", {}, el("span", { class: "i " + r.level, "aria-label": WORD[r.level] }, ICON[r.level]), el("div", { title: r.rule ? "rule: " + r.rule : null }, el("a", { href: "#curves/find=" + encodeURIComponent(r.metric) }, el("b", {}, r.title)), el("small", {}, visible(r.why))), S[r.metric] ? spark(S[r.metric], `var(--${r.level === "off" ? "faint" : r.level === "good" ? "c0" : r.level})`) : el("span"))));
  const cards = [["reward/accuracy", "Accuracy, training", pct], ["critic/score/mean", "Reward", num], ["rollout/entropy", "Entropy, nats", num], ["actor/kl", "KL to reference", num], ["response_length/mean", "Length, tokens", num], ["actor/grad_norm", "Gradient norm", num], ["timing_s/step", "Seconds a step", num], ["perf/throughput", "Tokens a second", num]]
    .filter(c => last(S[c[0]]) !== null).map(([k, name, f]) => el("a", { class: "panel card", href: "#curves/find=" + encodeURIComponent(k) }, el("div", { class: "small dim" }, name), el("div", { class: "v num" }, f(last(S[k])), el("small", {}, "  from " + f(first(S[k])))), spark(S[k])));
  let example = null;
  if (v && v.steps.length > 1) {
    const fixed = v.rows.filter(q => q.a[0].length && q.a[1].length && !q.a[0][0][2] && q.a[1][0][2]).sort((a, b) => a.q.length - b.q.length), q = fixed[Math.floor(fixed.length / 2)];
    if (q) example = el("section", { class: "panel" }, el("h3", {}, `One of ${fixed.length} questions it now gets right`), el("p", { class: "text", style: "margin:0 0 10px" }, visible(q.q), el("span", { class: "dim" }, "   truth " + visible(q.truth))), el("div", { class: "pair" }, el("div", {}, el("div", { class: "small dim" }, "before, step " + v.steps[0]), said(q.a[0][0])), el("div", {}, el("div", { class: "small dim" }, "after, step " + v.steps[1]), said(q.a[1][0], q.a[0][0]))), el("p", { class: "small", style: "margin:10px 0 0" }, el("a", { href: "#before" }, "all questions, before and after")));
  }
  const changed = D.config.filter(c => c[3]).length;
  return [hero, el("section", { class: "panel" }, el("h2", { style: "margin-bottom:8px" }, "Is it healthy?"), list), el("div", { class: "grid cards", style: "margin:16px 0" }, cards),
    el("div", { class: "grid over" }, example, el("section", { class: "panel" }, el("h2", {}, "Again, and on"), command("the same run, bit for bit", `ares-train --config ${R.dir}/config.yaml trainer.run_dir=${R.dir}_again`), command("talk to the model", `ares-train generate --model ${R.dir} --prompt "…"`), el("p", { class: "small dim", style: "margin:0" }, el("a", { href: "#config" }, `${changed} options differ from their defaults`))))];
}

/* ------------------------------------------------------------ curves */
const CHARTS = [
  ["What it learns", [["Accuracy", [["reward/accuracy", "training"], ["val/accuracy", "validation"]]], ["Reward", [["critic/score/mean", "mean", "10–90 % of answers"]]], ["Validation accuracy by group", "val/*=*/accuracy"], ["Training accuracy by difficulty", "reward/{easy,medium,hard}/accuracy"], ["Accuracy by source", "source/*/accuracy"]]],
  ["What it says", [["Answer length", [["response_length/mean", "mean", "10–90 % of answers"]]], ["Cut answers", [["response_length/clip_ratio", "share"]]], ["Distinct answers in a group", [["report/distinct_answers_frac", "share"]]], ["Length by difficulty", "response_length/{easy,medium,hard}/mean"]]],
  ["How sure it is", [["Entropy", [["rollout/entropy", "all"], ["actor/entropy_correct", "right answers"], ["actor/entropy_wrong", "wrong answers"]]], ["KL to the reference", [["actor/kl", "all"], ["aepo/kl/easy", "easy"], ["aepo/kl/medium", "medium"], ["aepo/kl/hard", "hard"]]], ["HWE tokens an answer", "aepo/hwe_num/{easy,medium,hard}"], ["Entropy threshold tau", [["aepo/tau", "tau"], ["aepo/tau_batch_median", "median of the batch"]]], ["Alpha", "aepo/alpha/{easy,medium,hard}"], ["KL multiplier lambda", "aepo/kl_lambda/{easy,medium,hard}"]]],
  ["How it moves", [["Gradient norm", [["actor/grad_norm", "norm"]]], ["KL of a step's update", [["actor/ppo_kl_k3", "k3"]]], ["Clipped tokens", [["actor/pg_clipfrac_higher", "above"], ["actor/pg_clipfrac_lower", "below"]]], ["Importance ratio", [["actor/ratio_max", "largest"], ["actor/ratio_mean", "mean"], ["actor/ratio_min", "least"]]], ["Loss", [["actor/pg_loss", "policy"], ["actor/final_loss", "with KL"]]], ["Learning rate", [["actor/lr", "rate"]]], ["Groups without signal", [["report/zero_advantage_frac", "share"]]], ["Groups", [["filter/generated_groups", "drawn"], ["filter/kept_groups", "kept"]]]]],
  ["What it costs", [["Seconds a step", [["timing_s/step", "all"], ["timing_s/gen", "rollout"], ["timing_s/update_actor", "update"]]], ["Tokens a second", [["perf/throughput", "tokens"]]], ["Memory, GB", [["perf/cpu_memory_used_gb", "in use"]]]]]];
function spread(p) {
  const rx = new RegExp("^" + p.replace(/[.]/g, "\\.").replace(/\*/g, "(.+)").replace(/\{([^}]*)\}/g, (_, o) => "(" + o.split(",").join("|") + ")") + "$");
  return Object.keys(S).map(k => [k, k.match(rx)]).filter(m => m[1]).map(([k, m]) => [k, m[m.length - 1]]).sort((a, b) => ["easy", "medium", "hard"].indexOf(a[1]) - ["easy", "medium", "hard"].indexOf(b[1]));
}
function curves(q) {
  hovers.length = 0;
  const find = el("input", { type: "search", placeholder: "find a metric", value: q.find || "", "aria-label": "find a metric", oninput: () => draw() }), smooth = el("button", { "aria-pressed": "false", onclick: () => { smooth.setAttribute("aria-pressed", String(smooth.getAttribute("aria-pressed") !== "true")); draw(); } }, "smooth"), body = el("div");
  const soft = y => { if (smooth.getAttribute("aria-pressed") !== "true") return y; let m = null; return y.map(v => v === null ? null : (m = m === null ? v : .8 * m + .2 * v)); };
  const make = ([title, of]) => chart(title, (typeof of === "string" ? spread(of) : of).map(([k, name, note]) => ({ name, y: soft(S[k] || []), band: note ? D.bands[k] : null, note: D.bands[k] && note })), { metrics: typeof of === "string" ? of : of.map(o => o[0]).join(" "), zero: /share|Cut|without/.test(title) });
  const draw = () => {
    hovers.length = 0; body.replaceChildren();
    const w = find.value.trim().toLowerCase();
    if (w) {
      const rx = w.split(/\s+/), names = Object.keys(S).filter(k => k !== "step" && rx.every(x => k.toLowerCase().includes(x)));
      body.append(el("p", { class: "dim small" }, `${names.length} of ${Object.keys(S).length - 1} metrics`), el("div", { class: "grid charts" }, names.slice(0, 60).map(k => chart(k, [{ name: k, y: soft(S[k]), band: D.bands[k], note: D.bands[k] && "10–90 % of answers" }])).filter(Boolean)));
      return;
    }
    for (const [name, list] of CHARTS) { const c = list.map(make).filter(Boolean); if (c.length) body.append(el("h2", { class: "sec" }, name), el("div", { class: "grid charts" }, c)); }
  };
  draw();
  return [el("div", { class: "bar" }, find, smooth, el("span", { class: "small dim" }, "point at a step: every chart shows it; click: its answers")), body];
}

/* ------------------------------------------------------------ answers, token by token */
const soft = x => Math.max(0, Math.min(1, x));
const BY = {
  none: { name: "plain" },
  entropy: { name: "entropy", key: "entropy", k: "--heat", a: x => soft(x / 2.2) ** .6 * .78, ends: ["0", "2.2 nats"], say: "how open the choice was: entropy over the whole vocabulary; underlined: high-window-entropy (HWE) tokens" },
  window: { name: "window entropy", key: "window", k: "--heat", a: x => soft(x / 1) ** .7 * .78, ends: ["0", "1 nat"], say: "mean entropy of the next tokens; underlined: HWE tokens, whose window reaches tau" },
  surprise: { name: "surprise", key: "logprob", k: "--heat", a: x => soft(-x / 4) ** .7 * .78, ends: ["p = 1", "p = 0.02"], say: "minus the log-probability of the sampled token" },
  advantage: { name: "advantage", key: "advantage", two: true, a: x => soft(Math.abs(x) / 2.5) * .6, ends: ["−2.5", "+2.5"], say: "what the update pushes: blue up, orange down" },
  ratio: { name: "ratio", key: "ratio", two: true, sign: x => Math.log(x), a: x => soft(Math.abs(Math.log(x)) / .3) * .75, ends: ["0.74", "1.35"], say: "importance ratio new / old; blue: became likelier; dashed: clipped" },
  kl: { name: "KL", key: "kl", k: "--kl", a: x => soft(x / .3) ** .6 * .75, ends: ["0", "0.3"], say: "KL to the reference at this token (k3)" },
  weight: { name: "KL weight", key: "weight", two: true, sign: x => x - 1, a: x => soft(Math.abs(x - 1)) * .7, ends: ["0", "2"], say: "factor on the KL term; orange: let loose, blue: held back; no colour: 1" },
  shared: { name: "shared", key: "shared", k: "--plus", a: x => x * .45, ends: ["alone", "all answers"], say: "how many of the group's answers have said the same up to here: where it ends, they part" },
  mask: { name: "mask", key: "mask", k: "--plus", a: x => x ? .22 : 0, ends: ["not trained", "trained"], say: "tokens that the loss counts" },
};
function missing(by) { if (by === "none") return null; const g = D.groups.find(g => g.answers.some(a => a.tok)); if (!g) return "this run kept no tokens: trainer.rollout_log: tokens"; const has = D.groups.some(g => g.answers.some(a => { const c = a.tok; return c && { entropy: c.e, window: c.e, surprise: c.lp, advantage: 1, ratio: c.r, kl: c.k, weight: c.w, shared: 1, mask: 1 }[by]; })); return has ? (by === "ratio" && R.on_policy ? "one update a step: every ratio is 1" : null) : "not in this run's rollout log"; }
const ORDERS = { "spread of advantage": g => -spreadOf(g), "lowest accuracy": g => accOf(g) ?? 2, "longest": g => -Math.max(...g.answers.map(a => a.n || 0)), "highest entropy": g => -entOf(g), "as drawn": () => 0 };
const accOf = g => { const a = g.answers.filter(x => x.acc !== null); return a.length ? a.reduce((s, x) => s + x.acc, 0) / a.length : null; };
const spreadOf = g => Math.max(...g.answers.map(a => a.adv || 0)) - Math.min(...g.answers.map(a => a.adv || 0));
const entOf = g => { let s = 0, n = 0; for (const a of g.answers) { const c = columns(a); if (c?.entropy) { s += c.entropy.reduce((x, y) => x + y, 0); n += c.n; } } return n ? s / n : 0; };
const state = { step: null, g: 0, by: null, order: "spread of advantage", find: "", on: null };
function share(g) { /* of each token: the share of the other answers that begin with the same tokens up to it */
  const cs = g.answers.map(columns).filter(Boolean);
  for (const c of cs) {
    if (c.shared) continue;
    c.shared = new Float32Array(c.n);
    for (let i = 0, with_ = cs.filter(o => o !== c); i < c.n && with_.length; i++) { with_ = with_.filter(o => i < o.n && o.piece[i] === c.piece[i]); c.shared[i] = with_.length / (cs.length - 1); }
  }
}
function piece(t) { /* nodes of a token's text */
  const out = []; for (const part of t.split(/(\n)/)) if (part === "\n") out.push(el("span", { class: "nl", "aria-hidden": "true" }, "↵"), "\n"); else if (part) out.push(visible(part));
  return out.length ? out : ["·"];
}
const LEVELS = 24; /* of colour: a class each, which is far cheaper than a style a token */
{ let rules = ""; for (const k of ["heat", "plus", "minus", "kl"]) for (let i = 1; i <= LEVELS; i++) rules += `.${k}${i}{background:rgba(var(--${k}),${(i / LEVELS * .8).toFixed(3)})}`; document.head.append(el("style", {}, rules)); }
function paint(box, c, by) {
  const b = BY[by], col = b.key && c[b.key], k = b.k && b.k.slice(2), hwe = c.hwe && (by === "entropy" || by === "window" || by === "weight"), clip = c.clip && by === "ratio";
  let i = 0;
  for (let s = box.firstChild; s; s = s.nextSibling, i++) {
    let name = c.base[i];
    if (col) { const x = col[i], at = Math.round(b.a(x) / .8 * LEVELS); if (at > 0) name += " " + (b.two ? ((b.sign ? b.sign(x) : x) >= 0 ? "plus" : "minus") : k) + at; }
    if (hwe && c.hwe[i]) name += " hwe";
    if (clip && c.clip[i]) name += " clip";
    if (!c.mask[i]) name += " off";
    if (s.className !== name) s.className = name;
  }
}
function strip(canvas, c, by) { /* the whole answer in one line: the largest value of what falls into a pixel */
  const b = BY[by], col = b.key && c[b.key], W = canvas.width = Math.min(c.n, 1200), H = canvas.height = 16, x = canvas.getContext("2d"), css = getComputedStyle(document.documentElement);
  x.clearRect(0, 0, W, H); if (!col) return;
  for (let p = 0; p < W; p++) {
    let best = 0, at = -1; for (let i = Math.floor(p * c.n / W); i < Math.max(Math.floor((p + 1) * c.n / W), Math.floor(p * c.n / W) + 1); i++) { const a = b.a(col[i]); if (a > best) { best = a; at = i; } }
    if (at < 0) continue;
    x.fillStyle = `rgba(${css.getPropertyValue(b.two ? ((b.sign ? b.sign(col[at]) : col[at]) >= 0 ? "--plus" : "--minus") : b.k)},${Math.min(1, best * 1.25)})`; x.fillRect(p, 0, 1, H);
    if (c.hwe && c.hwe[at] && (by === "entropy" || by === "window")) { x.fillStyle = css.getPropertyValue("--mark"); x.fillRect(p, 13, 1, 3); }
  }
}
function answers(q) {
  if (!D.groups.length) return [el("p", { class: "note" }, "This run wrote no rollouts (trainer.rollout_log: none).")];
  const steps = [...new Set(D.groups.map(g => g.step))];
  if (q.step !== undefined) { const s = +q.step; state.step = steps.reduce((a, b) => Math.abs(b - s) < Math.abs(a - s) ? b : a, steps[0]); state.g = 0; }
  if (state.step === null) state.step = steps[steps.length - 1];
  if (q.group !== undefined) state.g = +q.group;
  if (q.by && BY[q.by]) state.by = q.by;
  if (!state.by || missing(state.by)) state.by = missing("entropy") ? "none" : "entropy";
  const side = el("aside", { class: "panel side", "aria-label": "steps and groups" }), view = el("div"), inspect = el("div", { class: "inspect", role: "status", "aria-live": "polite" });
  let boxes = [];
  const list = () => D.groups.filter(g => g.step === state.step && (!state.find || JSON.stringify([g.prompt, g.answers.map(textOf)]).toLowerCase().includes(state.find))).map((g, i) => [ORDERS[state.order](g), i, g]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(x => x[2]);
  function map() {
    const all = [...new Set(D.map.map(m => m[0]))], most = Math.max(...all.map(s => D.map.filter(m => m[0] === s).length)), cw = Math.max(2, Math.min(30, 272 / all.length)), ch = Math.max(2, Math.min(11, 130 / most)), W = 272, H = most * ch + 16;
    const g = svg("svg", { viewBox: `0 0 ${W} ${H}`, class: "map", role: "img", "aria-label": "every group of every step; orange: answers wrong, blue: right" });
    all.forEach((s, i) => {
      D.map.filter(m => m[0] === s).sort((a, b) => (b[2] ?? -1) - (a[2] ?? -1)).forEach((m, k) => g.append(svg("rect", { x: i * cw, y: k * ch, width: cw - (cw > 5 ? 1.5 : 0), height: ch - (ch > 4 ? 1.5 : 0), rx: cw > 8 ? 2 : 0, fill: m[2] === null ? "var(--line)" : `color-mix(in oklab, var(--c0) ${Math.round(100 * m[2])}%, var(--c1))`, opacity: m[3] ? .9 : .35 })));
      if (s === state.step) g.append(svg("rect", { x: i * cw - 1, y: -1, width: cw + .5, height: most * ch + 1, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5, rx: 3 }));
      if (cw > 14 || i % Math.ceil(14 / cw) === 0) g.append(svg("text", { x: i * cw + cw / 2 - 1, y: H - 3, "text-anchor": "middle" }, s));
    });
    g.addEventListener("click", e => { const r = g.getBoundingClientRect(), s = all[Math.floor((e.clientX - r.left) / r.width * W / cw)]; if (steps.includes(s)) { state.step = s; state.g = 0; refresh(); } });
    return g;
  }
  function sideways() {
    const gs = list(), keep = side.scrollTop;
    side.replaceChildren(el("div", { class: "bar", style: "margin:0 0 10px" }, el("button", { onclick: () => turn(-1), "aria-label": "previous step" }, "‹"), el("b", { style: "flex:1;text-align:center" }, "Step " + state.step), el("button", { onclick: () => turn(1), "aria-label": "next step" }, "›")), map(), el("div", { class: "small dim", style: "margin:4px 0 10px" }, "each square a group: ", el("span", { style: "color:var(--c1)", "aria-hidden": "true" }, "■"), " wrong to ", el("span", { style: "color:var(--c0)", "aria-hidden": "true" }, "■"), " right"),
      el("label", { class: "small dim" }, "order ", el("select", { onchange: e => { state.order = e.target.value; state.g = 0; refresh(); } }, Object.keys(ORDERS).map(o => el("option", { selected: o === state.order }, o)))),
      el("ul", { class: "groups" }, gs.map((g, i) => el("li", {}, el("button", { "aria-current": i === state.g ? "true" : null, onclick: () => { state.g = i; refresh(); } }, el("span", { class: "q" }, visible(ask(g))), el("span", { class: "dots" }, g.answers.map(a => el("i", { class: a.acc === null || a.discarded ? "u" : a.acc >= .5 ? "r" : "" })), el("span", { style: "margin-left:5px" }, [g.level, pct(accOf(g))].filter(Boolean).join(" · "))))))));
    side.scrollTop = keep;
  }
  const ask = g => { const m = g.prompt.match(/<\|im_start\|>user\n([\s\S]*?)<\|im_end\|>/g); return m ? m[m.length - 1].replace(/^<\|im_start\|>user\n|<\|im_end\|>$/g, "") : g.prompt; };
  const turn = d => { const i = steps.indexOf(state.step) + d; if (steps[i] !== undefined) { state.step = steps[i]; state.g = 0; refresh(); } };
  function note() {
    const o = state.on, c = o && o.c;
    if (!o) { inspect.replaceChildren(el("span", { class: "small dim" }, "point at a token, or move with "), el("kbd", {}, "←"), el("kbd", {}, "→"), el("span", { class: "small dim" }, " tokens  "), el("kbd", {}, "↑"), el("kbd", {}, "↓"), el("span", { class: "small dim" }, " answers  "), el("kbd", {}, "n"), el("kbd", {}, "p"), el("span", { class: "small dim" }, " groups  "), el("kbd", {}, "["), el("kbd", {}, "]"), el("span", { class: "small dim" }, " steps  "), el("kbd", {}, "c"), el("span", { class: "small dim" }, " colour  "), el("kbd", {}, "?"), el("span", { class: "small dim" }, " all keys")); return; }
    const i = o.i, f = (n, v) => v === undefined || v === null || Number.isNaN(v) ? null : el("div", {}, n, el("b", {}, typeof v === "string" ? v : num(v)));
    inspect.replaceChildren(...[f("token " + (i + 1) + " of " + c.n, JSON.stringify(visible(c.text[i]))), f("id", c.id && String(c.id[i])), f("probability", c.logprob && num(Math.exp(c.logprob[i]))), f("entropy", c.entropy && c.entropy[i]), f("window entropy", c.window && c.window[i]), f("HWE", c.hwe && (c.hwe[i] ? "yes" : "no")), f("advantage", c.advantage[i]), f("ratio", c.ratio && num(c.ratio[i], 4) + (c.clip && c.clip[i] ? " clipped" : "")), f("reference p", c.ref && num(Math.exp(c.ref[i]))), f("KL", c.kl && c.kl[i]), f("KL weight", c.weight && c.weight[i]), f("trained", c.mask[i] ? "yes" : "no")].filter(Boolean));
  }
  function light(b, i) { if (state.on) state.on.box.children[state.on.i]?.classList.remove("on"); state.on = b ? { box: b.box, c: b.c, i, b } : null; if (b) b.box.children[i].classList.add("on"); note(); }
  function card(a, k) {
    const c = columns(a), right = a.acc !== null && a.acc >= .5, box = el("div", { class: "toks", dir: "auto", tabindex: "0", role: "group", "aria-label": `answer ${k + 1}: ${right ? "right" : "wrong"}, score ${num(a.score)}, ${a.n} tokens` });
    const top = el("header", {}, el("b", { class: right ? "good" : "bad" }, a.acc === null ? "" : right ? "✓" : "✕"), el("span", { class: "chip num" }, "score " + num(a.score)), el("span", { class: "chip num", style: a.adv ? `background:rgba(var(${a.adv >= 0 ? "--plus" : "--minus"}),.15)` : null }, "adv " + (a.adv > 0 ? "+" : "") + num(a.adv)), el("span", { class: "chip num" }, a.n + " tok"), a.finished ? null : el("span", { class: "chip warn" }, "cut"), a.discarded ? el("span", { class: "chip bad" }, "discarded") : null);
    const at = el("article", { class: "panel ans " + (a.acc === null ? "" : right ? "right" : "wrong") + (a.finished ? "" : " cut") }, top);
    if (!c) { box.append(visible(textOf(a))); at.append(box); return at; }
    const sp = /^(<\|.*\|>|<\/?s>|<(eos|pad|bos)>)$/, f = document.createDocumentFragment();
    c.base = new Array(c.n);
    for (let i = 0; i < c.n; i++) { const t = c.text[i], s = document.createElement("span"); if (t.includes("\n") || !t) s.append(...piece(t)); else s.textContent = visible(t); c.base[i] = "tok" + (t[0] === "<" && sp.test(t) ? " sp" : "") + (state.find && t.toLowerCase().includes(state.find) ? " hit" : ""); f.append(s); }
    box.append(f);
    const cv = el("canvas", { class: "strip", "aria-hidden": "true" }), b = { box, c, cv };
    boxes.push(b);
    if (c.n > 100) { at.append(cv); cv.addEventListener("click", e => { const r = cv.getBoundingClientRect(), i = Math.min(c.n - 1, Math.floor((e.clientX - r.left) / r.width * c.n)); light(b, i); box.scrollTop = box.children[i].offsetTop - box.offsetTop - 80; }); }
    const find = e => { const s = e.target.closest?.(".tok"); return s && s.parentNode === box ? Array.prototype.indexOf.call(box.children, s) : -1; };
    box.addEventListener("pointermove", e => { const i = find(e); if (i >= 0 && !(state.on && state.on.box === box && state.on.i === i)) light(b, i); });
    box.addEventListener("click", e => { const i = find(e); if (i >= 0) light(b, i); });
    at.append(box);
    return at;
  }
  function repaint() { /* also names the tokens */ for (const b of boxes) { paint(b.box, b.c, state.by); if (b.c.n > 100) strip(b.cv, b.c, state.by); } }
  function show() {
    const gs = list(), g = gs[state.g] || gs[state.g = 0]; boxes = []; state.on = null;
    if (!g) { view.replaceChildren(el("p", { class: "dim" }, "no answer of this step has " + JSON.stringify(state.find))); return; }
    share(g);
    const b = BY[state.by], scale = b.key ? el("span", { class: "scale" }, b.ends[0], el("i", { style: `background:linear-gradient(90deg,${b.two ? "rgba(var(--minus),.75),transparent,rgba(var(--plus),.75)" : `transparent,rgba(var(${b.k}),.78)`})` }), b.ends[1], el("span", {}, " " + b.say)) : null;
    view.replaceChildren(
      el("div", { class: "bar", style: "margin-bottom:10px" }, el("div", { class: "seg", role: "group", "aria-label": "colour tokens by" }, Object.keys(BY).map(k => { const m = missing(k); return el("button", { "aria-pressed": String(k === state.by), disabled: !!m, title: m, onclick: () => { state.by = k; refresh(); } }, BY[k].name); })), el("input", { type: "search", placeholder: "find text in this step", "aria-label": "find text in this step", value: state.find, style: "width:190px", onchange: e => { state.find = e.target.value.trim().toLowerCase(); state.g = 0; refresh(); } })),
      el("div", { style: "min-height:26px;margin-bottom:10px" }, scale),
      el("div", { class: "panel", style: "margin-bottom:12px;padding:12px 16px" }, el("div", { class: "text", dir: "auto", style: "font-size:14px" }, visible(ask(g))), el("div", { class: "small dim", style: "margin-top:4px" }, [g.truth !== null && g.truth !== undefined ? "truth " + visible(g.truth) : "", g.level, pct(accOf(g)) + " right", "row " + g.row, visible(String(g.source || "").split("/").pop())].filter(Boolean).join("  ·  ")), el("details", {}, el("summary", {}, "the prompt as the model reads it"), el("pre", {}, visible(g.prompt)))),
      el("div", { class: "cols", style: `--col:${Math.max(...g.answers.map(a => a.n || 0)) > 400 ? 460 : 320}px` }, g.answers.map(card)), inspect);
    repaint(); note();
  }
  function refresh() { sideways(); show(); history.replaceState(null, "", `#answers/step=${state.step}&group=${state.g}&by=${state.by}`); }
  keys.answers = e => {
    const gs = list(), o = state.on, at = o ? boxes.indexOf(o.b) : -1, k = e.key;
    const put = (b, i) => { if (!b) return; i = Math.max(0, Math.min(b.c.n - 1, i)); light(b, i); b.box.children[i].scrollIntoView({ block: "nearest" }); };
    if (k === "ArrowRight" || k === "ArrowLeft") put(o ? o.b : boxes[0], o ? o.i + (k === "ArrowRight" ? 1 : -1) : 0);
    else if (k === "ArrowDown" || k === "ArrowUp") { if (!o && k === "ArrowUp") return false; put(boxes[Math.max(0, Math.min(boxes.length - 1, at + (k === "ArrowDown" ? 1 : -1)))], o ? o.i : 0); }
    else if (k === "n" || k === "p") { state.g = Math.max(0, Math.min(gs.length - 1, state.g + (k === "n" ? 1 : -1))); refresh(); }
    else if (k === "[" || k === "]") turn(k === "]" ? 1 : -1);
    else if (k === "c") { const ok = Object.keys(BY).filter(b => !missing(b)); state.by = ok[(ok.indexOf(state.by) + 1) % ok.length]; refresh(); }
    else if (k === "Escape" && o) light(null);
    else return false;
    return true;
  };
  refresh();
  const out = D.left_out ? el("p", { class: "note" }, `${D.left_out} of ${D.map.length} groups are left out to keep this file small: of each step the groups of widest advantage are kept, the first and the last step first. The run directory has all.`) : null;
  return [out, el("div", { class: "answers" }, side, view)];
}

/* ------------------------------------------------------------ before and after */
function before(q) {
  const v = D.val;
  if (!v) return [el("p", { class: "note" }, "This run wrote no validation answers (trainer.val_freq).")];
  const two = v.steps.length > 1, right = (e, w) => e.a[w].length ? e.a[w].reduce((s, x) => s + (x[2] || 0), 0) / e.a[w].length : null;
  const kinds = { "got right": e => right(e, 1) > right(e, 0), "lost": e => right(e, 1) < right(e, 0), "right both times": e => right(e, 0) === right(e, 1) && right(e, 1) > 0, "wrong both times": e => right(e, 0) === 0 && right(e, 1) === 0 };
  const body = el("div"), pick = el("div", { class: "flow" });
  let kind = null, n = 40;
  const draw = () => {
    const rows = v.rows.filter(e => !kind || kinds[kind](e));
    pick.replaceChildren(...(two ? Object.keys(kinds).map(k => { const c = v.rows.filter(kinds[k]).length; return el("button", { "aria-pressed": String(kind === k), onclick: () => { kind = kind === k ? null : k; n = 40; draw(); } }, el("b", { class: k === "got right" ? "good" : k === "lost" ? "bad" : "" }, c), el("span", { class: "dim small" }, `${k} · ${pct(c / v.rows.length)}`)); }) : []));
    body.replaceChildren(...rows.slice(0, n).map(e => el("div", { class: "qrow" }, el("div", {}, el("div", { class: "text", dir: "auto" }, visible(e.q)), el("div", { class: "small dim" }, "truth " + visible(e.truth) + (e.a[0].length > 1 ? ` · ${e.a[0].filter(x => x[2]).length} → ${e.a[1].filter(x => x[2]).length} of ${e.a[0].length} right` : ""))), e.a[0][0] ? said(e.a[0][0]) : el("div"), two && e.a[1][0] ? said(e.a[1][0], e.a[0][0]) : el("div"))), rows.length > n ? el("button", { style: "margin-top:14px", onclick: () => { n += 100; draw(); } }, `${rows.length - n} more`) : "");
  };
  draw();
  return [el("h2", {}, two ? `${v.n} validation questions, before (step ${v.steps[0]}) and after (step ${v.steps[1]})` : `${v.n} validation questions at step ${v.steps[0]}`), pick, body];
}

/* ------------------------------------------------------------ timing */
function timing() {
  const P = D.phases, T = D.timing, name = { gen: "rollout", reward: "reward", old: "old log-probs", ref: "reference log-probs", values: "values", adv: "advantages", update_actor: "actor update", update_critic: "critic update", other: "rest of the step", save_checkpoint: "checkpoint", validation: "validation" };
  const tot = t => P.reduce((s, p) => s + (t[p] || 0), 0), most = Math.max(...T.map(tot), 1e-9), sum = p => T.reduce((s, t) => s + (t[p] || 0), 0), all = T.reduce((s, t) => s + tot(t), 0);
  const shown = P.filter(p => sum(p) > all * 5e-4), color = p => `var(--c${Math.max(0, shown.indexOf(p)) % 6})`, bw = Math.max(2, Math.min(60, 900 / T.length)), W = 60 + bw * T.length + 10, H = 300;
  const g = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "seconds of each step by phase", style: "width:100%;height:auto;max-height:400px" });
  for (const v of ticks(0, most, 5)) { const y = 270 - v / most * 255; g.append(svg("path", { d: `M50 ${y}H${W}`, stroke: "var(--line)" }), svg("text", { x: 44, y: y + 4, "text-anchor": "end" }, num(v))); }
  T.forEach((t, i) => { let y = 270; for (const p of shown) { const h = (t[p] || 0) / most * 255; if (h <= 0) continue; y -= h; g.append(svg("rect", { x: 52 + i * bw, y, width: bw - (bw > 6 ? 3 : 0), height: h, fill: color(p), opacity: .88 }, svg("title", {}, `step ${t.step}: ${name[p] || p} ${num(t[p])} s`))); } if (bw > 14 || i % Math.ceil(14 / bw) === 0) g.append(svg("text", { x: 52 + i * bw + bw / 2 - 1, y: 286, "text-anchor": "middle" }, t.step)); });
  return [el("h2", {}, `Where ${clock(all)} went`), el("div", { class: "panel split" }, g, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "phase"), el("th", { class: "n" }, "seconds"), el("th", { class: "n" }, "share"), el("th", { class: "n" }, "a step, median"))), el("tbody", {}, [...shown].sort((a, b) => sum(b) - sum(a)).map(p => { const s = T.map(t => t[p] || 0).filter(Boolean).sort((a, b) => a - b); return el("tr", {}, el("td", {}, el("span", { style: `color:${color(p)}`, "aria-hidden": "true" }, "■ "), name[p] || p), el("td", { class: "n" }, num(sum(p))), el("td", { class: "n" }, pct(sum(p) / all)), el("td", { class: "n" }, num(s[s.length >> 1])))}), el("tr", {}, el("td", {}, el("b", {}, "all")), el("td", { class: "n" }, el("b", {}, num(all))), el("td", { class: "n" }, "100.0 %"), el("td"))))),
    el("div", { class: "grid charts", style: "margin-top:16px" }, [chart("Tokens a second", [{ name: "tokens", y: S["perf/throughput"] || [] }], { zero: true }), chart("Memory, GB", [{ name: "in use", y: S["perf/cpu_memory_used_gb"] || [] }, { name: "device", y: S["perf/max_memory_allocated_gb"] || [] }], { zero: true })].filter(Boolean))];
}

/* ------------------------------------------------------------ configuration */
function config() {
  const show = v => v === null ? "null" : typeof v === "string" ? v : JSON.stringify(v), body = el("tbody"), all = el("button", { "aria-pressed": "false", onclick: () => { all.setAttribute("aria-pressed", String(all.getAttribute("aria-pressed") !== "true")); draw(); } }, "show defaults too"), find = el("input", { type: "search", placeholder: "find an option", "aria-label": "find an option", oninput: () => draw() });
  const draw = () => { const w = find.value.trim().toLowerCase(), every = all.getAttribute("aria-pressed") === "true" || w; body.replaceChildren(...D.config.filter(c => (c[3] || every) && (!w || (c[0] + show(c[1])).toLowerCase().includes(w))).map(([k, v, d, set]) => el("tr", { class: set ? "set" : "" }, el("td", { class: "mono small" }, k), el("td", { class: "mono small" }, visible(show(v))), el("td", { class: "mono small dim" }, set ? visible(show(d)) : "")))); };
  draw();
  return [el("h2", {}, "Configuration"), el("div", { class: "bar" }, find, all), el("div", { class: "panel", style: "overflow:auto" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "option"), el("th", {}, "this run"), el("th", {}, "default"))), body)), el("div", { style: "margin-top:18px;max-width:900px" }, command("the same run again", `ares-train --config ${R.dir}/config.yaml trainer.run_dir=${R.dir}_again`))];
}

/* ------------------------------------------------------------ moving about */
const VIEWS = { overview: ["Overview", overview], curves: ["Curves", curves], answers: ["Answers", answers], before: ["Before / after", before], timing: ["Timing", timing], config: ["Configuration", config] }, keys = {};
let view = null;
function go(name, q) { location.hash = name + (q ? "/" + Object.entries(q).map(([k, v]) => k + "=" + encodeURIComponent(v)).join("&") : ""); }
function route() {
  const [name, rest] = location.hash.slice(1).split("/"), q = Object.fromEntries((rest || "").split("&").filter(Boolean).map(p => { const i = p.indexOf("="); let v = p.slice(i + 1); try { v = decodeURIComponent(v); } catch { /* as it stands */ } return [p.slice(0, i), v]; }));
  view = VIEWS[name] ? name : "overview"; hovers.length = 0;
  main.replaceChildren(el("section", { id: "view-" + view, "aria-label": VIEWS[view][0] }, VIEWS[view][1](q).filter(Boolean)));
  for (const a of head.querySelectorAll("nav a")) if (a.hash === "#" + view) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
  scrollTo(0, 0);
}
const theme = t => { document.documentElement.dataset.theme = t; store.set("theme", t); };
const help = el("dialog", { "aria-label": "keys" }, el("h2", {}, "Keys"), el("table", {}, [["1 – 6", "the views"], ["← →", "token before, after"], ["↑ ↓", "the answer before, after, at the same token"], ["n  p", "next, previous group"], ["]  [", "next, previous step"], ["c", "next colour"], ["/", "find"], ["t", "light, dark"], ["Esc", "let go"]].map(r => el("tr", {}, el("td", {}, el("kbd", {}, r[0])), el("td", {}, r[1])))), el("button", { onclick: () => help.close(), style: "margin-top:12px" }, "close"));
head.append(el("div", { class: "row" }, el("b", {}, visible(`${R.project}/${R.name}`)), el("span", { class: "chip " + ({ finished: "good", stopped: "warn", open: "warn" }[R.state.word] || "") }, R.state.title.toLowerCase()), el("span", { class: "grow" }), el("nav", { "aria-label": "views" }, Object.entries(VIEWS).map(([k, v]) => el("a", { href: "#" + k }, v[0]))), el("button", { onclick: () => { theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); route(); }, "aria-label": "light or dark", title: "light or dark (t)" }, "◐"), el("button", { onclick: () => help.showModal(), "aria-label": "keys", title: "keys (?)" }, "?")));
document.body.append(help);
theme(store.get("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
addEventListener("hashchange", route);
addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey || help.open) return;
  if (/INPUT|SELECT|TEXTAREA/.test(e.target.tagName)) { if (e.key === "Escape") e.target.blur(); return; }
  const i = "123456".indexOf(e.key);
  if (e.key.length === 1 && i >= 0) go(Object.keys(VIEWS)[i]);
  else if (e.key === "?") help.showModal();
  else if (e.key === "t") head.querySelector("button").click();
  else if (e.key === "/") { const f = main.querySelector("input[type=search]"); if (!f) return; f.focus(); }
  else if (!(keys[view] && keys[view](e))) return;
  e.preventDefault();
});
route();
document.documentElement.dataset.ready = "1";
})();
