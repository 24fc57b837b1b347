"""What excuses a difference, and what does not."""

from dataclasses import replace

import pytest

from starpo.ragen.runs.verify.origin import different_origin, mismatch
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.runs.work import Work
from starpo.schemas.manifest import Manifest, Stage

PROVENANCE = {
    "versions": {"torch": "2.13.0", "numpy": "2.4.6", "starpo": "0.1.0", "prefect": "3.8.8"},
    "hardware": {"machine": "x86_64", "cpu": "A", "instructions": "avx2 amx_bf16"},
    "threads": {"torch": 2, "cpus": 2},
}


def manifest(provenance=PROVENANCE, **fields) -> Manifest:
    content = {"settings": {"keep": 0.5, "deep": {"a": 1}}, "inputs": {"turns": "t"}, "seed": 1} | fields
    return Manifest(
        kind="turns", key="k", stage=Stage(name="rollout", version=1), dataset_version=1, num_rows=1, files=(),
        content_digest="0" * 64, provenance=provenance, **content,
    )  # fmt: skip


def changed(section: str, name: str, value) -> Manifest:
    return manifest({**PROVENANCE, section: {**PROVENANCE[section], name: value}})


@pytest.mark.parametrize(
    ("section", "name", "value", "description"),
    [
        ("versions", "torch", "2.12.0", "torch 2.12.0 (here 2.13.0)"),
        ("hardware", "cpu", "B", "cpu B (here A)"),
        ("hardware", "instructions", "avx2", "instructions avx2 (here avx2 amx_bf16)"),
        ("threads", "torch", 4, "threads 4 (here 2)"),
    ],
)
def test_library_or_hardware_change_excuses(section, name, value, description):
    assert different_origin(changed(section, name, value), manifest(), is_from_torch=True) == description


@pytest.mark.parametrize(("section", "name"), [("versions", "starpo"), ("versions", "prefect"), ("threads", "cpus")])
def test_what_moves_no_bit_excuses_nothing(section, name):
    assert different_origin(changed(section, name, "other"), manifest(), is_from_torch=True) == ""


def test_processor_without_torch_excuses_nothing():
    assert different_origin(changed("hardware", "cpu", "B"), manifest(), is_from_torch=False) == ""
    assert different_origin(manifest({}), manifest(), is_from_torch=True) == ""


def work(version: int = 1, **fields) -> Work:
    content = {"settings": {"keep": 0.5, "deep": {"a": 1}}, "inputs": {"turns": "t"}, "seed": 1} | fields
    return Work(Stage(name="rollout", version=version), (), lambda *_: iter(()), **content)


def test_mismatch_names_each_difference():
    verdict, detail = mismatch(manifest(settings={"keep": 1.0, "deep": {"a": 1}}), work(inputs={"turns": "u"}))
    assert verdict is Verdict.DIFFERENT
    assert "settings.keep is 1.0, expected 0.5" in detail
    assert "inputs.turns is 't', expected 'u'" in detail
    assert mismatch(manifest(), replace(work(), stage=Stage(name="reward", version=1)))[0] is Verdict.DIFFERENT


def test_unknown_settings_give_not_shown():
    stored = {"keep": 0.5, "deep": {"a": 1, "b": 2}}
    verdict, detail = mismatch(manifest(settings=stored), work())
    assert verdict is Verdict.NOT_SHOWN
    assert "settings.deep.b" in detail
    assert mismatch(manifest(settings=stored), work(seed=2))[0] is Verdict.DIFFERENT  # what both sides have must agree


def test_other_version_compares_inputs_and_iteration():
    assert mismatch(manifest(), work(version=2, settings={"keep": 1.0}))[0] is Verdict.NOT_SHOWN
    assert mismatch(manifest(), work(version=2, inputs={"turns": "u"}))[0] is Verdict.DIFFERENT
    assert mismatch(manifest(settings={"iteration": 1}), work(2, settings={"iteration": 2}))[0] is Verdict.DIFFERENT


def test_other_key_means_other_code():
    expected = "it was made with other code than this release would use"
    assert mismatch(manifest(), work()) == (Verdict.NOT_SHOWN, expected)


def test_has_weights_is_not_compared():
    stored = manifest(settings={"keep": 0.5, "deep": {"a": 1}, "has_weights": True})
    assert mismatch(stored, work(settings={**stored.settings, "has_weights": False}))[0] is Verdict.NOT_SHOWN


def test_mismatch_hides_secrets_and_cuts_text():
    stored = manifest(settings={"keep": "s3://me:pass-word@bucket", "deep": {"a": "x" * 1000}})
    _, detail = mismatch(stored, work())
    assert "settings.keep is 's3://***@bucket', expected 0.5" in detail
    assert "... (1,002 characters), expected 1" in detail
