"""The HTTP API: submitters, operators, agents. Errors are problem documents, bodies are bounded.

- `problems`: every error as an RFC 9457 document
- `services`: what handlers work with; tokens of submitters and operators; the bound on the database
- `submissions`: what may be submitted · `submitters`: runs · `operators`: tasks, outage, health, metrics
- `actions`: clear, cancel, pause, resume
- `agents`: RUNNING, heartbeat, finished; the only place that says `should_terminate` (R14)
"""

from fastapi import FastAPI

from dispatcher.api import actions, agents, operators, problems, submitters
from dispatcher.api.services import Services

__all__ = ["Services", "create_app"]

MAX_BODY = 1024 * 1024


def create_app(services: Services) -> FastAPI:
    """The application of one replica."""
    app = FastAPI(title="rideout dispatcher", max_body_size=MAX_BODY, redirect_slashes=False, redoc_url=None)
    app.state.services = services
    problems.install(app)
    for router in (submitters.router, operators.router, actions.router, agents.router):
        app.include_router(router)
    return app
