"""Everything that is open while a run goes on: testbed, lanes, probe, sampler, load. `setting_up` opens and closes it.

`Stage` also holds what every step of a run needs: the run clock, phases, cues to the load, and waits which notice
when something the run stands on has died.
"""

import asyncio
import os
import shlex
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from chaos import lanes as lane_processes
from chaos.errors import Unknown
from chaos.faults import Ground
from chaos.history import History
from chaos.lanes import Lane
from chaos.probe import Probe
from chaos.progress import Progress
from chaos.rundir import RunDir
from chaos.sampler import Figures, Sampler
from chaos.scenarios import LaneSpec, Scenario
from chaos.testbed import Testbed, loadbalancer, tools
from chaos.testbed.manifests import namespace_of
from chaos.traffic import launcher, schedule
from chaos.traffic.launcher import Load, LoadPlan, Target
from chaos.undo import Undos

IMAGE = "rideout.dev/work:local"
"""Never pulled: the embedded node runs the command itself."""


@dataclass
class Run:
    """One run before and around its stage: what is to be done, and where it is written down."""

    scenario: Scenario
    seed: int
    directory: RunDir
    history: History
    progress: Progress
    undos: Undos

    def phase(self, name: str, length_s: float | None = None) -> None:
        """Begin a phase, in the history and on the screen; one that goes on is not begun again."""
        if name != self.progress.phase_name:
            self.history.write("info", "suite", "phase", phase=name)
        self.progress.phase(name, length_s)


@dataclass
class Stage:
    """A running system that can be broken."""

    run: Run
    bed: Testbed
    lanes: dict[str, Lane]
    probe: Probe
    sampler: Sampler
    load: Load
    load_over: bool = False
    """Locust was told to end; from then on it may be gone."""

    @property
    def ground(self) -> Ground:
        return Ground(self.bed, self.probe, self.run.history.now, self.run.directory.started_wall, self.lanes)

    def cue(self, segment: str | None) -> None:
        """Tell the load to begin a segment now, and the history that it was told."""
        self.load.cue(segment)
        self.run.history.write("info", "suite", "cue", segment=segment)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and notice when something the run stands on dies meanwhile."""
        await self.wait_until(lambda: False, seconds)

    async def wait_until(self, holds: Callable[[], bool], at_most_s: float) -> bool:
        """Wait until `holds`, at most so long; returns whether it did. Raises Unknown where the stage collapses."""
        end = time.monotonic() + at_most_s
        while not holds():
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.check()
            await asyncio.sleep(min(0.1, left))
        return True

    async def wait_rows(self, holds: Callable[[Figures], bool], at_most_s: float) -> bool:
        """Wait until every lane's figures, taken from now on, hold. Returns whether they did."""
        seen = dict(self.sampler.last)  # a sample that was taken before proves nothing about now

        def all_hold() -> bool:
            last = self.sampler.last
            return all(last.get(lane) is not seen.get(lane) and holds(last[lane]) for lane in self.lanes)

        return await self.wait_until(all_hold, at_most_s)

    def check(self) -> None:
        """Raises Unknown when the load or a part that no fault touches has died: the run would prove nothing."""
        if not self.load_over:
            self.load.check()
        balancing = [self.bed.load_balancer.process] if self.bed.load_balancer else []
        for process in (self.bed.node, self.bed.webhook, self.bed.postgres, self.bed.toxiproxy_process, *balancing):
            if not process.alive and not self.run.undos.will_start(process.name):
                raise Unknown(f"{process.name} died by itself: {process.telling()}", log=process.log)


def testbed_of(run: Run, directory: Path, lanes: Iterable[LaneSpec]) -> AbstractAsyncContextManager[Testbed]:
    """A testbed as the run's scenario wants it, which keeps its own files in `directory`."""
    names = [lane.name for lane in lanes]
    return Testbed.start(directory, names, run.progress.note, **testbed_options(run))


def testbed_options(run: Run) -> dict[str, Any]:
    """What differs between testbeds (`chaos.testbed.bed.Options`)."""
    return {
        "in_process": run.scenario.agents_in_process,
        "webhook_timeout_s": run.scenario.webhook_timeout_s,
        "started_mono": run.directory.started_mono,
        "history": run.history.path,
        "ledger": run.directory.path / "ledger.jsonl",
    }


@asynccontextmanager
async def setting_up(run: Run, bed: Testbed | None = None) -> AsyncIterator[Stage]:
    """Start the testbed (unless the run is given one), the lanes, the probe, the sampler and Locust; end all that was
    started when the block is left."""
    scenario, directory, history = run.scenario, run.directory, run.history
    plan = schedule.draw(run.seed, scenario.segments, lead_s=scenario.lead_s)
    plan.write(directory.path / "schedule.json")
    async with AsyncExitStack() as stack:
        if bed is None:
            bed = await stack.enter_async_context(testbed_of(run, directory.path, scenario.lanes))
        if scenario.load_balancer_timeout_s is not None:
            await loadbalancer.put_before(bed, scenario.load_balancer_timeout_s, run.progress.note)
        run.progress.note(f"control plane {bed.kubernetes_version} is up; starting the dispatchers")
        lanes = await stack.enter_async_context(
            lane_processes.running(scenario.lanes, bed, directory.path, scenario.profile)
        )
        settings = await lane_processes.settings_of(next(iter(lanes.values())))
        describe(run, urls={name: lane.urls for name, lane in lanes.items()}, settings=settings)
        probe = await stack.enter_async_context(
            Probe.watching(bed.kubeconfig("probe"), bed.namespaces, history, interval_s=scenario.probe_interval_s)
        )
        webhook_up = await stack.enter_async_context(asking_webhook(bed))
        sampler = Sampler(
            lanes, probe, webhook_up, history.now, scenario.sample_interval_s, directory.path / "samples.csv"
        )
        sampler.listeners.append(run.progress.update)
        await stack.enter_async_context(sampler.sampling())
        load = launcher.prepare(bed.supervisor, load_plan(run, lanes), directory.path / "load.json")
        load.process.start()
        stack.push_async_callback(load.process.terminate, 5.0)
        yield Stage(run, bed, lanes, probe, sampler, load)


def load_plan(run: Run, lanes: dict[str, Lane]) -> LoadPlan:
    """What Locust is told: where to submit, what the tasks run, where to write things down."""
    path = run.directory.path
    return LoadPlan(
        run_key=f"{path.parent.name}-{path.name}".lower(),
        started_mono=run.directory.started_mono,
        started_wall=run.directory.started_wall,
        history=run.history.path,
        schedule=path / "schedule.json",
        cues=path / "cues.jsonl",
        summary=path / "load-summary.json",
        image=IMAGE,
        command=[sys.executable, "-I", "-S", str(launcher.WORK)],
        env={"RIDEOUT_LEDGER": str(path / "ledger.jsonl")},
        lanes={name: Target(name, lane.urls) for name, lane in lanes.items()},
    )


def describe(run: Run, **known: Any) -> None:
    """Write run.json, less what is not known yet; `known` adds to it or replaces what it said."""
    scenario = run.scenario
    again = ["python", "-m", "chaos", "run", scenario.name, "--profile", scenario.profile, "--seed", str(run.seed)]
    lanes: dict[str, dict[str, Any]] = {
        lane.name: {
            "mode": lane.mode,
            "policy": lane.policy,
            "replicas": lane.replicas,
            "namespace": namespace_of(lane.name),
            "urls": [],
        }
        for lane in scenario.lanes
    }
    about: dict[str, Any] = {
        "scenario": scenario.name,
        "profile": scenario.profile,
        "cluster": "local",
        "kubernetes": tools.kubernetes_version(),
        "seed": run.seed,
        "lanes": lanes,
        "budgets": scenario.budgets,
        "settings": {},
        "agents_in_process": scenario.agents_in_process,
        "claim": scenario.claim,
        "command": shlex.join(again),
        "machine": {"cpus": os.cpu_count(), "python": sys.version.split()[0]},
    }
    for name, urls in known.pop("urls", {}).items():
        lanes[name]["urls"] = urls
    run.directory.write_run(**{**about, **known})


@asynccontextmanager
async def asking_webhook(bed: Testbed) -> AsyncIterator[Callable[[], Any]]:
    """A question: does the webhook answer a review, asked through the same proxy as the apiserver asks it?"""
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE  # whose certificate it is, is the apiserver's business
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "probe", "object": {"metadata": {"labels": {}}}},
    }
    url = f"https://{bed.proxies.proxies['webhook'].listen}/validate"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=unverified, force_close=True), trust_env=False
    ) as session:

        async def ask() -> bool:
            try:
                async with asyncio.timeout(1.0), session.post(url, json=review) as answer:
                    return bool(answer.status == 200 and (await answer.json())["response"]["uid"] == "probe")
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError):
                return False

        yield ask


def log_path(directory: Path) -> Path:
    """Where the suite writes what is too long for a person: tracebacks."""
    return directory / "logs" / "suite.log"
