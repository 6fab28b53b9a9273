"""What tests/report_html.sh asks of pages of mpstagectl report --html.

page.py check FILE...          well-formed XML, loads nothing, no script, accessible
page.py figures FILE METRICS   the curves and the account are those of metrics.jsonl
page.py cut MPSTAGECTL METRICS DIR   cut and damaged metrics give pages, or status 65 and no file

Prints what is wrong; status 0: nothing."""
import html.parser, json, math, os, random, re, subprocess, sys
import xml.etree.ElementTree as xml

wrong = []
def want(good, *what):
    if not good:
        wrong.append(" ".join(map(str, what)))

# ---- colours: WCAG 2.1, contrast ratio ----
def light(colour):
    if len(colour) == 4:
        colour = "#" + "".join(2 * c for c in colour[1:])
    part = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in part)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b

def contrast(a, b):
    a, b = sorted((light(a), light(b)))
    return (b + 0.05) / (a + 0.05)

def colours(css):
    themes = [dict(re.findall(r"--(\w+):(#\w+)", block)) for block in re.findall(r":root\{([^}]*)\}", css)]
    want(len(themes) == 2 and themes[0].keys() == themes[1].keys(), "not two themes of the same colours", themes)
    for t in themes:
        for text in "fg", "mute", "link", "bad":
            want(contrast(t[text], t["bg"]) >= 4.5, text, t[text], "on", t["bg"])
        want(contrast(t["fg"], t["box"]) >= 4.5, "text in a box")
        for line in "train", "test", "hatch":
            want(contrast(t[line], t["bg"]) >= 3, line, t[line], "on", t["bg"])
    keys = re.findall(r"\.p\w\{fill:(#\w+);background:(#\w+);color:(#\w+)\}", css)
    want(len(keys) == 8, "colours of boxes", keys)
    for fill, back, text in keys:
        want(fill == back and contrast(back, text) >= 4.5, text, "on", back)

# ---- one page ----
class Plain(html.parser.HTMLParser):
    """The same page for a parser of HTML: its elements close as they do in XML."""
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []
    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.append(tag)
    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)
    def handle_endtag(self, tag):
        want(self.open and self.open.pop() == tag, "HTML closes", tag)

def tree_of(path):
    with open(path, encoding="utf-8") as f:
        return xml.fromstring(f.read())

def check(path, whole=True):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    root, plain = xml.fromstring(text), Plain()
    plain.feed(text)
    everything = list(root.iter())
    want(plain.seen[:1] == ["html"] and len(plain.seen) == len(everything) and not plain.open, "HTML is not XML")
    for e in everything:
        want(e.tag not in ("script", "link", "img", "iframe", "object", "form", "base", "animate"), e.tag)
        for key, value in e.attrib.items():
            want(not key.startswith("on"), key)
            want(key not in ("src", "href", "action", "style") or value.startswith("#"), key, value)
            want("url(" not in value or re.fullmatch(r"url\(#\w+\)", value), key, value)
    style = root.find("head/style").text
    want("url(" not in style and "@import" not in style and "http" not in style, "the style loads something")
    colours(style)
    csp = [m.get("content") for m in root.iter("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    want(csp == ["default-src 'none'; style-src 'unsafe-inline'"], csp)
    want(root.get("lang") == "en" and root.find("head/title").text, "language or title")
    want(all(len(list(root.iter(t))) == 1 for t in ("header", "nav", "main", "footer", "h1")), "landmarks")
    ids = [e.get("id") for e in everything if e.get("id")]
    want(len(ids) == len(set(ids)), "an id twice")
    for e in everything:
        for name in e.get("aria-labelledby", "").split():
            want(name in ids, "no element", name)
        if e.tag == "a":
            want(e.get("href")[1:] in ids, "a link to nowhere", e.get("href"))
    level = 0
    for e in everything:
        if re.fullmatch(r"h\d", e.tag):
            want(int(e.tag[1]) <= level + 1, e.tag, "after", level)
            level = int(e.tag[1])
            want("".join(e.itertext()).strip(), "an empty heading")
    for t in root.iter("table"):
        want(t.find("caption") is not None and t.find("caption").text, "a table without a caption")
        want(all(h.get("scope") for h in t.iter("th")), "a head without a scope")
        want(t.find("tbody/tr") is not None, "an empty table", t.find("caption").text)
    for box in root.iter("div"):
        if box.get("class") == "wide":
            want(box.get("tabindex") == "0" and box.get("aria-label"), "a box without a keyboard")
    for s in root.iter("svg"):
        want(s.get("role") == "img" and s.find("title").text and s.find("desc").text, "a picture without a text")
        for e in s.iter():
            for key in "d", "x", "y", "cx", "cy", "width":
                want(not re.search("nan|inf", e.get(key, "")), key, e.get(key, "")[:60])
        drawn = [e for e in s.iter() if e.get("class", "").startswith("line ")] + list(s.iter("rect"))
        want(drawn or not whole, "an empty picture")

# ---- figures ----
def history(path):
    """Steps and evaluations that count, by their numbers."""
    steps, tests = {}, {}
    with open(path, encoding="utf-8") as f:
        for o in map(json.loads, f):
            to = {"resume": "step", "rollback": "to"}.get(o["event"])
            if to:
                for d in steps, tests:
                    for k in [k for k in d if k > o[to]]:
                        del d[k]
            if o["event"] == "step":
                steps[o["step"]] = o
            if o["event"] == "evaluation":
                tests[o["step"]] = o
    return steps, tests

def described(root, title):
    for f in root.iter("figure"):
        h = f.find("figcaption/h3")
        if h is not None and h.text == title:
            return f.find("svg/desc").text
    return ""

def line_of(events, key):
    v = [e[key] for _, e in sorted(events.items()) if e.get(key) is not None]
    return "first %.6g, last %.6g, lowest %.6g, highest %.6g. " % (v[0], v[-1], min(v), max(v))

def figures(path, metrics):
    root, (steps, tests) = tree_of(path), history(metrics)
    for key in "loss", "accuracy":
        text = "training: " + line_of(steps, key) + ("validation: " + line_of(tests, key) if tests else "")
        want(described(root, key) == text, key, described(root, key), "and", text)
    said = [q.text for q in root.iter("p") if re.fullmatch(r"\d+ evaluations?\.", q.text or "")]
    want(not tests or said == ["%d evaluation%s." % (len(tests), "s"[:len(tests) != 1])], said, len(tests))
    want(described(root, "learning rate") == line_of(steps, "lr"), "learning rate")
    want(described(root, "samples a second") == line_of(steps, "samples_per_second"), "samples a second")
    rows = [r for t in root.iter("table") if t.find("caption").text.startswith("Share of the step")
            for r in t.iter("tr")][1:]
    for r in rows:
        share = [float(c.text) for c in r.findall("td")[1:-1]]
        want(abs(sum(share) - 100) < 1, "a rank has", sum(share), "percent")
    want(rows, "no account")

# ---- damage ----
def cut(program, metrics, folder):
    """The same cuts each time: a seed."""
    with open(metrics, "rb") as f:
        whole = f.read()
    r = random.Random(7)
    run, page = os.path.join(folder, "cut"), os.path.join(folder, "cut.html")
    os.mkdir(run)
    statuses = {}
    for i in range(150):
        data = bytearray(whole[:r.randrange(len(whole) + 1)] if i % 3 else whole)
        for _ in range(r.choice((0, 1, 5, 50)) if data else 0):
            at = r.randrange(len(data))
            data[at:at + r.randrange(4)] = bytes(r.choice(b'\x00\xff"{}[],:\n9-e<&') for _ in range(r.randrange(4)))
        with open(os.path.join(run, "metrics.jsonl"), "wb") as f:
            f.write(data)
        if os.path.exists(page):
            os.remove(page)
        p = subprocess.run([program, run, "report", "--html", page], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           timeout=60)
        statuses[p.returncode] = statuses.get(p.returncode, 0) + 1
        want(p.returncode in (0, 65), "status", p.returncode, p.stderr)
        want(os.path.exists(page) == (p.returncode == 0), "a page with status", p.returncode)
        want(p.stderr.count(b"\n") == (p.returncode != 0), p.stderr)
        if p.returncode == 0:
            check(page, False)                          # times of a step may be nonsense
        if wrong:
            return
    want(statuses.get(0, 0) > 50 and statuses.get(65, 0) > 0, "statuses", statuses)

question, more = sys.argv[1], sys.argv[2:]
if question == "check":
    for page in more:
        check(page)
elif question == "figures":
    figures(*more)
else:
    cut(*more)
for line in wrong[:10]:
    print(line)
sys.exit(bool(wrong))
