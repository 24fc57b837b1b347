import json
import re

import pytest

from starpo.ragen.config.load import apply_overrides, load_config, parse_override, parse_overrides
from starpo.ragen.core.errors import ConfigError

BASE = """
iterations = 7

[environment]
type = "frozen_lake"
size = 5
slip = 0.0

[filter]
keep = 0.5
metric = "mean"

[update.optimiser]
type = "muon"
learning_rate = 3e-4

[evaluation.variants.Slippery]
type = "frozen_lake"
"""


@pytest.fixture
def presets(tmp_path):
    """`presets({"name": "toml text", ...})`: folder with these files; `base` is always among them."""

    def write(files):
        for name, text in {"base": BASE, **files}.items():
            path = tmp_path / f"{name}.toml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def _load(folder, name="run", overrides=None):
    return load_config(folder / f"{name}.toml", [folder], overrides or {})


def _message(folder, name="run", overrides=None) -> str:
    with pytest.raises(ConfigError) as caught:
        _load(folder, name, overrides)
    return str(caught.value).removeprefix(f"{folder / name}.toml: ").removeprefix(f"{name}: ")


def test_byte_order_mark_is_ignored(presets, tmp_path):
    folder = presets({"run": '\ufeffextends = ["base"]\n'})
    prompt = tmp_path / "mine.txt"
    prompt.write_text("\ufeffBe brief.", encoding="utf-8")
    config = _load(folder, overrides={"agent.system_prompt": str(prompt)})
    assert (config.iterations, config.agent.system_prompt) == (7, "Be brief.")


def test_tables_are_merged_deep(presets):
    config = _load(presets({"run": 'extends = ["base"]\n[filter]\nkeep = 0.25\n[environment]\nsize = 6'}))
    assert (config.filter.keep, config.filter.metric) == (0.25, "mean")
    assert (config.environment.type, config.environment.size, config.environment.slip) == ("frozen_lake", 6, 0.0)
    assert config.iterations == 7


def test_extends_merge_left_to_right(presets):
    files = {
        "one": "iterations = 1\nonline_k = 1\nseed = 1",
        "two": "iterations = 2\nonline_k = 2",
        "run": 'extends = ["base", "one", "two"]\niterations = 3',
    }
    config = _load(presets(files))
    assert (config.iterations, config.online_k, config.seed) == (3, 2, 1)


def test_extends_accepts_relative_path(presets):
    folder = presets({"own/start": "iterations = 9", "own/run": 'extends = ["base", "start.toml"]'})
    assert load_config(folder / "own" / "run.toml", [folder], {}).iterations == 9


def test_changed_alternative_replaces_inherited_one(presets):
    config = _load(presets({"run": 'extends = ["base"]\n[environment]\ntype = "bandit"'}))
    assert config.environment.type == "bandit"  # `size` and `slip`, which a bandit does not have, are dropped


def test_changed_plain_table_type_keeps_settings(presets):
    """An optimiser has a `type` but is one table: its learning rate must not silently fall back to the default."""
    config = _load(presets({"run": 'extends = ["base"]\n[update.optimiser]\ntype = "adamw"'}))
    assert (config.update.optimiser.type, config.update.optimiser.learning_rate) == ("adamw", 3e-4)


def test_empty_table_empties_inherited_one(presets):
    assert set(_load(presets({}), "base").evaluation.variants) == {"Slippery"}
    config = _load(presets({"run": 'extends = ["base"]\n[evaluation]\nvariants = {}'}))
    assert config.evaluation.variants == {}


def test_overrides_come_last(presets):
    overrides = {"filter.keep": 0.75, "evaluation.variants.Large": {"type": "frozen_lake", "size": 8}}
    config = _load(presets({}), "base", overrides)
    assert config.filter.keep == 0.75
    assert config.evaluation.variants["Large"].size == 8
    assert set(config.evaluation.variants) == {"Slippery", "Large"}


def test_overrides_are_order_independent(presets):
    """A changed `type` and its settings are applied together."""
    one = {"environment.names": "held_out", "environment.type": "bandit"}
    other = dict(reversed(one.items()))
    assert _load(presets({}), "base", one) == _load(presets({}), "base", other)


def test_override_inside_overridden_table(presets):
    variant = {"type": "frozen_lake", "size": 8}
    overrides = {"evaluation.variants.Large.size": 9, "evaluation.variants.Large": variant}
    assert _load(presets({}), "base", overrides).evaluation.variants["Large"].size == 9
    assert variant["size"] == 8  # the caller's table is unchanged


def test_apply_overrides_changes_a_configuration(presets):
    config = _load(presets({}), "base")
    changed = apply_overrides(config, {"environment.type": "bandit", "iterations": 3})
    assert (changed.environment.type, changed.iterations, changed.filter) == ("bandit", 3, config.filter)
    assert config.iterations == 7
    assert apply_overrides(config, {}) is config
    with pytest.raises(ConfigError, match=r"the configuration: iterations = -1 \(override\): should be greater"):
        apply_overrides(config, {"iterations": -1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("filter.keep=0.5", ("filter.keep", 0.5)),
        ("update.importance_cap=null", ("update.importance_cap", None)),
        ("filter.strategy=none", ("filter.strategy", "none")),
        ("iterations = 3", ("iterations", 3)),
        ("filter.should_keep_largest=false", ("filter.should_keep_largest", False)),
        ('environment={ type = "bandit" }', ("environment", {"type": "bandit"})),
        ('environment={"type": "bandit"}', ("environment", {"type": "bandit"})),
        ("agent.system_prompt={no json}", ("agent.system_prompt", "{no json}")),
        ('filter.strategy="top_k"', ("filter.strategy", "top_k")),
        ("filter.strategy=top_k", ("filter.strategy", "top_k")),
        ("policy.name_or_path=/a=b", ("policy.name_or_path", "/a=b")),
        ("a=1\nb=2", ("a", "1\nb=2")),  # a single value
        ("a=", ("a", "")),
    ],
)
def test_overrides_of_a_command_line(text, expected):
    path, value = parse_override(text)
    assert (path, value) == expected
    assert type(value) is type(expected[1])


@pytest.mark.parametrize("text", ["filter.keep", "=1", "filter.=1", ".keep=1", ""])
def test_incomplete_override_is_refused(text):
    with pytest.raises(ConfigError, match=re.escape(f"override '{text}': expected PATH=VALUE")):
        parse_override(text)


def test_a_setting_given_twice_is_refused():
    assert parse_overrides(["seed=1", "filter.keep=0.5"]) == {"seed": 1, "filter.keep": 0.5}
    with pytest.raises(ConfigError, match="override seed: set twice, to 1 and to 2; expected one value"):
        parse_overrides(["seed=1", "filter.keep=0.5", "seed = 2"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"seed": 2**63},
            "seed = 9223372036854775808 (override): should be an integer of 64 bits: at least -9223372036854775808, at",
        ),
        ({"filter.keep": 1.5}, "filter.keep = 1.5 (override): should be less than or equal to 1"),
        ({"filter.keep": "half"}, "filter.keep = 'half' (override): should be a valid number"),
        ({"iterations": 1.5}, "iterations = 1.5 (override): should be a valid integer"),
        ({"iterations": True}, "iterations = True (override): should be a valid integer"),
        ({"update.clip_low": float("nan")}, "update.clip_low = nan (override): should be a finite number"),
        (
            {"filter.kep": 0.5},
            "filter.kep = 0.5 (override): no such setting (did you mean 'keep'?); known: keep, keep_c",
        ),
        ({"filtr.keep": 0.5}, "filtr (override): no such setting (did you mean 'filter'?); known: agent, "),
        ({"environment.sise": 3}, "environment.sise = 3 (override): no such setting (did you mean 'size'?); known: "),
        (
            {"evaluation.variants.New": {"type": "bandit", "nams": 1}},
            "evaluation.variants.New.nams = 1 (override): no such setting (did you mean 'names'?); known: ",
        ),
        ({"filter": 3}, "filter = 3 (override): should be a table of settings"),
        (
            {"environment.type": "bandid"},
            "environment (override): type = 'bandid': no such type (did you mean 'bandit'?); known: alfworld, bandit, ",
        ),
        (
            {"evaluation.variants.New.size": 3},
            "evaluation.variants.New (override): `type` is missing; expected one of alfworld, bandit, ",
        ),
        ({"policy.type": "pretrained"}, "policy.name_or_path is missing and has no default"),
        (
            {"filter.strategy": "best"},
            "filter.strategy = 'best' (override): 'best' is not known here; known: min_p, none, top_fraction, top_k, ",
        ),
        ({"filter.metric": "variance"}, "filter.metric = 'variance' (override): should be 'std', 'sample_std', "),
        ({"filter.strategy": "min_p"}, "filter (override): strategy = 'min_p' needs scores >= 0"),
        ({"filter.strategy": "top_k"}, "filter.strategy = 'top_k' needs filter.keep_count"),
        (
            {
                "rollout.group_size": 1,
                "filter.should_drop_zero_variance": False,
                "filter.metric": "entropy_std",
                "filter.strategy": "top_p_linear",
            },
            "filter.metric = 'entropy_std' is 0 in a group of one",
        ),
    ],
)
def test_wrong_setting_names_allowed_values(presets, overrides, message):
    assert _message(presets({}), "base", overrides).startswith(message)


def test_all_wrong_settings_named_with_file(presets):
    files = {
        "middle": 'extends = ["base"]\n[filter]\nkep = 0.5',
        "run": 'extends = ["middle"]\n[rollout]\nnum_groups = 0',
    }
    assert _message(presets(files), overrides={"seed": -1}).splitlines() == [
        "3 settings are wrong:",
        "  seed = -1 (override): should be greater than or equal to 0",
        "  rollout.num_groups = 0 (run.toml): should be greater than or equal to 1",
        "  filter.kep = 0.5 (middle.toml): no such setting (did you mean 'keep'?); known: keep, keep_count, "
        "max_empty_iterations, metric, num_wanted, options, scope, should_drop_zero_variance, should_keep_largest, "
        "strategy",
    ]


def test_contradictory_overrides_are_refused(presets):
    message = "override filter.keep = 0.5: another override sets 'filter' to 3, not a table"
    assert _message(presets({}), "base", {"filter": 3, "filter.keep": 0.5}) == message


def test_a_cycle_is_refused_and_shown(presets):
    files = {"a": 'extends = ["b"]', "b": 'extends = ["a"]', "run": 'extends = ["a"]'}
    with pytest.raises(ConfigError, match=r"extends itself: a\.toml -> b\.toml -> a\.toml; remove one"):
        _load(presets(files))


def test_unknown_preset_suggests_near_names(presets):
    message = _message(presets({"run": 'extends = ["bas"]'}))
    assert "extends 'bas', which is neither a preset nor a file" in message
    assert message.endswith("(did you mean 'base'?); presets: base, run")


@pytest.mark.parametrize("extends", ['"base"', "[1]", "{ base = true }"])
def test_extends_must_be_list_of_names(presets, extends):
    assert "expected a list of names or paths" in _message(presets({"run": f"extends = {extends}"}))


def test_invalid_toml_refused_with_place(presets):
    message = _message(presets({"run": "iterations = 3\nfilter keep = 1"}))
    assert message.startswith("is not TOML: ")
    assert "line 2" in message


def test_a_missing_file_is_refused(presets):
    assert _message(presets({})) == "cannot be read (No such file or directory); expected a TOML file"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"rollout.staleness": 1}, "set update.importance_cap.* or update.ratio_to = 'behaviour'"),
        ({"rollout.staleness": 1, "update.importance_cap": 2.0, "online_k": 2}, "set one of the two, not both"),
        ({"rollout.staleness": 2, "update.importance_cap": 2.0}, "rollout.staleness"),
        ({"rollout.max_attempts": 2}, "set filter.num_wanted to that number"),
        (
            {
                "rollout.max_attempts": 2, "filter.num_wanted": 4, "rollout.staleness": 1,
                "update.ratio_to": "behaviour",
            },
            "whether another attempt is needed is known only after its filter",
        ),
        ({"rollout.max_attempts": 0}, "rollout.max_attempts"),
        ({"filter.num_wanted": 0}, "filter.num_wanted"),
        (
            {
                "policy": {"type": "pretrained", "name_or_path": "x", "fine_tuning": {"matrix_learning_rate": 0.02}},
                "update.learner": "deepspeed", "update.optimiser.type": "adamw",
            },
            "policy.fine_tuning.matrix_learning_rate is Muon's",
        ),
        ({"reward.components": ["format", "format"]}, "names 'format' more than once"),
        ({"reward.components": ["bonus"]}, "'bonus' is not known here; known: agreement, checklist, environment"),
    ],
)  # fmt: skip
def test_settings_that_contradict_others_are_refused(overrides, message) -> None:
    from starpo.flows.presets import preset

    with pytest.raises(ConfigError, match=message):
        preset("smoke", overrides)


def test_unreachable_price_is_refused() -> None:
    """Responses of the preset have at most 64 tokens; by default the first 512 - 128 are free."""
    from starpo.flows.presets import preset

    components = {"reward.components": ["environment", "overlong"]}
    with pytest.raises(ConfigError, match=r"begins after 384 tokens, .* set reward.options.overlong.max_tokens = "):
        preset("smoke", components)
    fitting = {"reward.options": {"overlong": {"max_tokens": 24, "buffer_tokens": 8}}}
    assert preset("smoke", components | fitting).reward.options["overlong"]["max_tokens"] == 24


@pytest.mark.parametrize("where", ["file", "override"])
def test_options_go_with_their_owner(presets, where):
    """As with a table and its `type`: options of another estimator are dropped, those of the same one are merged."""
    folder = presets({
        "run": 'extends = ["base"]\n[update]\nadvantage = "hgpo"\nadvantage_options = { depth = 2 }',
        "same": 'extends = ["run"]\n[update]\nadvantage = "hgpo"\nadvantage_options = { alpha = 2.0 }',
        "other": 'extends = ["run"]\n[update]\nadvantage = "grpo"',
    })  # fmt: skip
    if where == "file":
        same, other = _load(folder, "same").update, _load(folder, "other").update
    else:
        same = _load(folder, "run", {"update.advantage": "hgpo", "update.advantage_options": {"alpha": 2.0}}).update
        other = _load(folder, "run", {"update.advantage": "grpo"}).update
    assert (same.advantage_options["depth"], same.advantage_options["alpha"]) == (2, 2.0)
    assert other.advantage_options == {}
    unnamed = _load(folder, "run", {"update.advantage_options.alpha": 3.0}).update
    assert (unnamed.advantage_options["depth"], unnamed.advantage_options["alpha"]) == (2, 3.0)


@pytest.mark.parametrize("where", ["override", "schedule", "remedy"])
def test_settings_go_with_component_or_filter(presets, where):
    """Options that were filled in, and so never written by the user, must not keep a component in the list."""
    names = ["environment", "overlong", "agreement"]
    before = {"reward.components": names, "reward.options.overlong": {"max_tokens": 64, "buffer_tokens": 8}}
    before |= {"filter.strategy": "top_k", "filter.keep_count": 2, "iterations": 2}
    config = _load(presets({}), "base", before)
    after = {"reward.components": names[:2], "filter.strategy": "none"}
    if where == "override":
        changed = apply_overrides(config, after)
    elif where == "schedule":
        changed = apply_overrides(config, {"schedule": [{"iteration": 1, "set": after}]}).at(1)
    else:
        apply_overrides(config, {"diagnostics.on_collapse": "roll_back", "diagnostics.remedies": [after]})
        return
    assert changed.reward.options == {"overlong": config.reward.options["overlong"]}
    assert changed.filter.keep_count is None
    with pytest.raises(ConfigError, match="'agreement' is not one of components"):
        apply_overrides(changed, {"reward.options.agreement": {"reward": 1.0}})


def test_digest_goes_with_its_file(presets, tmp_path):
    """Also for settings that already have a digest, such as those of an ablation's cell or of a deployment."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(name)
        (tmp_path / f"{name}.json").write_text(json.dumps([{"query": name, "response": "The answer is: 1"}]))
    given = {
        "environment": {"type": "metamath_qa", "path": str(tmp_path / "one.json")},
        "policy": {"type": "pretrained", "name_or_path": str(tmp_path / "one")},
    }
    config = _load(presets({}), "base", given)
    other = {"environment.path": str(tmp_path / "two.json"), "policy.name_or_path": str(tmp_path / "two")}
    changed = apply_overrides(config, other)
    assert changed == _load(presets({}), "base", given | other)
    assert changed.environment.digest != config.environment.digest
    assert changed.policy.digest != config.policy.digest
    assert apply_overrides(config, {"environment.max_tries": 2}).environment.digest == config.environment.digest
