"""k8s/: what an operator applies and a testbed applies once a lane. Least authority, fail-closed, one LimitRange."""

import base64
from pathlib import Path

import pytest
import yaml

from chaos.errors import ChaosError
from chaos.testbed import manifests
from chaos.testbed.kube import Json


def lane_documents(lane: str = "tick") -> list[Json]:
    return [manifests.for_lane(document, lane) for name in manifests.PER_LANE for document in manifests.documents(name)]


def find(kind: str, name: str | None = None) -> Json:
    (found,) = (
        document
        for document in lane_documents()
        if document["kind"] == kind and (name is None or document["metadata"]["name"] == name)
    )
    return found


def test_a_lane_gets_its_own_namespace_and_keeps_the_dispatchers():
    namespaces = {d["metadata"]["name"]: d for d in lane_documents() if d["kind"] == "Namespace"}
    assert set(namespaces) == {"tasks-tick", "rideout"}
    assert namespaces["tasks-tick"]["metadata"]["labels"] == {"rideout.dev/lane": "tick"}
    inside = {d["metadata"].get("namespace") for d in lane_documents()} - {None}
    assert inside == {"tasks-tick", "rideout"}


def test_renaming_leaves_the_files_objects_alone():
    (document, *_) = manifests.documents("00-tasks-namespace.yaml")
    before = yaml.safe_dump(document)
    manifests.for_lane(document, "tick")
    assert yaml.safe_dump(document) == before


def test_the_tasks_namespace_has_a_limit_range():
    """Without one an etcd outage shows as 403 (LimitRanger's live look-up), which spends the attempt budget."""
    assert find("LimitRange")["metadata"]["namespace"] == "tasks-tick"


def test_R26_the_dispatcher_may_do_what_it_needs_and_nothing_else():
    rules = {rule["resources"][0]: rule for rule in find("Role", "rideout-dispatcher")["rules"]}
    assert set(rules) == {"pods", "limitranges"}
    assert sorted(rules["pods"]["verbs"]) == ["create", "delete", "get", "list", "watch"]
    assert rules["limitranges"]["verbs"] == ["list"]
    assert all(rule["apiGroups"] == [""] for rule in rules.values())


def test_no_manifest_gives_anything_cluster_wide():
    kinds = {document["kind"] for document in lane_documents()}
    assert kinds == {"Namespace", "LimitRange", "ServiceAccount", "Role", "RoleBinding"}


def test_the_webhook_is_fail_closed_and_sees_the_lanes_pods_only(tmp_path: Path):
    (tmp_path / "ca.crt").write_bytes(b"authority")
    (hook,) = manifests.webhook(4711, tmp_path / "ca.crt", 3)["webhooks"]
    assert hook["failurePolicy"] == "Fail"
    assert hook["timeoutSeconds"] == 3
    assert hook["clientConfig"] == {
        "url": "https://127.0.0.1:4711/validate",
        "caBundle": base64.b64encode(b"authority").decode(),
    }
    (rule,) = hook["rules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
    assert hook["namespaceSelector"]["matchExpressions"] == [{"key": "rideout.dev/lane", "operator": "Exists"}]


def test_what_an_operator_applies_holds_nothing_that_is_meant_to_break():
    """`kubectl apply -f k8s/` does not descend into k8s/testbed/."""
    for path in manifests.DIRECTORY.glob("*.yaml"):
        for document in manifests.documents(path.name):
            assert "Webhook" not in document["kind"]
            assert "probe" not in document["metadata"]["name"]


def test_every_manifest_has_a_path():
    paths = [manifests.path_of(document) for document in lane_documents()]
    assert "/api/v1/namespaces/tasks-tick" in paths
    assert "/api/v1/namespaces/tasks-tick/limitranges/rideout" in paths
    with pytest.raises(ChaosError, match="Deployment is no kind that the testbed applies"):
        manifests.path_of({"kind": "Deployment", "metadata": {"name": "x"}})
