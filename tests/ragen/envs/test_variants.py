"""Named variants: those of the paper, with its settings, loadable as configuration."""

from importlib.util import find_spec, module_from_spec

from starpo.ragen.core.registry import ENVIRONMENTS, SUITES
from starpo.ragen.envs import make, variants
from starpo.ragen.envs.variants import OTHERS, VARIANTS


def test_the_papers_variants_are_there_each_with_one_line():
    assert {name for name, variant in VARIANTS.items() if variant.type not in SUITES} >= {
        *("Bandit", "BanditHeldOut", "BanditRev"),
        *("Sokoban", "SokobanNewVocab", "SokobanLarge", "SokobanCoord"),
        *("FrozenLake", "FrozenLakeNoSlip", "FrozenLakeCoord"),
        *("Game2048", "Game2048Goal64", "Rubik", "RubikOneTurn", "RubikThreeTurns", "Sudoku", "Sudoku9x9"),
        *("Countdown", "CountdownSmall", "CountdownSix"),
        "MetaMathQA",
        *("SearchQA", "SearchQAOneHop", "SearchQATools"),
        *("WebShop", "WebShopHidden", "WebShopText"),
    }
    assert all(len(variant.description.splitlines()) == 1 for variant in VARIANTS.values())
    assert len({str(variant.settings) for variant in VARIANTS.values()}) == len(VARIANTS)


def test_every_environment_is_listed_once():
    assert {one.type for one in VARIANTS.values()} | {one.type for one in OTHERS.values()} == set(ENVIRONMENTS)
    assert not {one.type for one in VARIANTS.values()} & {one.type for one in OTHERS.values()}


def test_an_environment_without_variants_is_listed_with_its_default_settings(monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "unlisted", "unlisted:Unlisted")
    spec = find_spec(variants.__name__)
    read_again = module_from_spec(spec)
    spec.loader.exec_module(read_again)
    assert read_again.VARIANTS.keys() - VARIANTS.keys() == {"unlisted"}
    assert read_again.variant("unlisted").type == "unlisted"


def test_held_out_names_never_meet_training_names():
    def digests(variant):
        environment = make(VARIANTS[variant].settings)
        for seed in range(200):
            environment.reset(seed=seed)
            yield environment.state_digest()

    assert not set(digests("Bandit")) & set(digests("BanditHeldOut"))
