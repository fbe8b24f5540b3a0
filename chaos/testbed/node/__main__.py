"""`python -m chaos.testbed.node`: run the node until SIGTERM. Its pods run on, as a kubelet's; SIGUSR1 kills them."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import aiohttp

from chaos import jsonl
from chaos.history import History
from chaos.testbed.controlplane.local import NODE_NAME
from chaos.testbed.kube import Json, Kube
from chaos.testbed.node.container import Container, Processes, Runtime
from chaos.testbed.node.manifest import PodSpec
from chaos.testbed.node.memory import Memory
from chaos.testbed.node.podwatch import observe
from chaos.testbed.node.registration import Registration
from chaos.testbed.node.status import Reporter
from chaos.testbed.node.virtual import VirtualAgent, suits
from chaos.testbed.node.worker import Pods


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


class Witness:
    """What the node writes down for the judge: events of agents, and real ends of process groups."""

    def __init__(self, history: History, ledger: int) -> None:
        self._history = history
        self._ledger = ledger

    def hear(self, spec: PodSpec, event: Json) -> None:
        self._history.write("info", "node", "agent", lane=spec.lane, pod=spec.name, **event)

    def record_exit(self, spec: PodSpec, code: int) -> None:
        jsonl.append(self._ledger, {"event": "exit", **spec.identity(), "code": code, "t_mono": time.monotonic()})


async def run(given: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    started_mono = float(os.environ.get("RIDEOUT_STARTED_MONO") or time.monotonic())
    history = History(given.history, started_mono)
    ledger = jsonl.open_append(given.ledger)
    witness = Witness(history, ledger)
    processes = Processes(sys.stdout.fileno())

    # Agents talk to a handful of dispatchers: many at once after an outage, each for a moment.
    connector = aiohttp.TCPConnector(limit=256, keepalive_timeout=5)
    async with (
        Kube.open(given.kubeconfig, user_agent="rideout-node") as kube,
        aiohttp.ClientSession(connector=connector, trust_env=False) as session,
    ):

        def make(spec: PodSpec) -> Runtime:
            defaults = {"RIDEOUT_LEDGER": str(given.ledger), "RIDEOUT_LANE": spec.lane}

            def hear(event: Json) -> None:
                witness.hear(spec, event)

            if given.in_process and suits(spec):
                return VirtualAgent(spec, session, ledger, defaults, hear)
            return Container(spec, processes, defaults, hear)

        reporter = Reporter(kube, say)
        registration = Registration(kube, given.name, given.kubernetes_version, say)
        pods = Pods(given.name, Memory(given.state_dir), reporter, make, witness.record_exit, say)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, pods.kill_all)

        async def watch() -> None:
            async for seen in observe(kube, given.name, say):
                pods.take(seen)

        async def end() -> None:
            await stop.wait()
            raise Stopped

        with contextlib.suppress(Stopped):
            try:
                async with asyncio.TaskGroup() as group:
                    for task in (registration.run(), reporter.run(), watch(), pods.failed(), end()):
                        group.create_task(task)
            except* Stopped:
                pass
    say("stopped")


class Stopped(Exception):
    """SIGTERM."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chaos.testbed.node", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="the node's own, direct to the apiserver")
    parser.add_argument("--state-dir", type=Path, required=True, help="where started pod uids are remembered")
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--name", default=NODE_NAME)
    parser.add_argument("--kubernetes-version", default="v0.0.0")
    parser.add_argument("--in-process", action="store_true", help="play the suite's own agents without a process each")
    asyncio.run(run(parser.parse_args()))
    # Pods' tasks were cancelled with the loop; their processes go on, and the next life of the node adopts them.
    os._exit(0)


if __name__ == "__main__":
    main()
