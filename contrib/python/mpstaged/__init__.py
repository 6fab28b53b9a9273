"""Starts, follows, stops and reads runs of the program mpstaged. Nothing is computed here.

    with mpstaged.start("mlp.conf", ranks=2, options={"train.steps": 10}) as run:
        for event in run.follow():
            print(event.get("step"), event.get("loss"))
    weights, (step, loss) = run.weights(), run.steps("loss")

Names are those of mpstaged's options and settings, events and their keys those of mpstaged(8), METRICS. Arrays need
NumPy, the rest only the standard library. Linux. An object may be used by one thread at a time.
"""
from __future__ import annotations

import fcntl
import json
import math
import mmap
import os
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Optional, Union

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Error", "Run", "Weights", "start"]

Event = dict[str, Any]
PathLike = Union[str, "os.PathLike[str]"]
_POLL = 0.05                                               # seconds between two looks at a file
_ANSWER = 5.0                                              # seconds that an answer of a run may take
_LONGEST_HEADER = 100_000_000                              # bytes, as in the reference reader
# safetensors' types: NumPy's, bytes
_TYPES = {"F64": ("<f8", 8), "F32": ("<f4", 4), "F16": ("<f2", 2), "BF16": ("<u2", 2), "I64": ("<i8", 8),
          "I32": ("<i4", 4), "I16": ("<i2", 2), "I8": ("i1", 1), "U64": ("<u8", 8), "U32": ("<u4", 4),
          "U16": ("<u2", 2), "U8": ("u1", 1), "BOOL": ("?", 1)}


class Error(Exception):
    """What mpstaged refused or why it failed: its exit status (mpstaged(8)) and its one line."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status, self.line = status, line


class Weights(Mapping[str, "npt.NDArray[Any]"]):
    """A safetensors file, by names of tensors. A tensor is read when it is asked for.

    Arrays are read-only views of the mapped file. BF16 is widened to float32, which makes a copy. A file that is
    missing gives Error 66, a damaged one Error 65.
    """

    def __init__(self, file: PathLike) -> None:
        self.file = os.fspath(file)
        try:
            with open(self.file, "rb") as f:
                size = os.fstat(f.fileno()).st_size
                if size < 8:
                    raise ValueError("is shorter than a header")
                self._bytes = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            self.metadata: dict[str, str] = {}
            self._tensors = self._header(size)
        except OSError as e:
            raise Error(66, f"{self.file}: {e.strerror}") from e
        except ValueError as e:
            raise Error(65, f"{self.file}: {e}") from e

    def _header(self, size: int) -> dict[str, tuple[str, tuple[int, ...], int]]:
        """Type, shape and place of each tensor, whose data fill the file without holes."""
        begin = 8 + int.from_bytes(self._bytes[:8], "little")
        if begin > min(size, _LONGEST_HEADER):
            raise ValueError(f"a header of {begin - 8} bytes in a file of {size}")
        try:
            header = json.loads(self._bytes[8:begin], object_pairs_hook=_no_twins)
        except RecursionError:
            raise ValueError("the header is nested too deeply") from None
        if not isinstance(header, dict):
            raise ValueError("the header is not a JSON object")
        self.metadata = header.pop("__metadata__", {})
        tensors, at = {}, 0
        for name, tensor in sorted(header.items(), key=lambda item: _offsets(*item)):
            dtype, shape, (first, end) = tensor.get("dtype"), tensor.get("shape"), _offsets(name, tensor)
            if not isinstance(dtype, str) or dtype not in _TYPES:
                raise ValueError(f"{name}: type {dtype} is not known")
            if not isinstance(shape, list) or not all(_is_size(n) for n in shape):
                raise ValueError(f"{name}: {shape} is not a shape")
            if first != at or end - first != math.prod(shape) * _TYPES[dtype][1]:
                raise ValueError(f"{name}: bytes {first} to {end} do not fit its shape or the tensor before it")
            tensors[name], at = (dtype, tuple(shape), begin + first), end
        if begin + at != size:
            raise ValueError(f"{size} bytes where the header wants {begin + at}")
        return tensors

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        import numpy as np
        dtype, shape, at = self._tensors[name]
        array = np.frombuffer(self._bytes, _TYPES[dtype][0], math.prod(shape), at) if math.prod(shape) else np.empty(
            0, _TYPES[dtype][0])
        if dtype == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return array.reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def dtype(self, name: str) -> str:
        """The type in the file, such as "BF16"."""
        return self._tensors[name][0]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name][1]


class Run:
    """A run directory, whether a run is in it or has been.

    conf, ranks, options, mpirun and program are those of start(); evaluate() and predict() need conf.
    """

    def __init__(self, path: PathLike, conf: Optional[PathLike] = None, *, ranks: Optional[int] = None,
                 options: Optional[Mapping[str, Any]] = None, mpirun: Union[str, Sequence[str]] = "mpirun",
                 program: str = "mpstaged") -> None:
        self.path = Path(path).absolute()
        self.conf, self.ranks, self.options, self.mpirun, self.program = conf, ranks, options or {}, mpirun, program
        self.process: Optional[subprocess.Popen[bytes]] = None
        self._said: Optional[IO[bytes]] = None             # the process's standard error

    # ---- while it runs -----------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the process that was started lives; of an opened directory, whether a run holds its lock."""
        if self.process:
            return self.process.poll() is None
        try:
            with open(self.path / "lock", "rb") as f:
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    def status(self) -> Event:
        """State, step, speed and remaining time: the keys of `mpstagectl RUN status --json`. Error 69: no run."""
        return self.ask("status")

    def ask(self, command: str, **keys: Any) -> Event:
        """The answer to a request of mpstagectl(1), PROTOCOL: run.ask("set", key="train.learning_rate", value=0.1)."""
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(_ANSWER)
                at = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                try:                                       # a socket's name may have only 107 bytes
                    s.connect(f"/proc/self/fd/{at}/control.sock")
                finally:
                    os.close(at)
                s.sendall(json.dumps({"command": command, **keys}).encode() + b"\n")
                if keys.get("wait"):
                    s.settimeout(None)
                with s.makefile("rb") as f:
                    lines = [f.readline() for _ in range(2 if keys.get("wait") else 1)]
        except (FileNotFoundError, ConnectionRefusedError) as e:
            raise Error(69, f"{self.path}: nothing is running there") from e
        except (OSError, EOFError) as e:
            raise Error(75, f"{self.path}: the run is not responding") from e
        for line in lines:
            answer: Event = json.loads(line) if line else {"error": "the run has ended", "code": 69}
            if not answer.get("ok"):
                raise Error(answer.get("code", 77), f"{self.path}: {answer.get('error')}")
        return answer

    def stop(self, checkpoint: bool = False, wait: bool = True) -> Optional[Event]:
        """Ends the run after its step, with weights and, if asked for, a checkpoint; then returns wait()."""
        self.ask("stop", checkpoint=checkpoint)
        return self.wait() if wait else None

    def wait(self, timeout: Optional[float] = None) -> Event:
        """Waits so many seconds for the end, or TimeoutError; returns the last event. Error: the run failed."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while self.running:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.path}: the run has not ended")
            time.sleep(_POLL)
        if self.process and self.process.returncode and self._said:
            self._said.seek(0)
            raise Error(_status(self.process.returncode), _error_line(self._said.read()))
        last = ([{"event": "none"}] + self.metrics())[-1]
        if last["event"] != "done":
            raise Error(last.get("code", 69), last.get("text", f"{self.path}: no run has ended there, or it was killed"))
        return last

    def follow(self) -> Iterator[Event]:
        """The events of the latest start, then new ones as they come, until the run has ended. wait() says how."""
        file: Optional[IO[bytes]] = None
        try:
            while True:
                live, name = self.running, self.path / "metrics.jsonl"
                if name.exists() and not (file and os.path.samestat(os.fstat(file.fileno()), os.stat(name))):
                    if file:
                        file.close()
                    file = open(name, "rb")
                    file.seek(_latest_start(file.read()))
                data = file.read() if file else b""
                end = data.rfind(b"\n") + 1                # what follows is not a whole line yet
                if file:
                    file.seek(end - len(data), os.SEEK_CUR)
                yield from self._events(data[:end])
                if not end and not live:
                    return
                if not end:
                    time.sleep(_POLL)
        finally:
            if file:
                file.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        """Stops a run that start() has started and that has not ended, and waits. Error: it failed."""
        if not self.process:
            return
        if self.running:
            try:
                self.stop(wait=False)
            except Error:
                self.process.terminate()
        if kind is None:
            self.wait()
        self.process.wait()

    # ---- what it has left --------------------------------------------------------------------------------------------

    def metrics(self) -> list[Event]:
        """All whole lines of metrics.jsonl, of all starts."""
        data = self._metrics()
        return list(self._events(data[:data.rfind(b"\n") + 1]))

    def steps(self, *keys: str, event: str = "step") -> tuple[npt.NDArray[Any], ...]:
        """An array of step numbers, then one of each key, NaN where it has no value. event: or "evaluation".

        Steps that a resume or a roll-back has discarded are left out.
        """
        import numpy as np
        rows: dict[int, Event] = {}
        for e in self.metrics():
            if e["event"] in ("start", "resume", "rollback"):
                back = e.get("to", e.get("step", 0))
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
            _finish(self._command(["--evaluate", f"--init-from={os.fspath(init_from or self.path)}",
                                   f"--run-dir={folder}/run"]))
            events = Run(f"{folder}/run").metrics()
        return next(e for e in events if e["event"] == "evaluation")

    def predict(self, init_from: Optional[PathLike] = None,
                predict_tensor: Optional[str] = None) -> npt.NDArray[Any]:
        """The network's output, or that tensor, for each test sample; weights as those of evaluate()."""
        import numpy as np
        with tempfile.TemporaryDirectory() as folder:
            args = [f"--predict={folder}/p.npy", f"--run-dir={self.path}"]
            args += [f"--init-from={os.fspath(init_from)}"] if init_from else []
            args += [f"--predict-tensor={predict_tensor}"] if predict_tensor else []
            _finish(self._command(args))
            array: npt.NDArray[Any] = np.load(f"{folder}/p.npy")
        return array

    def _metrics(self) -> bytes:
        file = self.path / "metrics.jsonl"
        return file.read_bytes() if file.exists() else b""

    def _seen(self) -> Optional[tuple[int, ...]]:
        """What changes when metrics.jsonl does."""
        file = self.path / "metrics.jsonl"
        s = file.stat() if file.exists() else None
        return s and (s.st_ino, s.st_size, s.st_mtime_ns)

    def _start_line(self) -> bytes:
        data = self._metrics()
        return data[_latest_start(data):].partition(b"\n")[0]

    def _events(self, data: bytes) -> Iterator[Event]:
        for line in data.splitlines():
            try:
                yield json.loads(line)
            except ValueError as e:
                raise Error(65, f"{self.path}/metrics.jsonl: {line[:60]!r} is not JSON") from e

    def _command(self, args: Sequence[str], ranks: bool = True) -> list[str]:
        if self.conf is None:
            raise ValueError(f"{self.path}: give the configuration file: Run(path, conf)")
        mpirun = shlex.split(self.mpirun) if isinstance(self.mpirun, str) else list(self.mpirun)
        settings = [f"-o{key}={_value(value)}" for key, value in self.options.items()]
        return [*([*mpirun, "-np", str(self.ranks)] if ranks and self.ranks else []), self.program,
                f"--stage-config={os.fspath(self.conf)}", *settings, *args]


def start(conf: PathLike, *, ranks: Optional[int] = None, options: Optional[Mapping[str, Any]] = None,
          run_dir: Optional[PathLike] = None, init_from: Optional[PathLike] = None, resume: Union[bool, str] = False,
          overwrite: bool = False, mpirun: Union[str, Sequence[str]] = "mpirun", program: str = "mpstaged") -> Run:
    """Starts a run and returns when it has begun, or has ended. Error: it was refused, and created nothing.

    ranks: processes under mpirun, which is a command line; None: one process, without mpirun. options: settings of
    mpstaged.conf(5) with their values, such as {"train.steps": 10}. resume: True or "force".
    """
    run = Run("", conf, ranks=ranks, options=options, mpirun=mpirun, program=program)
    args = [f"--run-dir={os.fspath(run_dir)}"] if run_dir else []
    args += [f"--init-from={os.fspath(init_from)}"] if init_from else []
    args += [f"--resume={resume}" if isinstance(resume, str) else "--resume"] if resume else []
    args += ["--overwrite"] if overwrite else []
    config = json.loads(_finish(run._command([*args, "--print-config", "--json"], ranks=False)))
    run.path = Path(config["run"]["directory"]).absolute()
    seen, before = run._seen(), run._start_line()
    run._said = tempfile.TemporaryFile()
    run.process = subprocess.Popen(run._command(args), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=run._said, start_new_session=True)
    try:
        while run.running and (run._seen() == seen or run._start_line() == before):
            time.sleep(_POLL)
    except BaseException:
        run.process.terminate()
        raise
    if run._start_line() == before:
        run.wait()
    return run


def _latest_start(data: bytes) -> int:
    """Where the line of the latest start is, or 0."""
    return max(data.rfind(b'\n{"event":"start"'), data.rfind(b'\n{"event":"resume"')) + 1


def _value(value: Any) -> str:
    """As a configuration has it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(json.dumps(v) if isinstance(v, str) else _value(v) for v in value) + "}"
    return str(value)


def _status(code: int) -> int:
    return code if code >= 0 else 128 - code               # a signal, as a shell has it


def _error_line(said: bytes) -> str:
    """mpstaged's own line, without its name, or the last one of whoever failed."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()] or ["it failed without a word"]
    ours = [line for line in lines if line.startswith("mpstaged: ")]
    return ours[-1][len("mpstaged: "):] if ours else lines[-1]


def _finish(command: Sequence[str]) -> bytes:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        raise Error(_status(done.returncode), _error_line(done.stderr))
    return done.stdout


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("the header names something twice")
    return dict(pairs)


def _is_size(n: Any) -> bool:
    return type(n) is int and n >= 0


def _offsets(name: str, tensor: Any) -> tuple[int, int]:
    offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(n) for n in offsets):
        raise ValueError(f"{name}: has no data_offsets")
    return offsets[0], offsets[1]
