"""The audit policy: the apiserver's own record of which creates it committed, the suite's second witness."""

import json
from pathlib import Path
from typing import Any

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # Request: the pod as it was asked for, with its labels and epoch; the answer adds nothing that is judged.
        {"level": "Request", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods"]}]},
        {
            "level": "Metadata",
            "verbs": ["delete", "deletecollection"],
            "resources": [{"group": "", "resources": ["pods"]}],
        },
        {"level": "None"},
    ],
}


def write_policy(path: Path) -> Path:
    path.write_text(json.dumps(POLICY, indent=1))
    return path
