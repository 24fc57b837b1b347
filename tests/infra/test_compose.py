"""The compose files are valid by the compose specification, and their names, ports and secrets agree."""

import json
import re
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

Compose = dict[str, Any]


@pytest.fixture(scope="module")
def compose(documents: Callable[[str], list[Any]]) -> Compose:
    return dict(documents("compose/compose.yaml")[0])


@pytest.fixture(scope="module")
def schema() -> jsonschema.protocols.Validator:
    """The specification's own schema, which check-jsonschema ships."""
    pytest.importorskip("check_jsonschema", reason="pip install 'starpo[test]'")
    text = (files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text()
    return jsonschema.Draft202012Validator(json.loads(text))


@pytest.mark.parametrize("name", ["compose.yaml", "compose.gpu.yaml"])
def test_compose_files_are_valid(name: str, schema: Any, documents: Callable[[str], list[Any]]) -> None:
    assert [error.message for error in schema.iter_errors(documents(f"compose/{name}")[0])] == []


def test_ports_are_published_on_loopback_alone(compose: Compose) -> None:
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_awaited_conditions_are_reachable(compose: Compose, root: Path) -> None:
    services = compose["services"]
    own_check = "HEALTHCHECK" in (root / "infra/images/cpu.Dockerfile").read_text()
    adopted = set()
    for service in services.values():
        for name, wait in service.get("depends_on", {}).items():
            check = services[name].get("healthcheck", {} if own_check else None)
            if wait["condition"] == "service_healthy":
                assert check is not None
                assert not check.get("disable")
            else:
                assert wait["condition"] == "service_completed_successfully"
                assert services[name]["restart"] == "no"
                adopted.add(name)
    # `up --wait` treats the end of a service as a failure, unless another service waits for it
    assert adopted == {name for name, service in services.items() if service["restart"] == "no"}


def test_addresses_name_services_and_their_ports(compose: Compose, root: Path) -> None:
    start = (root / "infra/images/start").read_text()
    listens = {"postgres": "5432", "s3": "9000"}
    listens["server"] = re.findall(r"prefect server start --host \S+ --port (\d+)", start)[0]
    listens["ray-head"] = re.findall(r"ray start --head --port=(\d+)", start)[0]
    environment = compose["x-environment"]
    addresses = [environment["RAY_ADDRESS"]]
    addresses += [re.sub(r"^http://|/api$", "", environment[name]) for name in ("PREFECT_API_URL", "AWS_ENDPOINT_URL")]
    server = compose["services"]["server"]["environment"]
    addresses += [f"{server['PREFECT_SERVER_DATABASE_HOST']}:{server['PREFECT_SERVER_DATABASE_PORT']}"]
    assert {tuple(address.split(":")) for address in addresses} == set(listens.items())
    assert compose["services"]["s3"]["environment"]["RUSTFS_ADDRESS"].endswith(f":{listens['s3']}")


def test_prefect_reads_these_database_variables(compose: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import Settings

    for name, value in compose["services"]["server"]["environment"].items():
        monkeypatch.setenv(name, "s3cret" if "PASSWORD" in name else value)
    monkeypatch.delenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", raising=False)
    monkeypatch.delenv("PREFECT_API_DATABASE_CONNECTION_URL", raising=False)
    url = Settings().server.database.connection_url
    assert url is not None
    assert url.get_secret_value() == "postgresql+asyncpg://prefect:s3cret@postgres:5432/prefect"


def test_commands_are_roles_of_the_image(compose: Compose, roles: set[str]) -> None:
    ours = {name: s for name, s in compose["services"].items() if str(s["image"]).startswith("starpo:")}
    assert set(ours) == {"server", "setup", "ray-head", "ray-worker", "worker", "gpu-worker"}
    assert {tuple(service["command"]) for service in ours.values()} <= {(role,) for role in roles}


def test_images_pinned_and_of_this_release(compose: Compose, version: str, documents: Any) -> None:
    gpu = documents("compose/compose.gpu.yaml")[0]["services"]
    images = [service["image"] for file in (compose["services"], gpu) for service in file.values()]
    assert {image for image in images if image.startswith("starpo:")} == {
        f"starpo:{version}-cpu",
        f"starpo:{version}-gpu",
    }
    assert [image for image in images if not re.search(r":v?\d+\.\d+", image)] == []


@pytest.mark.parametrize(("name", "num_nodes", "num_gpus"), [("compose.yaml", 2, 0), ("compose.gpu.yaml", 1, 1)])
def test_configured_actors_have_room(
    name: str, num_nodes: int, num_gpus: int, compose: Compose, documents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many Ray workers as the README's command starts; with the file for GPUs, each actor reserves a GPU."""
    from starpo.ragen.agents.rollout.pools.ray_cluster import check_room
    from starpo.ragen.config.ray_runtime import RayRuntime

    cpus = float(compose["services"]["ray-worker"]["environment"]["RAY_CPUS"])
    nodes = [{"Alive": True, "Resources": {"CPU": cpus, "GPU": num_gpus}}] * num_nodes
    for service in ("worker", "gpu-worker"):
        changed = documents(f"compose/{name}")[0]["services"][service]["environment"]
        for variable, value in {**compose["services"][service]["environment"], **changed}.items():
            if variable.startswith("STARPO_RAY_"):
                monkeypatch.setenv(variable, re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", value))
        runtime = RayRuntime()
        assert runtime.actors is not None
        check_room(nodes, runtime.actor, runtime.actors, "actors")
        assert runtime.actor.get("GPU", 0) == num_gpus


def test_secrets_match_file_and_made_once(root: Path, tmp_path: Path) -> None:
    text = (root / "infra/compose/compose.yaml").read_text()
    required = set(re.findall(r"\$\{(\w+):\?run infra/compose/secrets first\}", text))
    named = set(re.findall(r"\$\{(\w+)", text)) - required
    assert named == {"STARPO_S3_PORT", "STARPO_PREFECT_PORT", "STARPO_RAY_PORT", "STARPO_RAY_ACTORS"}
    program, made = root / "infra/compose/secrets", tmp_path / "secrets.env"
    subprocess.run([program, made], check=True, capture_output=True)
    secrets = dict(line.split("=", 1) for line in made.read_text().splitlines())
    assert set(secrets) == required
    assert len(set(secrets.values())) == len(secrets)
    assert {len(value) for value in secrets.values()} == {48}
    assert made.stat().st_mode & 0o077 == 0
    before = made.read_text()
    subprocess.run([program, made], check=True)
    assert made.read_text() == before


def test_smoke_test_removes_its_services(
    root: Path, tmp_path: Path, stubs: Callable[..., tuple[Path, Path]], bare: dict[str, str]
) -> None:
    """Runs in a copy of the folder, with a stand-in for `docker` that logs its calls."""
    folder = tmp_path / "compose"
    folder.mkdir()
    for name in ("smoke", "secrets"):
        (folder / name).write_bytes((root / "infra/compose" / name).read_bytes())
        (folder / name).chmod(0o755)
    programs, log = stubs(docker='[[ "$*" != *"starpo verify"* ]] || exit "${VERIFY_CODE:-0}"')
    environment = {**bare, "PATH": f"{programs}:{bare['PATH']}"}
    for code, message in ((0, "smoke test passed"), (3, "smoke test failed")):
        log.write_text("")
        done = subprocess.run(
            [folder / "smoke"], env={**environment, "VERIFY_CODE": str(code)}, capture_output=True, text=True
        )
        assert done.returncode == code
        assert message in done.stdout + done.stderr
        calls = log.read_text().splitlines()
        assert all(call.startswith("docker compose --project-name starpo-smoke ") for call in calls)
        assert "up --build --detach --wait" in calls[0]
        assert calls[-1].endswith("down --volumes --remove-orphans")
        assert any("logs" in call for call in calls) == (code != 0)
