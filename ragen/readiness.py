"""Requirements of a run that its settings alone do not show, checked before anything is started.

configuration -> obstacles -> nothing, or sentences that state what is missing and what to do
"""

from importlib.util import find_spec
from typing import Any

from starpo.ragen.agents.evaluation.panel import panel_of
from starpo.ragen.agents.policy.tokenizer import demonstrator
from starpo.ragen.agents.prompting.prompt import prompt_of
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import FineTuning, PretrainedPolicy, TinyPolicy
from starpo.ragen.config.reward_components import StatementOptions
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.context_fit import context_fits, tokenizer_and_positions, worst_misfit
from starpo.ragen.core.errors import CallLimitError, ConfigError, StarPOError
from starpo.ragen.core.faults import describe_fault
from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.core.limits import environment_call
from starpo.ragen.core.lookup import needs, resolve
from starpo.ragen.core.registry import (
    ADVANTAGES,
    CURRICULA,
    ENVIRONMENTS,
    FILTERS,
    PROMPTS,
    REWARDS,
    SCENES,
    SEARCHES,
    SUITES,
)
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs import make
from starpo.ragen.envs.base import Environment, EnvironmentSettings
from starpo.ragen.envs.grammar import ToolCalls
from starpo.ragen.envs.initial_states import fresh_env_seed, initial_state
from starpo.ragen.store import Store


def check_ready(config: StarPOConfig, name: str, *, should_download: bool = False, store: Store | None = None) -> None:
    """Check that a run with these settings can be started.

    Args:
        config: The settings.
        name: Name of the settings, for the message.
        should_download: Download a model from the hub to check it as well.
        store: The run's store, which has the run that teaches it. None: such a teacher is not checked.

    Raises:
        ConfigError: If something is missing; the message lists all of it.
    """
    problems = obstacles(config, should_download=should_download, store=store)
    if problems:
        several = f"{len(problems)} things stand in the way:" if len(problems) > 1 else ""
        raise ConfigError("\n  ".join([f"{name}: {several or problems[0]}", *(problems if several else ())]))


def obstacles(config: StarPOConfig, *, should_download: bool = False, store: Store | None = None) -> list[str]:
    """List what prevents a run: sentences, one per problem.

    Checked are names that stand for two things, the packages that servers and adapters need, things with a statement
    weight that no environment has, the policy's folder with its tokenizer and a template to which turns can be appended
    (a model on the hub is skipped unless it is to be downloaded), the demonstrator to imitate, the prompt, the reward
    components on trial turns, and enough initial states for every panel and for training beside them; then, if nothing
    else is wrong, whether the credit that it trains on can be measured, the vocabulary of a teacher, and room for
    prompts and responses in the context.
    """
    try:
        return _obstacles(config, should_download, store)
    except CallLimitError as error:  # whatever else it would be asked would hang as well, and each would take as long
        return [str(error)]


def _obstacles(config: StarPOConfig, should_download: bool, store: Store | None) -> list[str]:
    policy = config.policy
    problems = (
        _ambiguous_names(config)
        + _missing_server_packages(config)
        + _missing_adapter_packages(config)
        + _unknown_weights(config)
    )
    if isinstance(policy, PretrainedPolicy):
        problems += _model_faults(config, should_download)
    player = policy if isinstance(policy, TinyPolicy) else policy.fine_tuning
    is_untrained = isinstance(player, TinyPolicy) and player.warm_start_steps == 0
    if not (player is None or is_untrained or (isinstance(player, FineTuning) and player.runs)):
        problems += _demonstrator_faults(config, player)
    problems += _prompt_faults(config) + _reward_faults(config)
    panels = {"environment": config.environment}
    panels |= {f"evaluation.variants.{name}": settings for name, settings in config.evaluation.variants.items()}
    for place, settings in panels.items():
        problems += _environment_faults(place, settings, config)
    if config.trains_on_credit and config.iterations and not problems:
        from starpo.ragen.runs.creditable import credit_fault

        problems += filter(None, [credit_fault(config)])
    if config.teacher is not None and config.iterations and not problems:
        from starpo.ragen.teacher_fit import teacher_faults

        problems += teacher_faults(config, store, should_download=should_download)
    return problems or _context_faults(config, should_download)


def _ambiguous_names(config: StarPOConfig) -> list[str]:
    """List built-in names that an installed package also declares."""
    used = [(PROMPTS, config.agent.prompt)]
    used += [(CURRICULA, config.curriculum.type)] if config.curriculum else []
    for phase in config.phases:
        used += [(REWARDS, name) for name in phase.reward.components]
        used += [(SEARCHES, phase.rollout.search.type)] if phase.rollout.search else []
        used += [(FILTERS, phase.filter.strategy), (ADVANTAGES, phase.update.advantage)]
    for settings in config.panels.values():
        used += [(ENVIRONMENTS, part.type) for part in (settings, *settings.tagged().values())]
    return list(dict.fromkeys(registry.shadowed[name] for registry, name in used if name in registry.shadowed))


def _missing_server_packages(config: StarPOConfig) -> list[str]:
    used = {name for phase in config.phases for name in phase.reward.components}
    asking = [f"reward component '{name}'" for name in sorted(used) if "server" in needs(REWARDS, name)]
    asking += ["engine 'openai'"] * any(phase.rollout.engine == "openai" for phase in config.phases)
    if not asking or find_spec("openai") is not None:
        return []
    return [f"{asking[0]} asks a server and needs the package openai: pip install 'starpo[openai]'"]


def _missing_adapter_packages(config: StarPOConfig) -> list[str]:
    users = {"update.lora": any(phase.update.lora for phase in config.phases)}
    if isinstance(config.policy, PretrainedPolicy) and config.policy.fine_tuning is not None:
        users["policy.fine_tuning.lora"] = config.policy.fine_tuning.lora is not None
    used = [name for name, is_used in users.items() if is_used]
    if not used or find_spec("peft") is not None:
        return []
    return [f"{used[0]} needs the package peft: pip install 'starpo[lora]'"]


def _unknown_weights(config: StarPOConfig) -> list[str]:
    """List statement weights of things that do not exist, or that leave a part without any weight."""
    weights = {
        f"reward.options.{name}.weights": [thing for thing, weight in options.weights.items() if weight]
        for phase in config.phases
        for name in ("grounding", "world_model")
        if (options := StatementOptions.model_validate(phase.reward.options.get(name, {}))).weights
    }
    if not weights:
        return []
    things = {}
    for part in config.environment.tagged().values():
        started = _started(part)
        if started is None:
            return []
        things[part.type] = list(resolve(SCENES[part.type])(started[1], (), {}).things)
    return [
        f"{place} weighs {', '.join(weighed)}; expected things of {kind}, which are {', '.join(known)}"
        for place, weighed in weights.items()
        for kind, known in things.items()
        if not set(weighed) & set(known) or not set(weighed) <= set().union(*things.values())
    ]


def _started(settings: EnvironmentSettings) -> tuple[Environment[Any], str] | None:
    """Return an environment and its first observation; None if it fails, which `_environment_faults` reports.

    Raises:
        CallLimitError: If it hangs.
    """
    try:
        world = make(settings)
        with environment_call(settings.type):
            return world, world.reset(seed=0)[0]
    except CallLimitError:
        raise
    except FOREIGN:
        return None


def _prompt_faults(config: StarPOConfig) -> list[str]:
    """Return the first fault of the prompt in any environment that the run plays, whose grammars may differ."""
    parts = [part for settings in config.panels.values() for part in settings.tagged().values()]
    return next((faults for part in parts if (faults := _prompt_faults_in(part, config.agent))), [])


def _prompt_faults_in(settings: EnvironmentSettings, agent: AgentConfig) -> list[str]:
    started = _started(settings)
    if started is None:
        return []
    world, observation = started
    try:
        rules, grammar = world.rules(), world.grammar
    except FOREIGN:
        return []  # reported by `_environment_faults`
    try:
        prompt = prompt_of(agent)
        prompt.introduction(rules, grammar, agent)
        for turn, reward in enumerate((None, 1.0)):  # a later turn may use what the first does not
            prompt.turn_message(
                observation, turn=turn, actions_left=1, reward=reward, had_invalid_action=turn > 0, agent=agent,
                grammar=grammar, max_response_tokens=1,
            )  # fmt: skip
    except StarPOError as error:
        return [str(error)]
    except FOREIGN as error:  # a third-party prompt may raise anything
        fault = describe_fault(error, PROMPTS[agent.prompt].partition(":")[0])
        return [f"prompt '{agent.prompt}' cannot be shown in '{settings.type}': {fault}"]
    return []


def _reward_faults(config: StarPOConfig) -> list[str]:
    """List the reward components that fail on a few turns of random play; one that needs the store is not called."""
    from starpo.ragen.agents.rollout.trial import trial_turns
    from starpo.ragen.learning.reward.compute import component_values

    faults = []
    for phase in config.phases:
        try:
            turns = trial_turns(phase.environment, phase.agent)
        except CallLimitError:
            raise
        except FOREIGN:
            return []  # reported by `_environment_faults`
        for name in phase.reward.components:
            try:
                if "store" not in needs(REWARDS, name):
                    component_values(name, turns, phase.reward)
            except StarPOError as error:
                faults.append(f"{error} (on a few turns of random play)")
    return list(dict.fromkeys(faults))


def _demonstrator_faults(config: StarPOConfig, player: TinyPolicy | FineTuning) -> list[str]:
    try:
        target = demonstrator(player, config.environment)
        decide = resolve(target)
    except StarPOError as error:
        return [str(error)]
    for part in config.environment.tagged().values():
        started = _started(part)
        if started is None:
            return []
        world, _ = started
        try:
            actions = decide(world, player.demonstration_skill, python_random("readiness")).actions
        except FOREIGN as error:  # a third-party demonstrator may raise anything
            module = target.partition(":")[0]
            return [f"demonstrator {target} failed at an initial state: {describe_fault(error, module)}"]
        strange = [action for action in actions if world.grammar.read(action) != action]
        if strange:
            return [f"demonstrator {target} chose {strange[0]!r}. {world.grammar.describe()}"]
    return []


def _model_faults(config: StarPOConfig, should_download: bool) -> list[str]:
    try:
        loaded = tokenizer_and_positions(config, should_download=should_download)
        if loaded is not None:
            from starpo.ragen.agents.prompting.template import derive_pieces

            derive_pieces(loaded[0], config.agent)
    except StarPOError as error:
        return [str(error)]
    return []


def _environment_faults(place: str, settings: EnvironmentSettings, config: StarPOConfig) -> list[str]:
    evaluation, agent = config.evaluation, config.agent
    try:
        for tag, part in settings.tagged().items():  # before the panel: what is raised here is this part's
            world = make(part)
            initial_state(world, tag, 0)
            if isinstance(world.grammar, ToolCalls) and agent.should_prefill_think and not agent.should_think:
                return [
                    f"{place}: '{part.type}' is acted in by tool calls, and agent.should_prefill_think without "
                    "agent.should_think would open an <answer>: set one of them otherwise"
                ]
        panel = panel_of(settings, evaluation)
        for tag in settings.tagged() if place == "environment" and config.iterations else ():
            fresh_env_seed(settings, config.seed, "environment", 0, 0, excluded=panel.excluded_digests, tag=tag)
    except CallLimitError:
        raise
    except StarPOError as error:
        return [f"{place}: {error}"]
    except FOREIGN as error:  # a third-party environment may raise anything
        module = ENVIRONMENTS[part.type].partition(":")[0]
        return [f"{place}: {tag}: '{part.type}' cannot be started: {describe_fault(error, module)}"]
    built_in = ENVIRONMENTS.keys() - ENVIRONMENTS.packages.keys() - SUITES.keys()  # covered by our tests
    foreign = [part for part in settings.tagged().values() if part.type not in built_in]
    if not foreign:
        return []
    from starpo.ragen.envs.check import check

    return [
        f"{place}: '{part.type}' breaks its contract: {breach}"
        for part in foreign
        for breach in check(part, should_start_process=False)
    ]


def _context_faults(config: StarPOConfig, should_download: bool) -> list[str]:
    try:
        fits = context_fits(config, should_download=should_download)
    except StarPOError as error:
        return [str(error)]
    except FOREIGN as error:  # a third-party environment may raise anything
        module = ENVIRONMENTS[config.environment.type].partition(":")[0]
        return [f"environment: a first prompt cannot be made: {describe_fault(error, module)}"]
    misfit = worst_misfit(fits)
    return [misfit] if misfit else []
