"""Named variants: those of the paper, with its settings, loadable as configuration."""

from importlib.util import find_spec, module_from_spec

from starpo.ragen.core.registry import ENVIRONMENTS
from starpo.ragen.envs import variants
from starpo.ragen.envs.variants import OTHERS, VARIANTS


def test_variants_have_unique_lines_and_settings():
    assert all(len(variant.description.splitlines()) == 1 for variant in VARIANTS.values())
    assert len({str(variant.settings) for variant in VARIANTS.values()}) == len(VARIANTS)


def test_every_environment_is_listed_once():
    assert {one.type for one in VARIANTS.values()} | {one.type for one in OTHERS.values()} == set(ENVIRONMENTS)
    assert not {one.type for one in VARIANTS.values()} & {one.type for one in OTHERS.values()}


def test_environment_without_variants_lists_defaults(monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "unlisted", "unlisted:Unlisted")
    spec = find_spec(variants.__name__)
    read_again = module_from_spec(spec)
    spec.loader.exec_module(read_again)
    assert read_again.VARIANTS.keys() - VARIANTS.keys() == {"unlisted"}
    assert read_again.variant("unlisted").type == "unlisted"
