"""The manifests are valid by Kubernetes' own schemas, and their names, ports and secrets agree."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Manifest = dict[str, Any]

RELEASES = ["1.31", "1.37"]
# KubeRay's API, ray.io/v1 (ray-operator/apis/ray/v1/raycluster_types.go); its pods are those of Kubernetes.
RAY_CLUSTER = {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
RAY_HEAD = {"rayStartParams", "template"}
RAY_WORKERS = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}


@pytest.fixture(scope="module")
def manifests(documents: Callable[[str], list[Any]]) -> list[Manifest]:
    resources = documents("kubernetes/kustomization.yaml")[0]["resources"]
    return [document for name in resources for document in documents(f"kubernetes/{name}")]


@pytest.fixture(scope="module")
def cluster(manifests: list[Manifest]) -> Manifest:
    return next(manifest for manifest in manifests if manifest["kind"] == "RayCluster")


def _validate(manifest: Manifest, release: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install 'starpo[test]'").validate
    validate(manifest, release, strict=True)


def _groups(cluster: Manifest) -> list[Manifest]:
    return [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]


def _pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for manifest in manifests:
        if manifest["kind"] == "RayCluster":
            yield from (("ray", group["template"]["spec"]) for group in _groups(manifest))
        elif "template" in manifest.get("spec", {}):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


@pytest.mark.parametrize("release", RELEASES)
def test_manifests_are_valid(manifests: list[Manifest], release: str) -> None:
    for manifest in manifests:
        if manifest["kind"] != "RayCluster":
            _validate(manifest, release)


@pytest.mark.parametrize("release", RELEASES)
def test_ray_cluster_has_kuberay_fields(cluster: Manifest, release: str) -> None:
    assert cluster["apiVersion"] == "ray.io/v1"
    assert set(cluster["spec"]) == RAY_CLUSTER
    assert set(cluster["spec"]["headGroupSpec"]) == RAY_HEAD
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert set(group) == RAY_WORKERS
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in _groups(cluster):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, "spec": group["template"]["spec"]}
        _validate(pod, release)


def test_workers_can_show_their_token(cluster: Manifest) -> None:
    """KubeRay's init container gets the `env` of the Ray container, but not its `envFrom`."""
    for group in cluster["spec"]["workerGroupSpecs"]:
        [container] = group["template"]["spec"]["containers"]
        assert {entry["name"] for entry in container["env"]} == {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}


def test_ray_knows_its_start_parameters(cluster: Manifest, commands_of_ray: str) -> None:
    options = set(re.findall(r'"--([a-z-]+)"', commands_of_ray))
    for group in _groups(cluster):
        assert set(group["rayStartParams"]) <= options


def test_every_file_applied_in_namespace(root: Path, manifests: list[Manifest], documents: Any) -> None:
    named = documents("kubernetes/kustomization.yaml")[0]["resources"]
    there = {path.name for path in (root / "infra/kubernetes").glob("*.yaml")} - {"kustomization.yaml"}
    assert (set(named), len(named)) == (there, len(there))
    assert manifests[0]["kind"] == "Namespace"
    name = manifests[0]["metadata"]["name"]
    assert {manifest["metadata"]["namespace"] for manifest in manifests[1:]} == {name}


def test_secrets_and_settings_are_references(root: Path, manifests: list[Manifest]) -> None:
    kinds = {manifest["kind"] for manifest in manifests}
    assert "Secret" not in kinds
    settings = {m["metadata"]["name"] for m in manifests if m["kind"] == "ConfigMap"}
    secrets: dict[str, set[str]] = {}
    for _, pod in _pods(manifests):
        for container in pod["containers"]:
            for source in container.get("envFrom", []):
                if "configMapRef" in source:
                    assert source["configMapRef"]["name"] in settings
                else:
                    secrets.setdefault(source["secretRef"]["name"], set())
            for variable in container.get("env", []):
                reference = variable.get("valueFrom", {})
                if "configMapKeyRef" in reference:
                    assert reference["configMapKeyRef"]["name"] in settings
                elif "secretKeyRef" in reference:
                    named = reference["secretKeyRef"]
                    secrets.setdefault(named["name"], set()).add(named["key"])
                else:
                    assert not re.search("PASSWORD|SECRET|TOKEN", variable["name"])
    assert secrets == {"starpo-postgres": {"POSTGRES_PASSWORD"}, "starpo-runtime": {"RAY_AUTH_TOKEN"}}
    readme = (root / "infra/kubernetes/README.md").read_text()
    for name in secrets:
        assert f"create secret generic {name}" in readme
    for key in ("POSTGRES_PASSWORD", "RAY_AUTH_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert f"--from-literal={key}=" in readme


def test_services_select_pods_that_listen(manifests: list[Manifest]) -> None:
    pods = {
        tuple(m["spec"]["template"]["metadata"]["labels"].items()): m["spec"]["template"]["spec"]
        for m in manifests
        if "template" in m.get("spec", {})
    }
    services = {m["metadata"]["name"]: m for m in manifests if m["kind"] == "Service"}
    for service in services.values():
        pod = pods[tuple(service["spec"]["selector"].items())]
        ports = {port["name"]: port["containerPort"] for c in pod["containers"] for port in c.get("ports", [])}
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]


def test_addresses_name_services(manifests: list[Manifest], cluster: Manifest) -> None:
    services = {m["metadata"]["name"]: m["spec"]["ports"][0]["port"] for m in manifests if m["kind"] == "Service"}
    services[f"{cluster['metadata']['name']}-head-svc"] = 6379  # created by KubeRay
    settings = next(m for m in manifests if m["kind"] == "ConfigMap")["data"]
    environment = {
        variable["name"]: variable.get("value")
        for _, pod in _pods(manifests)
        for container in pod["containers"]
        for variable in container.get("env", [])
    }
    for address in (
        settings["PREFECT_API_URL"].removeprefix("http://").removesuffix("/api"),
        environment["RAY_ADDRESS"],
        f"{environment['PREFECT_SERVER_DATABASE_HOST']}:{environment['PREFECT_SERVER_DATABASE_PORT']}",
    ):
        host, port = address.split(":")
        assert services[host] == int(port)


def test_configured_actors_have_room(manifests: list[Manifest], cluster: Manifest) -> None:
    from starpo.ragen.agents.rollout.pools.ray_cluster import check_room
    from starpo.ragen.config.ray_runtime import RayRuntime

    settings = next(m for m in manifests if m["kind"] == "ConfigMap")["data"]
    nodes = [
        {
            "Alive": True,
            "Resources": {"CPU": float(g["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])},
        }
        for g in cluster["spec"]["workerGroupSpecs"]
        for _ in range(g["replicas"])
    ]
    check_room(nodes, RayRuntime().actor, int(settings["STARPO_RAY_ACTORS"]), "actors")


def test_pods_have_minimal_rights(manifests: list[Manifest], version: str, roles: set[str]) -> None:
    pods = list(_pods(manifests))
    assert len(pods) == 8
    for name, pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]
            assert container["image"] in (f"starpo:{version}-cpu", f"starpo:{version}-gpu", "postgres:17.6-bookworm")
            if "args" in container:
                assert set(container["args"]) <= roles
            mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
            assert mounted == {volume["name"] for volume in pod.get("volumes", [])} or name == "postgres"
