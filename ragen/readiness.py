"""What a run needs that its settings alone do not show, looked for before anything is started.

configuration -> obstacles -> nothing, or sentences that say what is missing and what to do
"""

from starpo.ragen.agents.evaluation.panel import make_panel
from starpo.ragen.config.policy import PretrainedPolicy, TinyPolicy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError, StarPOError
from starpo.ragen.core.faults import describe_fault
from starpo.ragen.core.registry import ADVANTAGES, DEMONSTRATORS, ENVIRONMENTS, FILTERS, REWARDS, load
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.initial_states import fresh_env_seed


def check_ready(config: StarPOConfig, name: str, *, should_download: bool = False) -> None:
    """Be sure that a run can be made by these settings.

    Args:
        config: The settings.
        name: What they are called, for the message.
        should_download: Fetch a model of the hub, to look at it too.

    Raises:
        ConfigError: If something is missing; the message names all of it.
    """
    found = obstacles(config, should_download=should_download)
    if found:
        several = f"{len(found)} things stand in the way:" if len(found) > 1 else ""
        raise ConfigError("\n  ".join([f"{name}: {several or found[0]}", *(found if several else ())]))


def obstacles(config: StarPOConfig, *, should_download: bool = False) -> list[str]:
    """What stands in the way of a run: sentences, each about one thing.

    Looked for are names that stand for two things, the policy's folder with its tokenizer and a template to which turns
    can be appended (a model that is the hub's is passed over, unless it is to be downloaded), the embedded policy's
    demonstrator, and enough initial states for every panel and for training beside them.
    """
    policy = config.policy
    found = _of_names(config)
    found += _of_demonstrator(config) if isinstance(policy, TinyPolicy) else _of_model(policy, should_download)
    panels = {"environment": config.environment}
    panels |= {f"evaluation.variants.{name}": settings for name, settings in config.evaluation.variants.items()}
    for place, settings in panels.items():
        found += _of_environment(place, settings, config)
    return found


def _of_names(config: StarPOConfig) -> list[str]:
    """Built-in names that an installed package declares too."""
    used = [(REWARDS, name) for name in config.reward.components]
    used += [(FILTERS, config.filter.strategy), (ADVANTAGES, config.update.advantage)]
    used += [(ENVIRONMENTS, settings.type) for settings in config.panels.values()]
    return list(dict.fromkeys(registry.shadowed[name] for registry, name in used if name in registry.shadowed))


def _of_demonstrator(config: StarPOConfig) -> list[str]:
    kind = config.environment.type
    if kind not in DEMONSTRATORS:
        return [
            f"environment '{kind}' has no demonstrator, and the embedded policy (policy.type = 'tiny') begins by "
            f"imitating one; there are some for {', '.join(sorted(DEMONSTRATORS))}. Register one "
            "(docs/extend.md), or train a model that knows the format: policy.type = 'pretrained', "
            "policy.name_or_path = a folder"
        ]
    try:
        load(DEMONSTRATORS, kind)
    except StarPOError as error:
        return [f"the demonstrator of environment {error}"]
    return []


def _of_model(policy: PretrainedPolicy, should_download: bool) -> list[str]:
    from starpo.ragen.agents.policy.place import named_folder

    try:
        if named_folder(policy) is not None or should_download:
            _check_model(policy)
    except StarPOError as error:
        return [str(error)]
    return []


def _check_model(policy: PretrainedPolicy) -> None:
    from starpo.ragen.agents.policy.load import load_tokenizer, resolve_policy
    from starpo.ragen.agents.prompting.template import derive_pieces

    derive_pieces(load_tokenizer(resolve_policy(policy)))


def _of_environment(place: str, settings: EnvironmentSettings, config: StarPOConfig) -> list[str]:
    evaluation = config.evaluation
    try:
        panel = make_panel(settings, evaluation.num_prompts, evaluation.panel_seed)
        if place == "environment":
            fresh_env_seed(settings, config.seed, "environment", 0, 0, excluded=panel.excluded_digests)
    except StarPOError as error:
        return [f"{place}: {error}"]
    except Exception as error:  # an environment of somebody else's may raise anything
        module = ENVIRONMENTS[settings.type].partition(":")[0]
        return [f"{place}: '{settings.type}' failed at an initial state: {describe_fault(error, module)}"]
    return []
