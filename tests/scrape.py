"""What tests/http.sh asks of the HTTP of a run.  scrape.py QUESTION HOST PORT [...]; says "well", or what is wrong."""
import http.client, json, math, re, resource, socket, sys, time

question, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
more = sys.argv[4:]

def ask(method, path, body=None, accept=None):
    c = http.client.HTTPConnection(host, port, timeout=10)
    c.request(method, path, body, {"Accept": accept} if accept else {})
    r = c.getresponse()
    text = r.read().decode()
    c.close()
    return r, text

def raw(data, patience=10):
    """What comes back until the connection ends."""
    s = socket.create_connection((host, port), timeout=patience)
    s.sendall(data)
    got = b""
    try:
        while part := s.recv(65536):
            got += part
    except ConnectionResetError:
        pass
    s.close()
    return got

def metrics(text):
    """The page by the grammar of the text format: name -> type, (name, labels) -> value."""
    types, helps, samples, family = {}, set(), {}, None
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in helps, line
            helps.add(family)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name == family and kind in ("gauge", "counter", "histogram"), line
            assert (kind == "counter") == name.endswith("_total"), line
            types[name] = kind
        else:
            m = re.fullmatch(r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"(?:,|(?=\})))*\})? (\S+)', line)
            assert m, line
            name = re.sub("_(bucket|sum|count)$", "", m[1]) if types[family] == "histogram" else m[1]
            assert name == family and (m[1], m[2]) not in samples, line
            samples[m[1], m[2] or ""] = float(m[3])
    assert types.keys() == helps
    return types, samples

def openmetrics(text):
    """The page by the grammar of OpenMetrics 1.0: family -> type, and the same values as metrics()."""
    types, samples, family, end = {}, {}, None, {"counter": "_total", "info": "_info", "gauge": ""}
    number = r"[-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?|NaN|[-+]Inf"
    assert text.endswith("\n# EOF\n")
    for line in text.splitlines()[:-1]:
        word = line.split(" ")
        if word[:2] == ["#", "TYPE"]:
            _, _, family, kind = word
            assert family not in types and not family.endswith(("_total", "_info", "_count", "_sum", "_bucket")), line
            types[family] = kind
        elif word[:2] == ["#", "UNIT"]:
            assert word[2] == family and family.endswith("_" + word[3]), line
        elif word[:2] == ["#", "HELP"]:
            assert word[2] == family, line
        else:
            m = re.fullmatch(r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"(?:,|(?=\})))*\})? ('
                             + number + ')', line)
            assert m and (m[1], m[2] or "") not in samples, line
            rest = m[1][len(family):] if m[1].startswith(family) else None
            assert rest == end.get(types[family], rest) or types[family] == "histogram", line
            assert types[family] != "histogram" or rest in ("_bucket", "_sum", "_count"), line
            le = re.search('le="([^"]*)"', line)
            assert not le or le[1] in ("+Inf", repr(float(le[1]))), line
            assert types[family] != "info" or m[3] == "1", line
            samples[m[1], m[2] or ""] = float(m[3])
    return types, samples

def formats():
    """OpenMetrics for those who name it and do not prefer text/plain; the same figures as in the other format."""
    of, plain = "application/openmetrics-text", "text/plain; version=0.0.4; charset=utf-8"
    for accept, wants in {
            of: True, of.upper() + " ; version=1.0.0": True, "text/html, " + of + ";q=0.1": True,
            of + ";version=1.0.0;escaping=allow-utf-8;q=0.6," + of + ";version=0.0.1;q=0.5,"
            "text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2": True,
            of + ";q=0.4,text/plain;q=0.5": False, of + "; version=2.0.0": False, of + ";q=0": False, of + "-x": False,
            "*/*": False, "text/plain": False, ",;=,;": False, None: False}.items():
        r, text = ask("GET", "/metrics", accept=accept)
        want = of + "; version=1.0.0; charset=utf-8" if wants else plain
        assert r.status == 200 and r.getheader("Content-Type") == want, (accept, r.getheader("Content-Type"))
        assert r.getheader("Vary") == "Accept"
        (openmetrics if wants else metrics)(text)
    types, new = openmetrics(ask("GET", "/metrics", accept=of)[1])
    kinds, old = page()
    short = lambda labels: re.sub(r'le="(\d+)\.0"', r'le="\1"', labels)
    assert {(k, short(l)) for k, l in new} == old.keys(), {(k, short(l)) for k, l in new} ^ old.keys()
    assert types == {re.sub("_(total|info)$", "", k): "info" if k.endswith("_info") else v for k, v in kinds.items()}

def judged():
    """The parser of prometheus_client takes the page."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
    found = list(parse(ask("GET", "/metrics", accept="application/openmetrics-text")[1]))
    assert {f.name: f.unit for f in found}["mpstaged_step_duration_seconds"] == "seconds" and len(found) > 30

def replicas():
    """Two replicas of one stage: each has figures of its own."""
    _, v = page()
    for name in "stage_busy_seconds_total", "stage_wait_seconds_total", "stage_memory_bytes", "heartbeat_age_seconds":
        labels = sorted(k[1] for k in v if k[0] == "mpstaged_" + name)
        assert labels == [f'{{stage="0",replica="{r}"}}' for r in range(2)], labels

def page():
    r, text = ask("GET", "/metrics")
    assert r.status == 200 and r.getheader("Content-Type").startswith("text/plain; version=0.0.4"), r.status
    return metrics(text)

def pages():
    types, v = page()
    assert v["mpstaged_build_info", next(k[1] for k in v if k[0] == "mpstaged_build_info")] == 1
    name = "mpstaged_step_duration_seconds"
    buckets = [v[k] for k in v if k[0] == name + "_bucket"]
    assert buckets == sorted(buckets) and buckets[-1] == v[name + "_count", ""] == v["mpstaged_steps_total", ""]
    assert v["mpstaged_samples_total", ""] == 20 * v["mpstaged_steps_total", ""]
    for stage in '{stage="0"}', '{stage="1"}':
        total = v["mpstaged_stage_busy_seconds_total", stage] + v["mpstaged_stage_wait_seconds_total", stage]
        assert math.isclose(total, v[name + "_sum", ""], rel_tol=1e-6), (total, v[name + "_sum", ""])
        assert 0 <= v["mpstaged_stage_bubble_ratio", stage] <= 1
        assert 0 <= v["mpstaged_heartbeat_age_seconds", stage] < 10
    assert abs(v["process_start_time_seconds", ""] - time.time()) < 600
    assert 1 << 20 < v["process_resident_memory_bytes", ""] < v["process_virtual_memory_bytes", ""]
    assert 5 < v["process_open_fds", ""] < v["process_max_fds", ""] and v["process_cpu_seconds_total", ""] > 0

def text():
    print(ask("GET", "/metrics")[1], end="")

def named():
    """mpstaged_info has what tells runs apart: NAME RANKS."""
    (labels,) = [k[1] for k in page()[1] if k[0] == "mpstaged_info"]
    for want in f'run="{more[0]}"', f'ranks="{more[1]}"', 'slurm_job_id="4\\"2"', "version=", "network=", "device=":
        assert want in labels, (want, labels)
    assert "flux" not in labels, labels

def same():
    """Loss and learning rate are those that metrics.jsonl has for that step."""
    _, v = page()
    step = v["mpstaged_step", ""]
    time.sleep(0.3)
    for line in open(more[0]):
        o = json.loads(line) if '"event":"step","step":%d,' % step in line else None
        if o:
            assert math.isclose(v["mpstaged_loss", ""], o["loss"], rel_tol=1e-8)
            assert v["mpstaged_learning_rate", ""] == o["lr"] and v["mpstaged_epoch", ""] == o["epoch"]
            assert v["mpstaged_score", '{score="accuracy"}'] == o["accuracy"]
            return
    raise AssertionError(f"no step {step}")

def routes():
    assert ask("GET", "/healthz")[0].status == 200
    r, text = ask("GET", "/readyz")
    assert (r.status, text) == (200, "training\n"), text
    r, text = ask("HEAD", "/metrics")
    assert r.status == 200 and text == "" and int(r.getheader("Content-Length")) > 1000
    for path in "/", "/metric", "/metrics/", "//metrics", "/../etc/passwd", "/status":
        assert ask("GET", path)[0].status == 404, path
    for method in "POST", "PUT", "DELETE", "OPTIONS", "TRACE":
        r, _ = ask(method, "/metrics", "x" * 100000 if method == "PUT" else None)
        assert r.status == 405 and r.getheader("Allow") == "GET, HEAD", method
    assert ask("GET", "/metrics?x=1")[0].status == 200
    for bad in b"GET\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"\xff" * 100 + b"\r\n\r\n":
        assert b" 200 " not in raw(bad)[:100], bad
    long = raw(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 40000 + b"\r\n\r\n")
    assert long[:13] in (b"HTTP/1.1 431 ", b"HTTP/1.1 413 ", b"HTTP/1.1 400 ", b""), long[:100]
    two = raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert two.count(b"HTTP/1.1 200 OK") == 2

def by_then(holds, what):
    """Within 30 s it holds."""
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.1)

def flood():
    """A thousand connections that say half of a request: scrapes go on, and the process opens few files."""
    pid, most = int(more[0]), int(more[1])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard > 0 else 4096, hard))
    before = page()[1]
    many, longest = [], 0
    for i in range(1000):
        s = socket.create_connection((host, port), timeout=10)
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x" if i % 3 else b"")
        many.append(s)
        if i % 50 == 0:
            began = time.monotonic()
            v = page()[1]
            longest = max(longest, time.monotonic() - began)
            assert v["process_open_fds", ""] <= before["process_open_fds", ""] + most, v["process_open_fds", ""]
    assert longest < 5, longest
    # how many steps a second there are depends on who else computes: that they go on is what counts
    enough = before["mpstaged_steps_total", ""] + 100
    by_then(lambda: page()[1]["mpstaged_steps_total", ""] > enough, "steps do not go on")
    assert len(__import__("os").listdir(f"/proc/{pid}/fd")) <= before["process_open_fds", ""] + most, "files"
    for s in many:
        s.close()
    by_then(lambda: page()[1]["process_open_fds", ""] <= before["process_open_fds", ""] + 2, "files stay open")

def silent():
    """Who says nothing more is shown out."""
    began = time.monotonic()
    assert raw(b"GET /met", 60) == b"" and 5 < time.monotonic() - began < 40, time.monotonic() - began

def names():
    print("\n".join(sorted(page()[0])))

def word():
    r, text = ask("GET", "/readyz")
    print(r.status, text.strip())

try:
    globals()[question]()
    if question not in ("names", "text", "word"):
        print("well")
except Exception as e:                                    # the script shows it
    print(f"{question}: {type(e).__name__}: {e}")
