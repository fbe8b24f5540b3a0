"""The HTTP API: submitters, operators, agents. Errors are problem documents, bodies are bounded.

- `problems`: every error as an RFC 9457 document
- `bodies`: the bound on what is read, in bytes and in time
- `services`: what handlers work with; tokens of submitters and operators; the bound on the database
- `submissions`: what may be submitted · `submitters`: runs · `operators`: tasks, outage, health, metrics
- `agents`: RUNNING, heartbeat, finished; the only place that says `should_terminate` (R14)
"""

from fastapi import FastAPI

from dispatcher.api import actions, agents, operators, problems, submitters
from dispatcher.api.bodies import BoundedBody
from dispatcher.api.services import Services

__all__ = ["Services", "create_app"]

MAX_BODY = 1024 * 1024
BODY_WITHIN_S = 10.0


def create_app(services: Services, *, body_within_s: float = BODY_WITHIN_S) -> FastAPI:
    """The application of one replica."""
    app = FastAPI(title="rideout dispatcher", redirect_slashes=False, redoc_url=None)
    app.state.services = services
    app.add_middleware(BoundedBody, max_bytes=MAX_BODY, within_s=body_within_s)
    problems.install(app)
    for router in (submitters.router, operators.router, actions.router, agents.router):
        app.include_router(router)
    return app
