"""Starts, follows, stops and reads runs of the program mpstaged. Nothing is computed here.

    with mpstaged.start("mlp.conf", ranks=2, options={"train.steps": 10}) as run:
        for event in run.follow():
            print(event.get("step"), event.get("loss"))
    weights, (step, loss) = run.weights(), run.steps("loss")

Names are those of mpstaged's options and settings, events and their keys those of mpstaged(8), METRICS. Arrays need
NumPy, the rest only the standard library. Linux. An object may be used by one thread at a time.
"""
from __future__ import annotations

import fcntl, json, math, mmap, os, shlex, socket, subprocess, tempfile, time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Optional, Union
if TYPE_CHECKING:
    import numpy.typing as npt

Event = dict[str, Any]
PathLike = Union[str, "os.PathLike[str]"]
_POLL = 0.05                                               # seconds between two looks at a file
# NumPy's names of safetensors' types; the last digit is the size in bytes
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
          "I8": "<i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "|b1"}


class Error(Exception):
    """What mpstaged refused or why it failed: its exit status (mpstaged(8)) and its one line."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status, self.line = status if status >= 0 else 128 - status, line


class Weights(Mapping[str, "npt.NDArray[Any]"]):
    """A safetensors file, by names of tensors. Arrays are read-only views of the mapped file, but BF16 becomes float32,
    a copy. Error: 66, it is missing or cannot be read; 65, it is damaged."""

    def __init__(self, file: PathLike) -> None:
        try:
            with open(file, "rb") as f:
                self._bytes = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            self._tensors = dict(self._header())
        except OSError as e:
            raise Error(66, f"{os.fspath(file)}: {e.strerror}") from e
        except (ValueError, RecursionError) as e:
            raise Error(65, f"{os.fspath(file)}: {e}") from e

    def _header(self) -> Iterator[tuple[str, tuple[str, list[int], int]]]:
        """Name, type, shape and place of each tensor. Their data fill the file without holes."""
        begin = at = 8 + int.from_bytes(self._bytes[:8], "little")
        if begin > len(self._bytes):
            raise ValueError(f"a header of {begin - 8} bytes in a file of {len(self._bytes)}")
        header = json.loads(self._bytes[8:begin])
        if not isinstance(header, dict):
            raise ValueError("the header is not a JSON object")
        header.pop("__metadata__", None)
        for name, tensor in header.items():
            if not isinstance(tensor, dict) or str(tensor.get("dtype")) not in _TYPES or not _sizes(
                    tensor.get("shape")) or not _sizes(tensor.get("data_offsets"), 2):
                raise ValueError(f"{name}: dtype, shape or data_offsets is missing or unknown")
        for name, tensor in sorted(header.items(), key=lambda item: list(item[1]["data_offsets"])):
            dtype, shape, (first, end) = tensor["dtype"], tensor["shape"], tensor["data_offsets"]
            if begin + first != at or end - first != math.prod(shape) * int(_TYPES[dtype][-1]):
                raise ValueError(f"{name}: its bytes do not fit its shape, or do not follow the tensor before it")
            yield name, (dtype, shape, at)
            at = begin + end
        if at != len(self._bytes):
            raise ValueError(f"has {len(self._bytes)} bytes, and its header wants {at}")

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        import numpy as np
        dtype, shape, at = self._tensors[name]
        array: npt.NDArray[Any] = np.ndarray(shape, _TYPES[dtype], self._bytes, at)
        if dtype == "BF16":
            array = np.asarray(np.left_shift(array, np.uint32(16), dtype=np.uint32)).view(np.float32)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


class Run:
    """A run directory, with or without a living run. evaluate() and predict() need what start() has: conf, ranks."""

    def __init__(self, path: PathLike, conf: Optional[PathLike] = None, *, ranks: Optional[int] = None,
                 options: Optional[Mapping[str, Any]] = None, mpirun: str = "mpirun",
                 program: str = "mpstaged") -> None:
        self.path, self.conf, self.ranks, self.options = Path(path).absolute(), conf, ranks, options or {}
        self.mpirun, self.program, self._file = mpirun, program, self.path / "metrics.jsonl"
        self.process: Optional[subprocess.Popen[bytes]] = None
        self._said: Optional[IO[bytes]] = None             # the process's standard error
        self._heard = False                                # its socket has answered

    @property
    def running(self) -> bool:
        """Whether the process that start() started lives; of another run, whether it holds its lock."""
        if self.process:
            return self.process.poll() is None
        try:
            with open(self.path / "lock", "rb") as f:
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, FileNotFoundError) as e:
            return isinstance(e, BlockingIOError)
        return False

    def ask(self, command: str, **keys: Any) -> Event:
        """The first answer to a request of mpstagectl(1), PROTOCOL: ask("set", key="train.learning_rate", value=0.1).
        Error: it was refused, or 69, nothing is running, or 75, no answer in five seconds."""
        try:
            until, at = time.monotonic() + 5, os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            try:                                           # by the folder: a socket's name may have only 107 bytes
                with socket.socket(socket.AF_UNIX) as s:
                    s.settimeout(5)
                    while bad := s.connect_ex(f"/proc/self/fd/{at}/control.sock"):
                        if not self.running or time.monotonic() > until:
                            raise OSError(bad, os.strerror(bad))
                        time.sleep(_POLL)                  # it has begun, and makes its socket soon
                    s.sendall(json.dumps({"command": command, **keys}).encode() + b"\n")
                    answer: Event = json.loads(s.makefile("rb").readline())
            finally:
                os.close(at)
        except (OSError, ValueError) as e:
            gone = isinstance(e, (FileNotFoundError, ConnectionRefusedError))
            raise Error(69 if gone else 75, f"{self.path}: no run answers there: {e}") from e
        if not answer.get("ok"):
            raise Error(answer.get("code", 77), f"{self.path}: {answer.get('error')}")
        return answer

    def status(self) -> Event:
        """State, step, speed and remaining time: the keys of `mpstagectl RUN status --json`."""
        return self.ask("status")

    def stop(self, checkpoint: bool = False) -> Event:
        """Ends the run after its step, with weights and, if asked for, a checkpoint; then returns wait()."""
        self.ask("stop", checkpoint=checkpoint)
        return self.wait()

    def wait(self, timeout: float = math.inf) -> Event:
        """Waits so many seconds for the end, or TimeoutError; returns the last event. Error: the run failed."""
        until = time.monotonic() + timeout
        while self.running:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.path}: the run has not ended")
            time.sleep(_POLL)
        if self.process and self.process.returncode and self._said:
            self._said.seek(0)
            raise Error(self.process.returncode, _error_line(self._said.read()))
        last = (self.metrics() or [{"event": "none"}])[-1]
        if last["event"] != "done":
            raise Error(last.get("code", 69), last.get("text", f"{self.path}: no run was there, or it was killed"))
        return last

    def follow(self) -> Iterator[Event]:
        """The events of the latest start, then new ones as they come, until the run has ended. wait() says how."""
        file: IO[bytes] = tempfile.TemporaryFile()         # until there is the true one
        while True:
            live = self.running
            if self._file.exists() and not os.path.samestat(os.fstat(file.fileno()), self._file.stat()):
                file.close()
                file = open(self._file, "rb")
                file.seek(_latest_start(file.read()))
            data = file.read()
            end = data.rfind(b"\n") + 1                    # what follows is not a whole line yet
            file.seek(end - len(data), os.SEEK_CUR)
            yield from map(json.loads, data[:end].splitlines())
            if not end and not live:
                return file.close()
            time.sleep(_POLL if not end else 0)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        """Stops a run that start() has started, and waits. Error: it failed."""
        if self.process and self.running:
            try:
                self.ask("stop")
            except Error:                                  # it is ending, or has no socket
                if not self._heard:
                    self.process.terminate()
            self.process.wait()
        if self.process and kind is None:
            self.wait()

    def metrics(self) -> list[Event]:
        """All whole lines of metrics.jsonl, of all starts."""
        return [json.loads(line) for line in self._lines().splitlines()]

    def steps(self, *keys: str, event: str = "step") -> tuple[npt.NDArray[Any], ...]:
        """An array of step numbers, then one of each key, NaN where it has no value, without the steps that a resume or
        a roll-back has discarded. event: or "evaluation"."""
        import numpy as np
        rows: dict[int, Event] = {}
        for e in self.metrics():
            if e["event"] in ("start", "resume", "rollback"):
                back = e["to"] if "to" in e else e.get("step", 0)
                rows = {step: row for step, row in rows.items() if step <= back}
            elif e["event"] == event:
                rows[e["step"]] = e
        columns = [[math.nan if row.get(key) is None else row[key] for row in rows.values()] for key in keys]
        return (np.array(list(rows), np.int64), *(np.array(column, np.float64) for column in columns))

    def weights(self) -> Weights:
        """The final weights."""
        return Weights(self.path / "weights.safetensors")

    def evaluate(self, init_from: Optional[PathLike] = None) -> Event:
        """The event "evaluation" of the test samples with the run's weights, or those of a file or folder."""
        with tempfile.TemporaryDirectory() as folder:
            _finish(self._command("--evaluate", f"--run-dir={folder}/run", init_from=init_from or self.path))
            return next(e for e in Run(f"{folder}/run").metrics() if e["event"] == "evaluation")

    def predict(self, init_from: Optional[PathLike] = None, predict_tensor: Optional[str] = None) -> npt.NDArray[Any]:
        """The network's output, or that tensor, for each test sample; weights as those of evaluate()."""
        import numpy as np
        tensor = [f"--predict-tensor={predict_tensor}"] if predict_tensor else []
        with tempfile.TemporaryDirectory() as folder:
            _finish(self._command(f"--predict={folder}/p.npy", f"--run-dir={folder}/run", *tensor,
                                  init_from=init_from or self.path))
            return np.asarray(np.load(f"{folder}/p.npy"))

    def _lines(self) -> bytes:
        data = self._file.read_bytes() if self._file.exists() else b""
        return data[:data.rfind(b"\n") + 1]

    def _start_line(self) -> bytes:
        data = self._lines()
        return data[_latest_start(data):].partition(b"\n")[0]

    def _command(self, *args: str, init_from: Optional[PathLike] = None, launched: bool = True) -> list[str]:
        if self.conf is None:
            raise ValueError(f"{self.path}: give the configuration file: Run(path, conf)")
        launcher = [*shlex.split(self.mpirun), "-np", str(self.ranks)] if launched and self.ranks else []
        options = [f"-o{key}={_value(value)}" for key, value in self.options.items()]
        options += [f"--init-from={os.fspath(init_from)}"] if init_from else []
        return [*launcher, self.program, f"--stage-config={os.fspath(self.conf)}", *options, *args]


def start(conf: PathLike, *, ranks: Optional[int] = None, options: Optional[Mapping[str, Any]] = None,
          run_dir: Optional[PathLike] = None, init_from: Optional[PathLike] = None, resume: Union[bool, str] = False,
          overwrite: bool = False, mpirun: str = "mpirun", program: str = "mpstaged") -> Run:
    """Starts a run and returns when it has begun, or has ended. Error: it was refused, and created nothing.
    ranks: processes under mpirun, a command line; None: one process without it. options: settings of mpstaged.conf(5)
    with their values. resume: or "force". Ctrl-C does not reach the run; leave `with`, or call stop()."""
    run = Run("", conf, ranks=ranks, options=options, mpirun=mpirun, program=program)
    args = [f"--run-dir={os.fspath(run_dir)}"] if run_dir else []
    args += [f"--resume={resume}" if isinstance(resume, str) else "--resume"] if resume else []
    args += ["--overwrite"] if overwrite else []
    shown = _finish(run._command(*args, "--print-config", "--json", init_from=init_from, launched=False))
    run.path = Path(json.loads(shown)["run"]["directory"]).absolute()
    run._file = run.path / "metrics.jsonl"
    before, run._said = run._start_line(), tempfile.TemporaryFile()
    pause = _POLL + len(run._lines()) / 2e8                # to read earlier metrics again takes a tenth of it
    run.process = subprocess.Popen(run._command(*args, init_from=init_from), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=run._said, start_new_session=True)
    try:
        while run.running and run._start_line() in (b"", before):
            time.sleep(pause)
        run._heard = bool(run.status())
    except Error:
        pass                                               # it has ended already, or has no socket
    except BaseException:
        run.process.terminate()
        raise
    if run._start_line() in (b"", before):
        run.wait()
    return run


def _latest_start(data: bytes) -> int:
    return max(data.rfind(b'\n{"event":"start"'), data.rfind(b'\n{"event":"resume"')) + 1


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(json.dumps(v) if isinstance(v, str) else _value(v) for v in value) + "}"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _finish(command: Sequence[str]) -> bytes:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        raise Error(done.returncode, _error_line(done.stderr))
    return done.stdout


def _error_line(said: bytes) -> str:
    """mpstaged's own line, without its name; if there is none, what was said last, for example by mpirun."""
    lines = ["nothing"] + [line for line in said.decode(errors="replace").splitlines() if line.strip("- ")]
    ours = [line[10:] for line in lines if line.startswith("mpstaged: ")]
    return (ours or [f"ended without an error message; the last line was: {lines[-1]}"])[-1]


def _sizes(x: Any, n: Optional[int] = None) -> bool:
    return isinstance(x, list) and (n is None or len(x) == n) and all(type(i) is int and i >= 0 for i in x)
