"""A real load balancer before the apiserver: Caddy, which ends TLS and speaks HTTP, as in front of many control planes.

    lanes, probe → Caddy → Toxiproxy "api" → kube-apiserver

What a client sees of an outage is then what Caddy makes of it: 502 with an empty body while its upstream is gone, 504
with a page when the upstream does not answer in time, and a maintenance page (502, 503 or 504) while a file of that
name lies in `pages`. A client certificate ends at a load balancer and a bearer token passes through it, so dispatchers
and probe come with ServiceAccount tokens here.
"""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.errors import ChaosError
from chaos.testbed import tools
from chaos.testbed.kube import TRANSPORT_ERRORS, Kube
from chaos.testbed.processes import ManagedProcess

if TYPE_CHECKING:
    from chaos.testbed.bed import Testbed

ACCOUNTS = {"dispatcher": "rideout-dispatcher", "probe": "rideout-probe"}
"""ServiceAccounts in the namespace `rideout`, see k8s/*-rbac.yaml."""
TOKEN_S = 4 * 3600
PAGES = (502, 503, 504)
HTML = "<html><head><title>{title}</title></head><body><h1>{title}</h1><hr>load balancer</body></html>"
TITLES = {502: "502 Bad Gateway", 503: "503 Service Unavailable", 504: "504 Gateway Timeout"}

# `admin off`: nothing else listens. http/3 would need UDP. No retries: a load balancer that sends a create twice on its
# own would be a fault of another kind.
CADDYFILE = """{{
	admin off
	auto_https off
	persist_config off
	servers {{
		protocols h1 h2
	}}
}}
https://127.0.0.1:{port} {{
	bind 127.0.0.1
	tls {certificate} {key}
{pages}
	reverse_proxy https://{upstream} {{
		transport http {{
			tls_trust_pool file {authority}
			dial_timeout {timeout_s:g}s
			tls_timeout {timeout_s:g}s
			response_header_timeout {timeout_s:g}s
		}}
	}}
	handle_errors 504 {{
		header Content-Type text/html
		respond `{timed_out}` 504
	}}
}}
"""
PAGE = """	@page{status} file {{
		root {pages}
		try_files /{status}
	}}
	handle @page{status} {{
		header Content-Type text/html
		respond `{html}` {status}
	}}
"""


@dataclass(frozen=True)
class LoadBalancer:
    """The running Caddy. `pages` is the directory whose files (`502`, `503`, `504`) switch maintenance pages on."""

    process: ManagedProcess
    url: str
    pages: Path
    kubeconfigs: dict[str, Path]

    def kubeconfig(self, identity: str) -> Path | None:
        """How an identity comes through the load balancer; None for those that never do."""
        return self.kubeconfigs.get(identity)


async def put_before(bed: "Testbed", timeout_s: float, progress: Callable[[str], None]) -> LoadBalancer:
    """Build or find Caddy, start it before the apiserver, and lead lanes and probe through it from now on.

    `timeout_s`: how long it waits for the upstream's answer; less than a create's deadline, or no client sees its 504.
    Raises ChaosError.
    """
    binary = (await _binaries(progress))["caddy"]
    port, state = bed.ports.take(), bed.supervisor.state / "load-balancer"
    pages = state / "pages"
    pages.mkdir(parents=True)
    pair, url = bed.control_plane.authority.server("load-balancer"), f"https://127.0.0.1:{port}"
    caddyfile = state / "Caddyfile"
    caddyfile.write_text(
        CADDYFILE.format(
            port=port,
            certificate=pair.certificate,
            key=pair.key,
            authority=bed.control_plane.authority.pair.certificate,
            upstream=bed.proxies.proxies["api"].listen,
            timeout_s=timeout_s,
            timed_out=HTML.format(title=TITLES[504]),
            pages="".join(PAGE.format(status=s, pages=pages, html=HTML.format(title=TITLES[s])) for s in PAGES),
        )
    )
    tokens = await _tokens(bed)
    authority = bed.control_plane.authority.pair.certificate
    kubeconfigs = {name: _kubeconfig(state / f"{name}.kubeconfig", url, authority, tokens[name]) for name in ACCOUNTS}
    process = bed.supervisor.process(
        "load-balancer",
        [binary, "run", "--config", caddyfile, "--adapter", "caddyfile"],
        env={"HOME": str(state), "XDG_DATA_HOME": str(state / "data"), "XDG_CONFIG_HOME": str(state / "config")},
        ready=lambda: _leads_to_the_api(kubeconfigs["probe"]),
    )
    process.start()
    await process.wait_ready(30)
    bed.load_balancer = LoadBalancer(process, url, pages, kubeconfigs)
    progress(f"a load balancer stands before the apiserver: {url}")
    return bed.load_balancer


async def _binaries(progress: Callable[[str], None]) -> dict[str, Path]:
    stop = threading.Event()
    try:
        return await asyncio.to_thread(tools.find_or_build, progress, stop, tools.LOAD_BALANCER)
    finally:
        stop.set()


async def _tokens(bed: "Testbed") -> dict[str, str]:
    """A token for each account, by the API that makes them (TokenRequest)."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_S},
    }
    tokens = {}
    async with Kube.open(bed.kubeconfig("admin")) as admin:
        for identity, account in ACCOUNTS.items():
            path = f"/api/v1/namespaces/rideout/serviceaccounts/{account}/token"
            reply = await admin.request("POST", path, request)
            if not reply.ok:
                raise ChaosError(f"no token for the ServiceAccount {account}: {reply.message}", log=bed.apiserver.log)
            tokens[identity] = str(reply.body["status"]["token"])
    return tokens


def _kubeconfig(path: Path, server: str, authority: Path, token: str) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "rideout",
        "contexts": [{"name": "rideout", "context": {"cluster": "rideout", "user": "rideout"}}],
        "clusters": [{"name": "rideout", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "rideout", "user": {"token": token}}],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


async def _leads_to_the_api(kubeconfig: Path) -> bool:
    """Whether the apiserver answers through it, to someone it knows by the token."""
    try:
        async with Kube.open(kubeconfig) as kube:
            reply = await kube.request("GET", "/api/v1/namespaces/rideout/pods", deadline_s=2)
            return reply.status == 403 and "serviceaccount:rideout:" in str(reply.body.get("message"))
    except TRANSPORT_ERRORS:
        return False
