"""`dispatcher preflight` against an API that refuses, lacks, breaks and accepts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dispatcher.cli import app
from tests.faults import transport
from tests.faults.answers import JSON, answering, created, http, status
from tests.faults.cases import call_failed, denied, forbidden
from tests.faults.certificates import server_context
from tests.faults.server import FaultServer, Peer, Request, Script
from tests.unit.conftest import TlsFiles

Answer = Callable[[Request], bytes]


def api(
    *,
    create: Answer = created,
    may: Callable[[str, str], object] = lambda verb, resource: True,
    limit_ranges: bytes | None = None,
) -> Script:
    """An API server as far as preflight asks it."""
    ranges = limit_ranges or http(200, JSON, {"kind": "LimitRangeList", "metadata": {}, "items": [{}]})

    def answer(request: Request) -> bytes:
        path, _, query = request.path.partition("?")
        if path.endswith("/pods"):
            assert request.method == "POST"
            assert "dryRun=All" in query.split("&"), "nothing may be created"
            return create(request)
        if path.endswith("/limitranges"):
            assert (request.method, query) == ("GET", "limit=1")
            return ranges
        assert path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        asked = request.json["spec"]["resourceAttributes"]
        allowed = may(asked["verb"], asked["resource"])
        if isinstance(allowed, bytes):
            return allowed
        return http(201, JSON, {**request.json, "status": {"allowed": allowed}})

    return answering(answer)


@pytest.fixture
def run(kubeconfig: Path):
    def preflight(*arguments: str, **env: str) -> Result:
        environment = {
            "RIDEOUT_KUBECONFIG": str(kubeconfig),
            "RIDEOUT_NAMESPACE": "tasks",
            "RIDEOUT_CREATE_DEADLINE_S": "5",
            **env,
        }
        return CliRunner().invoke(app, ["preflight", *arguments], env=environment)

    return preflight


def printed(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    assert list(found)[:5] == ["disposition", "cause", "may_exist", "rule", "next"]
    assert found["may_exist"] is False, "a dry run creates nothing"
    return found


def test_an_accepted_create_with_all_rights_is_ready(run, server: FaultServer):
    server.play(api())
    result = run("--json")
    found = printed(result)
    assert result.exit_code == 0
    assert (found["disposition"], found["cause"], found["ready"], found["missing"]) == (
        "Placed",
        "201 Created",
        True,
        [],
    )
    assert "does not reach etcd" in found["next"]
    posts = [request for request in server.posts if "/pods" in request.path]
    assert len(posts) == 1, "one dry run"
    assert posts[0].path.startswith("/api/v1/namespaces/tasks/pods?")
    text = run()
    assert text.exit_code == 0
    assert "ok       may create pods in tasks" in text.stdout
    assert text.stdout.endswith("\nready\n")


def test_the_pod_is_the_one_that_the_dispatcher_would_create(run, server: FaultServer, tmp_path: Path):
    spec = tmp_path / "spec.json"
    spec.write_text('{"image": "busybox", "command": ["run"], "labels": {"team": "blue"}}')
    server.play(api())
    run("--spec", str(spec), "--namespace", "jobs", RIDEOUT_AGENT_COMMAND='["agent"]')
    (request,) = [one for one in server.posts if "/pods" in one.path]
    assert request.path.startswith("/api/v1/namespaces/jobs/pods?")
    pod = request.json
    assert pod["metadata"]["labels"]["team"] == "blue"
    assert pod["spec"]["containers"][0]["command"] == ["agent", "--", "run"]
    assert pod["spec"]["restartPolicy"] == "Never"


REFUSALS: dict[str, tuple[bytes, str, str]] = {
    "401": (http(401, JSON, status(401, "Unauthorized", "Unauthorized")), "Rejected", "renew the token"),
    "no namespace": (
        http(404, JSON, status(404, "NotFound", 'namespaces "tasks" not found')),
        "Rejected",
        "kubectl create namespace tasks",
    ),
    "webhook denies": (http(500, JSON, denied(": no", 500)), "Rejected", "admission webhook refuses this pod"),
    "webhook away": (http(500, JSON, call_failed("EOF")), "Unavailable", "fail-closed admission webhook"),
    "no dry runs": (
        http(400, JSON, status(400, "BadRequest", 'admission webhook "w" does not support dry run')),
        "Rejected",
        "cannot see past it",
    ),
    "quota": (http(403, JSON, forbidden("exceeded quota: q, requested: pods=1")), "Backpressure", "ResourceQuota"),
    "throttled": (http(429, {"Retry-After": "1"}, ""), "Backpressure", "throttles"),
    "pod security": (http(403, JSON, forbidden('violates PodSecurity "restricted"')), "Rejected", "refuses this pod"),
    "load balancer": (http(502, {}, "<html>"), "Unavailable", "cannot take creates"),
    "portal": (http(200, {}, "<html>"), "Unavailable", "cannot take creates"),
    "redirect": (http(302, {"Location": "/login"}, ""), "Rejected", "refuses this pod"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_create_that_is_not_accepted_says_what_to_do_and_exits_1(refusal: str, run, server: FaultServer):
    answer, disposition, remedy = REFUSALS[refusal]
    server.play(api(create=lambda _: answer))
    result = run("--json")
    found = printed(result)
    assert (result.exit_code, found["disposition"], found["ready"]) == (1, disposition, False)
    assert remedy in found["next"]
    assert "the dispatcher would do this: " in found["next"]
    text = run()
    assert text.exit_code == 1
    assert text.stdout.startswith(f"{disposition}: ")
    assert remedy in text.stdout
    assert text.stdout.endswith("\nnot ready\n")


def test_a_missing_right_to_create_is_named_with_its_remedy(run, server: FaultServer):
    refused = http(403, JSON, forbidden('User "x" cannot create resource "pods"'))
    server.play(api(create=lambda _: refused, may=lambda verb, resource: verb != "create"))
    found = printed(run("--json"))
    assert found["next"].startswith("grant `create` on `pods` in tasks to this identity: kubectl apply -f")
    assert any(line.startswith("may create pods in tasks: grant") for line in found["missing"])


@pytest.mark.parametrize(("verb", "exit_code"), [("list", 1), ("delete", 1), ("get", 0), ("watch", 0)])
def test_other_missing_rights_are_named_and_count_if_they_are_needed(
    verb: str, exit_code: int, run, server: FaultServer
):
    server.play(api(may=lambda asked, resource: (asked, resource) != (verb, "pods")))
    result = run()
    assert result.exit_code == exit_code
    assert f"MISSING  may {verb} pods in tasks: grant `{verb}` on `pods`" in result.stdout


def test_a_namespace_without_a_limit_range_is_warned_of(run, server: FaultServer):
    server.play(api(limit_ranges=http(200, JSON, {"kind": "LimitRangeList", "items": []})))
    result = run()
    assert result.exit_code == 0
    assert "MISSING  a LimitRange in tasks: while etcd is away" in result.stdout


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (http(403, JSON, status(403, "Forbidden", "no")), "403 Forbidden: no"),
        (http(500, {}, "<html>"), "500 without a Status"),
        (http(302, {"Location": "/"}, ""), "302 redirect"),
        (http(200, JSON, "not json"), "JSONDecodeError"),
        (http(201, JSON, {"status": "allowed"}), "did not say"),
        (http(201, JSON, {"status": {"allowed": "yes"}}), "did not say"),
        (http(201, JSON, []), "could not be looked at"),  # type: ignore[arg-type]
    ],
)
def test_a_look_that_fails_is_unknown_and_not_missing(answer: bytes, why: str, run, server: FaultServer):
    server.play(api(may=lambda *_: answer, limit_ranges=answer))
    result = run()
    assert result.exit_code == 0, "the create was accepted"
    assert "unknown  may list pods in tasks: " in result.stdout
    assert why in result.stdout
    assert "MISSING" not in result.stdout


TRANSPORT: dict[str, tuple[Script, str]] = {
    "reset": (transport.reset_at_accept, "Unavailable: connection reset (R1)"),
    "silence": (transport.handshake_hangs, "Unavailable: deadline exceeded after 0.5s (R1)"),
    "plain HTTP": (transport.plain_http_peer, "Unavailable: TLS handshake failed (R1)"),
}


@pytest.mark.parametrize("fault", TRANSPORT)
def test_an_api_that_cannot_be_reached(fault: str, run, server: FaultServer):
    script, first_line = TRANSPORT[fault]
    server.play(script)
    result = run(RIDEOUT_CREATE_DEADLINE_S="0.5")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == first_line
    assert "nothing else could be looked at" in result.stdout


def test_a_certificate_that_does_not_verify(run, server: FaultServer, tls_files: TlsFiles):
    stranger = server_context(tls_files.stranger)

    async def script(peer: Peer) -> None:
        await peer.tls(stranger)

    server.play(script)
    found = printed(run("--json"))
    assert found["cause"] == "server certificate does not verify"
    assert found["next"].startswith("the kubeconfig's certificate-authority is not the one")


def test_no_kubeconfig(run, tmp_path: Path):
    found = printed(run("--json", RIDEOUT_KUBECONFIG=str(tmp_path / "none")))
    assert (found["disposition"], found["cause"]) == ("Rejected", "no usable credentials")
    assert found["next"].startswith("set RIDEOUT_KUBECONFIG")


@pytest.mark.parametrize("content", [None, "{", "[]", "7"])
def test_a_spec_that_cannot_be_used_is_one_line_and_exits_64(content: str | None, run, tmp_path: Path):
    spec = tmp_path / "spec.json"
    if content is not None:
        spec.write_text(content)
    result = run("--spec", str(spec))
    assert result.exit_code == 64
    assert len(result.stderr.strip().splitlines()) == 1
    assert str(spec) in result.stderr


def test_a_spec_without_a_command_is_refused_before_sending(run, server: FaultServer, tmp_path: Path):
    spec = tmp_path / "spec.json"
    spec.write_text("{}")
    server.play(api())
    found = printed(run("--json", "--spec", str(spec)))
    assert found["cause"] == "spec refused by the client"
    assert not [request for request in server.posts if "/pods" in request.path]


def test_help_says_when_it_exits_0():
    text = CliRunner().invoke(app, ["preflight", "--help"]).output
    assert "Exits 0" in text
