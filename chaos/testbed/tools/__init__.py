"""The servers of the embedded control plane: found, or built from the pinned Go modules beside this file.

`go.mod` names the versions and `go.sum` verifies every byte. A binary is looked for in `KUBEBUILDER_ASSETS` (the
convention of controller-runtime's envtest), then in the cache `~/.cache/rideout/<hash of go.mod, go.sum and flags>/`,
and is built into that cache only if neither has it: under a temporary name, renamed when it is whole, under a lock, so
that two runs at once build once and a build that was cut short never counts.

What only some scenarios need is pinned in a module of its own, in a directory below, and built when one asks for it.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.errors import ChaosError
from chaos.testbed.processes import Supervisor
from chaos.testbed.tools.toolchain import find_go

HERE = Path(__file__).parent
Progress = Callable[[str], None]

# Orientation only, 2 cores, measured cold; said once before a build.
COLD_MINUTES = "8 to 10 minutes with 2 cores the first time, under a minute when Go's own caches are warm"
NEEDED_BYTES = 6 * 1024**3  # measured: 0.9 GB of modules, 3.9 GB of build cache, 0.4 GB of binaries


@dataclass(frozen=True)
class Tool:
    """A binary, the Go package it is built from, the module in go.mod that pins its version, how it tells it, and
    where that go.mod is."""

    name: str
    package: str
    module: str
    version_arguments: tuple[str, ...]
    directory: Path = HERE


KUBERNETES = "k8s.io/kubernetes"

TOOLS = (
    Tool("etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", ("--version",)),
    Tool(
        "toxiproxy-server",
        "github.com/Shopify/toxiproxy/v2/cmd/server",
        "github.com/Shopify/toxiproxy/v2",
        ("-version",),
    ),
    Tool("kube-apiserver", f"{KUBERNETES}/cmd/kube-apiserver", KUBERNETES, ("--version",)),
    Tool("kubectl", f"{KUBERNETES}/cmd/kubectl", KUBERNETES, ("version", "--client")),
    Tool("kube-controller-manager", f"{KUBERNETES}/cmd/kube-controller-manager", KUBERNETES, ("--version",)),
    Tool("kube-scheduler", f"{KUBERNETES}/cmd/kube-scheduler", KUBERNETES, ("--version",)),
)


CADDY = "github.com/caddyserver/caddy/v2"
LOAD_BALANCER = (Tool("caddy", f"{CADDY}/cmd/caddy", CADDY, ("version",), HERE / "loadbalancer"),)
"""Stands before the apiserver in the scenario of that name."""


def pinned(module: str, directory: Path = HERE) -> str:
    """The version that the go.mod in a directory requires of a module, with its "v"."""
    pins = directory / "go.mod"
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", pins.read_text(), re.MULTILINE)
    if not found:
        raise ChaosError(f"{pins} does not require {module}")
    return found[1]


def kubernetes_version() -> str:
    return pinned(KUBERNETES)


def build_arguments(tool: Tool) -> list[str]:
    """The flags of `go build` for one tool. Without -X a server calls itself v0.0.0."""
    version = kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    stamp = "k8s.io/component-base/version"
    names = {f"{stamp}.gitVersion": version, f"{stamp}.gitMajor": major, f"{stamp}.gitMinor": minor}
    if tool.name == "toxiproxy-server":
        names = {"github.com/Shopify/toxiproxy/v2.Version": pinned(tool.module).removeprefix("v")}
    elif tool.name == "caddy":
        names = {f"{CADDY}.CustomVersion": pinned(tool.module, tool.directory)}
    flags = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in names.items())])
    return ["-mod=readonly", "-trimpath", "-ldflags", flags]


def cache_directory(tools: Sequence[Tool] = TOOLS) -> Path:
    """Where built binaries lie; another pin or flag makes another directory."""
    pins = tools[0].directory
    digest = hashlib.sha256((pins / "go.mod").read_bytes() + (pins / "go.sum").read_bytes())
    for tool in tools:
        digest.update(repr((tool.name, tool.package, build_arguments(tool))).encode())
    return _cache_root() / digest.hexdigest()[:16]


def _cache_root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rideout"


def find_or_build(
    progress: Progress, stop: threading.Event | None = None, tools: Sequence[Tool] = TOOLS
) -> dict[str, Path]:
    """Paths of the binaries (all of one directory) by name. Blocking; `stop` ends a build early (with ChaosError).

    Raises ChaosError with one line for a person: a binary of the wrong version, no Go, no network, no disk, a
    compile error; `log` is then the build's log.
    """
    if (assets := os.environ.get("KUBEBUILDER_ASSETS")) and not Path(assets).is_dir():
        raise ChaosError(f"KUBEBUILDER_ASSETS is {assets}, which is no directory: correct it, or unset it to build")
    found = {tool.name: path for tool in tools if (path := _from_assets(tool))}
    cache = cache_directory(tools)
    try:
        found = {tool.name: cache / tool.name for tool in tools if (cache / tool.name).is_file()} | found
        if len(found) < len(tools):
            cache.mkdir(parents=True, exist_ok=True)
            (cache / ".lock").touch()
    except OSError as error:
        remedy = "set XDG_CACHE_HOME to a place you may write"
        raise ChaosError(f"cannot use {cache}: {error.strerror}: {remedy}") from error
    if len(found) < len(tools):
        with _lock(cache, progress, stop or threading.Event()):
            wanted = [tool for tool in tools if tool.name not in found]
            found.update(_build_missing(wanted, cache, progress, stop or threading.Event()))
    return found


def _from_assets(tool: Tool) -> Path | None:
    directory = os.environ.get("KUBEBUILDER_ASSETS")
    path = Path(directory or "/nonexistent") / tool.name
    if not path.is_file():
        return None
    wanted = pinned(tool.module, tool.directory).removeprefix("v")
    remedy = f"put {wanted} there or unset KUBEBUILDER_ASSETS"
    try:
        command = [str(path), *tool.version_arguments]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ChaosError(f"{path} (from KUBEBUILDER_ASSETS) does not run: {error}: {remedy}") from error
    told = re.search(r"\d+\.\d+\.\d+\S*", answer.stdout + answer.stderr)
    if not told or told[0] != wanted:
        raise ChaosError(f"{path} (from KUBEBUILDER_ASSETS) is version {told[0] if told else 'unknown'}: {remedy}")
    return path


@contextlib.contextmanager
def _lock(cache: Path, progress: Progress, stop: threading.Event) -> Iterator[None]:
    """One builder a cache directory. The kernel drops the lock with its holder, so a dead builder blocks nobody."""
    with (cache / ".lock").open("w") as file:
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    progress(f"another run is building into {cache}: waiting for it")
                    told = True
            if stop.wait(0.3):
                raise ChaosError("stopped while waiting for another run's build")
        yield


def _build_missing(wanted: Sequence[Tool], cache: Path, progress: Progress, stop: threading.Event) -> dict[str, Path]:
    for leftover in cache.glob(".building-*"):  # ours alone under the lock: a build that was killed left it
        shutil.rmtree(leftover, ignore_errors=True)
    missing = [tool for tool in wanted if not (cache / tool.name).is_file()]
    built = {tool.name: cache / tool.name for tool in wanted if tool not in missing}
    if not missing:
        return built
    log = cache / "build.log"
    free = shutil.disk_usage(cache).free
    if free < NEEDED_BYTES // 4:
        raise ChaosError(
            f"{free / 1024**3:.1f} GB free at {cache}, a first build needs up to {NEEDED_BYTES / 1024**3:.0f} GB"
            " with Go's own caches: make room, or set XDG_CACHE_HOME, GOCACHE and GOMODCACHE to another disk"
        )
    go = find_go()
    binaries = "server binaries" if len(missing) > 1 else "server binary"
    how_long = COLD_MINUTES if len(missing) > 1 else "a few minutes"
    progress(f"building {len(missing)} {binaries} from pinned Go modules (once): {how_long}; log: {log}")
    scratch = cache / f".building-{os.getpid()}"
    scratch.mkdir()
    supervisor = Supervisor(scratch, scratch / "state")  # if we are killed, `go` and its compilers go too
    try:
        for number, tool in enumerate(missing, 1):
            clock = _Clock(progress, number, len(missing), tool.name)
            _build(go, tool, scratch / tool.name, log, supervisor, stop, clock)
            (scratch / tool.name).replace(cache / tool.name)
            built[tool.name] = cache / tool.name
    finally:
        supervisor.close()
        shutil.rmtree(scratch, ignore_errors=True)
    return built


class _Clock:
    """Says every ten seconds how long a binary has been building."""

    def __init__(self, progress: Progress, number: int, total: int, name: str) -> None:
        self._progress, self._label = progress, f"building {number}/{total} {name}"
        self._begin = self._told = time.monotonic()
        progress(self._label)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._begin

    def tick(self) -> None:
        if time.monotonic() - self._told >= 10:
            self._told = time.monotonic()
            self._progress(f"{self._label}: {self.elapsed:.0f} s")

    def done(self) -> None:
        self._progress(f"{self._label}: done after {self.elapsed:.0f} s")


def _build(
    go: list[str], tool: Tool, target: Path, log: Path, supervisor: Supervisor, stop: threading.Event, clock: _Clock
) -> None:
    process = supervisor.process(
        tool.name,
        [*go, "build", *build_arguments(tool), "-o", target, tool.package],
        # GOWORK: a workspace of the user's above this checkout must not change what is built.
        env={"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "", **_proxies()},
        cwd=tool.directory,
    )
    process.start()
    while process.alive:
        if stop.wait(0.2):  # the caller closes the supervisor, which kills it
            raise ChaosError("stopped while building; what was finished is kept", log=log)
        clock.tick()
    text = process.log.read_text(errors="replace")
    with log.open("a") as file:
        file.write(f"# {' '.join(process.argv)}\n{text}# exit {process.exit_code} after {clock.elapsed:.0f} s\n")
    process.collect()
    if process.exit_code != 0 or not target.is_file():
        code = process.exit_code or 0
        reason = f"it was ended from outside ({signal.Signals(-code).name})" if code < 0 else explain(text)
        raise ChaosError(f"building {tool.name} failed: {reason}", log=log)
    clock.done()


def _proxies() -> dict[str, str]:
    """Downloads do go through the user's proxy, unlike the traffic of the testbed."""
    return {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}


def explain(text: str) -> str:
    """A failed build's reason and remedy in one line, from the output of `go`."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("go: downloading")]
    last = lines[-1][:300] if lines else "go said nothing"
    for pattern, remedy in _REASONS:
        hits = [line for line in lines if re.search(pattern, line)]
        if hits:
            return f"{remedy}: {hits[-1][:300]}"
    return last


_REASONS = (
    (r"no space left on device", "the disk is full; make room (GOCACHE and GOMODCACHE may point to another disk)"),
    (
        r"dial tcp|no such host|i/o timeout|TLS handshake|connection refused|network is unreachable|proxyconnect",
        "a Go module could not be downloaded; check the network, or set GOPROXY to a mirror you can reach",
    ),
    (r"checksum mismatch|SECURITY ERROR", "a downloaded module is not the pinned one; do not trust this mirror"),
    (r"signal: killed|cannot allocate memory", "out of memory; the build needs about 3 GB"),
)
