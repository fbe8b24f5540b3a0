"""The fail-closed admission webhook of the lanes: `python -m chaos.testbed.webhook`.

It answers AdmissionReviews over TLS (the apiserver reaches it through Toxiproxy, proxy "webhook") and behaves as its
*mode* says. The mode is a JSON object, read with `GET` and replaced with `PUT` at `http://127.0.0.1:<admin>/mode`, and
kept in a file, so that a webhook which was killed comes back in the mode it had:

    {"mode": "admit"}                                        every pod (the default)
    {"mode": "deny", "label": "k=v", "code": 403,            pods with that label (all when absent), as the apiserver
     "reason": "Forbidden", "message": "…"}                  lets a webhook deny: any code >= 400, reason optional
    {"mode": "slow", "delay_s": 12.0}                        admits, after a delay (beyond timeoutSeconds: unreachable)
    {"mode": "garbage", "status": 200}                       an HTML page with that status instead of a review
    {"mode": "certificate", "certificate": "…", "key": "…"}  admits, behind another server certificate (paths of PEM
                                                             files); connections that are open keep the one they saw
"""

import argparse
import asyncio
import json
import signal
import ssl
from pathlib import Path
from typing import Any

from aiohttp import web

MODES: dict[str, dict[str, type | tuple[type, ...]]] = {
    "admit": {},
    "deny": {"label": str, "code": int, "reason": str, "message": str},
    "slow": {"delay_s": (int, float)},
    "garbage": {"status": int},
    "certificate": {"certificate": str, "key": str},
}


def checked(mode: Any) -> dict[str, Any]:
    """The mode itself if it is one. Raises ValueError with a line for a person."""
    if not isinstance(mode, dict) or mode.get("mode") not in MODES:
        raise ValueError(f"a mode is an object whose `mode` is one of {', '.join(MODES)}")
    allowed = MODES[mode["mode"]]
    for key, value in mode.items():
        if key != "mode" and (key not in allowed or not isinstance(value, allowed[key])):
            raise ValueError(f"{mode['mode']} takes {', '.join(allowed) or 'nothing'}, not {key}={value!r}")
    if mode["mode"] == "deny" and "=" not in mode.get("label", "="):
        raise ValueError("label is written key=value")
    if mode["mode"] == "certificate" and not {"certificate", "key"} <= mode.keys():
        raise ValueError("certificate takes the paths of a certificate and of its key")
    return mode


def review(mode: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """The AdmissionReview that answers `request`, an AdmissionReview's `request` object (admission.k8s.io/v1)."""
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    labels = ((request.get("object") or {}).get("metadata") or {}).get("labels") or {}
    key, _, value = mode.get("label", "").partition("=")
    if mode["mode"] == "deny" and (not key or labels.get(key) == value):
        status = {"code": mode.get("code", 403), "message": mode.get("message", "denied by the chaos suite")}
        if "reason" in mode:
            status["reason"] = mode["reason"]
        response |= {"allowed": False, "status": status}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


class Gate:
    """The webhook's two HTTP applications around one mode, and the TLS context that shows its certificate."""

    def __init__(self, mode_file: Path, certificate: Path, key: Path) -> None:
        self._file = mode_file
        self._own = {"certificate": str(certificate), "key": str(key)}
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.seen = 0
        self.mode: dict[str, Any] = {"mode": "admit"}
        if mode_file.exists():
            self.mode = checked(json.loads(mode_file.read_text()))
        self._show(self.mode)

    def _show(self, mode: dict[str, Any]) -> None:
        """Show the certificate that goes with a mode to whoever connects from now on. Raises OSError, ssl.SSLError."""
        shown = mode if mode["mode"] == "certificate" else self._own
        self.tls.load_cert_chain(shown["certificate"], shown["key"])

    def validating(self) -> web.Application:
        app = web.Application(client_max_size=8 * 1024**2)
        app.router.add_post("/validate", self._validate)
        return app

    def admin(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/mode", self._read)
        app.router.add_put("/mode", self._replace)
        return app

    async def _validate(self, request: web.Request) -> web.Response:
        self.seen += 1
        mode = self.mode
        if mode["mode"] == "garbage":
            page = "<html><body><h1>Welcome to nginx!</h1></body></html>"
            return web.Response(status=mode.get("status", 200), text=page, content_type="text/html")
        asked = json.loads(await request.read())
        if mode["mode"] == "slow":
            await asyncio.sleep(mode.get("delay_s", 12.0))
        return web.json_response(review(mode, asked["request"]))

    async def _read(self, _: web.Request) -> web.Response:
        return web.json_response({**self.mode, "seen": self.seen})

    async def _replace(self, request: web.Request) -> web.Response:
        try:
            mode = checked(json.loads(await request.read()))
            self._show(mode)
        except (ValueError, OSError) as error:  # ssl.SSLError is an OSError
            return web.json_response({"error": str(error)}, status=400)
        temporary = self._file.with_suffix(".new")
        temporary.write_text(json.dumps(mode))
        temporary.replace(self._file)
        self.mode = mode
        return web.json_response(mode)


async def serve(listen: int, admin: int, certificate: Path, key: Path, mode_file: Path) -> None:
    """Serve both ports on 127.0.0.1 until SIGTERM or SIGINT."""
    gate, stop = Gate(mode_file, certificate, key), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runners = [web.AppRunner(app, access_log=None, shutdown_timeout=1) for app in (gate.validating(), gate.admin())]
    for runner, port, context in zip(runners, (listen, admin), (gate.tls, None), strict=True):
        await runner.setup()
        # A backlog for the herd at a recovery: Go dials a connection a concurrent call.
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context, backlog=1024).start()
    print(f"webhook on 127.0.0.1:{listen}, admin on 127.0.0.1:{admin}, mode {gate.mode}", flush=True)
    await stop.wait()
    for runner in runners:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chaos.testbed.webhook", description=__doc__)
    parser.add_argument("--listen", type=int, required=True, help="TLS port for the apiserver")
    parser.add_argument("--admin", type=int, required=True, help="plain port for the suite")
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--mode-file", type=Path, required=True)
    given = parser.parse_args()
    asyncio.run(serve(given.listen, given.admin, given.certificate, given.key, given.mode_file))


if __name__ == "__main__":
    main()
