#!/usr/bin/env python3
"""Opens reports in headless Chromium, offline, through its debugging pipe, and looks at them.

page.py make DIR            writes run directories: DIR/hostile, whose every text wants to be
                            obeyed, and DIR/long, with answers of 4,096 tokens
page.py check PAGE [...]    `page: N checks` or the faults; exit 1 where there is one, 77 where
                            there is no Chromium. SHOTS=DIR keeps pictures.
"""

import base64
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

HOSTILE = [
    "</script><script>window.obeyed = 1</script>",
    "<img src=x onerror='window.obeyed = 1'>",
    "<!-- <script>",
    "]]>",
    "javascript:window.obeyed=1",
    "\u202eright to left\u202c",
    "\x1b[31mred\x1b[0m",
    "\x00nul \x07bell \x9b1m",
    "zero\u200bwidth\ufeff\u2028line",
    "&lt;b&gt; &amp;",
    "{{7*7}} ${7*7} `x`",
    "'\"><svg onload=window.obeyed=1>",
    "__proto__",
    "<|im_end|>",
    "a\r\nb\tc",
    "\U0001f600 e\u0301 \u4e2d\u6587",
]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) + "\n" for r in rows),
        "utf-8",
    )


def columns(pieces, rnd, **more):
    n = len(pieces)
    some = lambda high: [round(rnd.random() * high, 4) for _ in range(n)]
    return {
        "token_ids": [rnd.randrange(150000) for _ in pieces],
        "pieces": pieces,
        "entropies": some(2.2),
        "hwe": [[1, 2]],
        "kl_weight": [[0.5, n // 2], [1, n - n // 2]],
        "logprobs": [-x for x in some(4)],
        "ref_logprobs": [-x for x in some(4)],
        "kl": some(0.3),
        "ratio": [0.8 + x for x in some(0.4)],
        "clipped": [[0, 1]],
        "trained": [[0, n - 1]],
        **more,
    }


def row(step, draw, sample, text, rnd, **more):
    return {
        "step": step,
        "draw": draw,
        "sample": sample,
        "row": draw,
        "data_source": text,
        "prompt": text,
        "response": text,
        "ground_truth": text,
        "score": sample / 3,
        "rewards": {text: 1.0, "other": 0.5},
        "accuracy": float(sample % 2),
        "advantage": (sample - 1.5) * 1.2,
        "n_tokens": 8,
        "finished": sample != 1,
        "difficulty": text,
        **more,
    }


def make(root):
    rnd = random.Random(7)
    hostile = root / "hostile"
    write(
        hostile / "metrics.jsonl",
        [
            {
                "step": s,
                "reward/accuracy": s / 9,
                "rollout/entropy": 1 / (s + 1),
                "val/accuracy": 0.2 + s / 20,
                "val/" + HOSTILE[1] + "=" + HOSTILE[0] + "/accuracy": s / 10,
                "timing_s/step": 1.5,
                "timing_s/gen": 1e308 if s == 3 else 1.0,
                "actor/grad_norm": 1.5e308 * (-1) ** s,
                "actor/kl": None if s < 6 else -1e308,
                "reward/overall": None,
                **{t: s for t in HOSTILE},
            }
            for s in range(7)
        ],
    )
    for s in range(1, 7):
        rows = []
        for d, text in enumerate(HOSTILE):
            for k in range(4):
                more = columns([text, "", " b\n", text, "<|im_end|>"], rnd) if k < 2 else {}
                rows.append(row(s, d, k, text + str(k), rnd, **more))
        write(hostile / "rollouts" / f"step_{s:06}.jsonl", rows)
    bad = row(6, 99, 0, "unequal", rnd, **columns(["a", "b", "c"], rnd))
    bad["kl"] = [1]
    with open(hostile / "rollouts/step_000006.jsonl", "a", encoding="utf-8") as f:
        f.write(json.dumps(bad, separators=(",", ":")) + "\n" + '{"step":6,"draw":')
    for s in (0, 6):
        write(
            hostile / "validation" / f"step_{s:06}.jsonl",
            [
                {
                    "row": i,
                    "sample": 0,
                    "question": t,
                    "response": t + str(s),
                    "ground_truth": t,
                    "score": 0.5,
                    "accuracy": float((i + s) % 3 > 0),
                    "n_tokens": 5,
                    "finished": True,
                }
                for i, t in enumerate(HOSTILE)
            ],
        )
    (hostile / "config.yaml").write_text(
        "trainer:\n  project_name: "
        + json.dumps(HOSTILE[0])
        + "\n  experiment_name: "
        + json.dumps(HOSTILE[1])
        + "\n  max_steps: 9\ndata:\n  answer_key: "
        + json.dumps(HOSTILE[5])
        + "\nworker:\n  rollout: {n: 4, window_size: 2}\n"
    )
    write(
        hostile / "run.json",
        [
            {
                "version": HOSTILE[0],
                "command": ["ares-train", HOSTILE[0]],
                "cwd": HOSTILE[5],
                "stopped": HOSTILE[1],
                "ranks": 2,
            }
        ],
    )
    long = root / "long"
    write(
        long / "metrics.jsonl",
        [{"step": s, "reward/accuracy": 0.5, "timing_s/step": 2.0} for s in range(1, 3)],
    )
    words = [" the", " sum", " of", "\n", " is", "7", " +", "=", " so", "Then"]
    for s in (1, 2):
        rows = [
            row(
                s,
                d,
                k,
                "what is it?",
                rnd,
                **columns([rnd.choice(words) for _ in range(4096)], rnd),
                n_tokens=4096,
            )
            for d in (1, 2)
            for k in range(4)
        ]
        for r in rows:
            r["n_tokens"] = 4096
        write(long / "rollouts" / f"step_{s:06}.jsonl", rows)
    (long / "DONE").write_text("")


class Browser:
    """Chromium, spoken to in messages of JSON with a NUL after each."""

    def __init__(self, program, home):
        to, mine, theirs, self.fro = *os.pipe(), *os.pipe()[::-1]
        self.to = mine
        out, into = to, theirs

        def ends():
            a, b = os.dup(out), os.dup(into)
            os.dup2(a, 3), os.dup2(b, 4)

        # what looks outside by itself is switched off, and a proxy that is none closes the rest
        self.process = subprocess.Popen(
            [
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-extensions",
                "--proxy-server=127.0.0.1:9",
                f"--user-data-dir={home}",
                "about:blank",
            ],
            preexec_fn=ends,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(out), os.close(into)
        self.buffer, self.n, self.events = b"", 0, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def read(self):
        while b"\0" not in self.buffer:
            more = os.read(self.fro, 1 << 20)
            if not more:
                raise RuntimeError("the browser has closed its pipe")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def tell(self, method, **params):
        """Sends a message, whose answer nobody waits for by itself; returns its number."""
        self.n += 1
        message = {"id": self.n, "method": method, "params": params}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        return self.n

    def ask(self, method, **params):
        n = self.tell(method, **params)
        while True:
            got = self.read()
            if got.get("id") == n:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']['message']}")
                return got["result"]
            if "method" in got:
                self.events.append(got)

    def js(self, text):
        got = self.ask("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError(
                f"{text[:80]}: {got['exceptionDetails'].get('exception', {}).get('description', got['exceptionDetails']['text'])}"
            )
        return got["result"].get("value")

    def open(self, path):
        self.ask("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        for _ in range(600):
            if self.js("document.documentElement?.dataset.ready === '1'"):
                return
            time.sleep(0.05)
        raise RuntimeError(f"{path}: never ready")

    def key(self, key):
        text = {"text": key} if len(key) == 1 else {}
        self.tell("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.tell("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()  # of messages in order the last one's answer says that all are done

    def settle(self):
        self.js("new Promise(r => requestAnimationFrame(() => setTimeout(r)))")

    def view(self, name):
        self.js(f"location.hash = {json.dumps('#' + name)}")
        self.settle()

    def size(self, width, height):
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def shot(self, name):
        if os.environ.get("SHOTS"):
            png = base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])
            pathlib.Path(os.environ["SHOTS"], name + ".png").write_bytes(png)

    def close(self):
        try:
            os.write(self.to, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


# Texts with less contrast than 4.5 to what lies behind them, as [text, ratio].
CONTRAST = r"""(() => {
  const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const known = new Map();
  const rgba = c => { if (!known.has(c)) { probe.clearRect(0, 0, 1, 1); probe.fillStyle = c; probe.fillRect(0, 0, 1, 1); const d = probe.getImageData(0, 0, 1, 1).data; known.set(c, [d[0], d[1], d[2], d[3] / 255]); } return known.get(c); };
  const over = (a, b) => { const t = a[3] + b[3] * (1 - a[3]); return t ? [0, 1, 2].map(i => (a[i] * a[3] + b[i] * b[3] * (1 - a[3])) / t).concat(t) : [0, 0, 0, 0]; };
  const light = c => { const f = c.slice(0, 3).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
  const behind = e => { let c = [0, 0, 0, 0]; for (; e && c[3] < .999; e = e.parentElement) c = over(c, rgba(getComputedStyle(e).backgroundColor)); return over(c, [255, 255, 255, 1]); };
  const low = [], seen = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    const like = /tok/.test(e.className) || e.className === 'nl' ? e.className + ' ' + e.parentElement.className : e; /* thousands are alike */
    if (!walk.currentNode.data.trim() || seen.has(like) || ['script', 'style', 'noscript', 'title'].includes(e.tagName.toLowerCase()) || e.closest('[hidden], dialog:not([open]), .skip, :disabled')) continue;
    seen.add(like);
    const s = getComputedStyle(e);
    if (s.visibility === 'hidden' || s.display === 'none') continue;
    let alpha = 1;
    for (let p = e; p; p = p.parentElement) alpha *= +getComputedStyle(p).opacity;
    const b = behind(e), ink = rgba(e.namespaceURI.endsWith('svg') ? s.fill : s.color), f = over([ink[0], ink[1], ink[2], ink[3] * alpha], b);
    const x = light(f), y = light(b), ratio = (Math.max(x, y) + .05) / (Math.min(x, y) + .05);
    if (ratio < 4.5) low.push([walk.currentNode.data.trim().slice(0, 30) + ' .' + (e.className.baseVal ?? e.className), +ratio.toFixed(2)]);
  }
  return low.slice(0, 5);
})()"""

# Controls without a name, pictures without a label.
NAMELESS = r"""[...document.querySelectorAll('main button, main select, main input, main a, header button, svg[role=img]')]
  .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')?.textContent.trim())).map(e => e.outerHTML.slice(0, 80))"""
HAS_TOKENS = """JSON.parse(document.getElementById('data').textContent)
  .runs.some(r => r.groups.some(g => g.answers.some(a => a.tok)))"""
VIEWS = ["overview", "curves", "answers", "before", "timing", "config"]


class Looker:
    def __init__(self, browser):
        self.b, self.faults, self.n, self.page = browser, [], 0, ""
        self.coloured = False

    def must(self, ok, what):
        self.n += 1
        if not ok:
            self.faults.append(f"{self.page}: {what}")

    def file(self, path):
        raw = path.read_bytes()
        text = raw.decode("utf-8")
        self.must(
            not re.search(
                r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", text
            ),
            "a raw control character is in the file",
        )
        scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, re.S)
        self.must(len(scripts) == 2, f"{len(scripts)} scripts are in the file, not data and script")
        told = re.search(r"script-src 'sha256-([^']*)'", text)[1]
        self.must(
            told == base64.b64encode(hashlib.sha256(scripts[1].encode()).digest()).decode(),
            "the policy has another script's hash",
        )
        markup = re.sub(r"<script.*?</script>", "", text, flags=re.S)
        self.must(
            not re.search(r"\b(?:src|href)=\"(?!#|data:)|https?:|@import|url\(", markup),
            "the page refers to something outside",
        )

    def look(self, path):
        self.page = path.parent.name + "/" + path.name
        self.file(path)
        b = self.b
        b.size(1440, 900)
        began = time.time()
        b.open(path)
        opened = time.time() - began
        data = b.js("JSON.parse(document.getElementById('data').textContent).runs.length")
        long = path.parent.name == "long"  # of 16,384 tokens: for its times alone
        themes = {"long": (), "hostile": ("light",)}.get(path.parent.name, ("light", "dark"))
        for theme in themes:
            if b.js("document.documentElement.dataset.theme") != theme:
                b.key("t")
            self.must(
                b.js("document.documentElement.dataset.theme") == theme,
                f"key t makes no {theme} theme",
            )
            for i, name in enumerate(VIEWS):
                b.key(str(i + 1))
                self.must(
                    b.js("document.querySelector('main > section').id") == "view-" + name,
                    f"key {i + 1} does not lead to {name}",
                )
                self.must(
                    b.js("document.querySelector('main > section').textContent.length") > 30,
                    f"{name} is empty",
                )
                low = b.js(CONTRAST)
                self.must(not low, f"{name}, {theme}: too little contrast: {low}")
                b.shot(f"{self.page.replace('/', '_')}_{name}_{theme}")
                if theme == "light":
                    nameless = b.js(NAMELESS)
                    self.must(not nameless, f"{name}: without a name: {nameless[:3]}")
        for name in () if long else VIEWS:
            if name == VIEWS[0]:
                b.size(900, 900)
            b.view(name)
            wide = b.js("document.documentElement.scrollWidth")
            self.must(wide <= 900, f"{name} is {wide} px wide where there are 900")
            b.shot(f"{self.page.replace('/', '_')}_{name}_narrow")
        b.size(1440, 900)
        if not long and b.js(HAS_TOKENS):
            self.tokens()
        b.key("1")
        self.must(b.js("window.obeyed === undefined"), "a text of the run was run")
        self.must(
            b.js(
                "document.querySelectorAll('img, iframe, object, embed, link[rel=stylesheet], script:not([id]) ~ script').length"
            )
            == 0,
            "there is an element that no script of ours makes",
        )
        print(
            f"page: {self.page}: {path.stat().st_size / 1e6:.2f} MB, {data} run(s), opened in {opened:.2f} s"
        )

    def heard(self):
        """What the page has said on its console, and asked of the network: nothing."""
        b = self.b
        for e in b.events:
            p = e.get("params", {})
            if e["method"] in (
                "Runtime.consoleAPICalled",
                "Runtime.exceptionThrown",
                "Log.entryAdded",
            ):
                self.must(False, f"console: {json.dumps(p)[:300]}")
            if e["method"] == "Network.requestWillBeSent" and not p["request"]["url"].startswith(
                ("file://", "data:")
            ):
                self.must(False, f"request of {p['request']['url']}")
        b.events.clear()

    def tokens(self):
        b = self.b
        if b.js("document.documentElement.dataset.theme") == "dark":
            b.key("t")
        b.js("location.hash = '#overview'")
        b.settle()
        b.key("3")
        for theme in () if self.coloured else ("light", "dark"):  # alike on every page
            for _ in range(10):
                low = b.js(CONTRAST)
                self.must(
                    not low,
                    f"tokens by {b.js('location.hash')}, {theme}: too little contrast: {low}",
                )
                b.key("c")
            b.key("t")
        self.coloured = True
        b.key("ArrowRight")
        b.key("ArrowRight")
        self.must(
            b.js("document.querySelectorAll('.tok.on').length") == 1, "keys alone reach no token"
        )
        said = b.js("document.querySelector('.inspect').textContent")
        # conversations whose answers are rewritten have no entropies
        known = b.js(HAS_TOKENS.replace("a.tok", "a.tok && a.tok.e"))
        for word in ["token 2 of", "id", "probability", "trained"] + ["entropy"] * known:
            self.must(word in said, f"the token in hand does not say its {word}: {said[:120]}")
        b.shot(self.page.replace("/", "_") + "_token")
        b.key("ArrowDown")
        self.must(
            b.js("document.querySelectorAll('.tok.on').length") == 1, "down leads to no token"
        )
        b.key("Escape")
        self.must(
            b.js("document.querySelectorAll('.tok.on').length") == 0, "Escape does not let go"
        )

    def hostile(self):
        b = self.b
        b.view("answers")
        b.js("document.querySelector('input.narrow').value = ''")
        seen = ""
        for _ in range(len(HOSTILE) + 1):
            seen += b.js("document.querySelector('main').textContent")
            b.key("n")
        for text in (
            "</script><script>window.obeyed = 1</script>",
            "<img src=x onerror",
            "⟨U+202E⟩right to left",
            "␛[31mred",
            "␀nul ␇bell ⟨U+009B⟩",
            "zero⟨U+200B⟩width⟨U+FEFF⟩⟨U+2028⟩",
            "&lt;b&gt;",
            "__proto__",
        ):
            self.must(text in seen, f"{text} is not shown as it is")
        b.key("1")
        first = b.js("document.querySelector('main').textContent")
        for text in (
            "columns of unequal length",
            "the last line has no end",
            "Stopped early",
            "ares-train --ranks 2 --config",
            "no checkpoint, so there is no model",
        ):
            self.must(text in first, f"the first screen does not say: {text}")

    def in_view(self, what):
        """All that is in view are tokens, for which `what` holds."""
        b, plain = self.b, 1
        for _ in range(50):  # what comes into view is made in a frame after it
            b.settle()
            plain = b.js(
                """[...document.querySelectorAll('.toks')].flatMap(box => { const e = box.getBoundingClientRect();
            return [...box.children].filter(p => { const r = p.getBoundingClientRect();
            return r.bottom > Math.max(e.top, 0) && r.top < Math.min(e.bottom, innerHeight); }); })
            .filter(p => !p.children.length || ![...p.children].every(s => /(^| )tok( |$)/.test(s.className))).length"""
            )
            if not plain:
                break
        self.must(plain == 0, f"{plain} parts in view have no tokens {what}")

    def parts(self, path):
        """Tokens are made when they come into view: none is missing, or has another's colour."""
        b, lines = self.b, (path.parent / "rollouts/step_000002.jsonl").read_text().splitlines()
        self.must(
            b.js("[...document.querySelectorAll('.toks')].map(e => e.textContent.replaceAll('↵', ''))")
            == ["".join(json.loads(line)["pieces"]) for line in lines[:4]],
            "the texts are not those of the rollouts",
        )
        self.in_view("at first")
        b.key("ArrowRight")
        b.key("End")
        said = b.js("document.querySelector('.inspect').textContent")
        self.must("token 4096 of 4096" in said, f"End does not reach the last token: {said[:60]}")
        self.in_view("at the end")
        while "by=advantage" not in b.js("location.hash"):
            b.key("c")  # a colour that all tokens of an answer have
        b.js("document.querySelectorAll('.toks')[1].scrollTop = 1e6")
        self.in_view("where an answer was moved")
        self.must(
            b.js(
                """(() => { const last = [...document.querySelectorAll('.toks')].slice(0, 2).map(e =>
                [...e.querySelectorAll('.tok')].at(-2).className.replace(' on', ''));
                return last[0].includes('minus') && last[1].includes('minus'); })()"""
            ),
            "a token that came into view later has not the colour in hand",
        )
        b.js(
            """(() => { const f = document.querySelector('input.narrow'); f.value = 'then';
            f.dispatchEvent(new Event('change')); })()"""
        )
        b.js("document.querySelectorAll('.toks')[0].scrollTop = 1e6")
        self.in_view("after a search")
        self.must(
            b.js(
                """[...document.querySelector('.toks').lastChild.children].every(s =>
                s.textContent !== 'Then' || s.classList.contains('hit'))
                && document.querySelector('.toks').lastChild.querySelectorAll('.hit').length > 0"""
            ),
            "what was found is not marked at the end of an answer",
        )
        b.js("dispatchEvent(new Event('beforeprint'))")
        count = b.js("document.querySelectorAll('.tok').length")
        self.must(count == 4 * 4096, f"{count} tokens would be printed, not {4 * 4096}")

    def times(self):
        b = self.b
        b.view("overview")
        began = "const t = performance.now(), done = r => requestAnimationFrame(() => setTimeout(() => r(performance.now() - t)));"
        shown = b.js(
            f"new Promise(r => {{ {began} addEventListener('hashchange', () => done(r), {{ once: true }}); location.hash = '#answers/step=2&group=0&by=entropy'; }})"
        )
        coloured = b.js(
            f"new Promise(r => {{ {began} dispatchEvent(new KeyboardEvent('keydown', {{ key: 'c' }})); done(r); }})"
        )
        print(
            f"page: 4 answers of 4,096 tokens stand in {shown / 1000:.2f} s, and recolour in {coloured / 1000:.2f} s (meant: 1 s)"
        )


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]))
        return 0
    program = next(
        (
            p
            for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))
            if p
        ),
        None,
    )
    if not program:
        print("page: no chromium")
        return 77
    with tempfile.TemporaryDirectory() as home:
        browser = Browser(program, home)
        try:
            looker = Looker(browser)
            for path in map(pathlib.Path, sys.argv[2:]):
                looker.look(path)
                if path.parent.name == "hostile":
                    looker.hostile()
                if path.parent.name == "long":
                    looker.times()
                    looker.parts(path)
                looker.heard()
        finally:
            browser.close()
    for fault in looker.faults:
        print("page: FAULT", fault)
    print(f"page: {looker.n} checks, {len(looker.faults)} faults")
    return 1 if looker.faults else 0


sys.exit(main())
