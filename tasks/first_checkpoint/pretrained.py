"""A pretrained policy as it is: loaded, checked, and saved as the first checkpoint."""

from collections.abc import Iterator
from functools import partial

from starpo.ragen.agents.policy.initial_states import read_states, write_states
from starpo.ragen.config.model_files import model_place
from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.tasks.first_checkpoint.stages import PRETRAINED, policy_settings


def pretrained(config: StarPOConfig, policy: PretrainedPolicy) -> Work:
    """Take a pretrained policy as it is."""
    settings = policy_settings(config, policy.model_dump(mode="json", exclude={"fine_tuning"}))
    return Work(PRETRAINED, ("checkpoint",), partial(_copy, policy), settings)


def trained_states(policy: PretrainedPolicy) -> list[str]:
    """Return the digests of the initial states that a policy of this machine was trained on, as far as it tells."""
    from starpo.ragen.agents.policy.source import local_folder

    place = model_place(policy.name_or_path)
    return read_states(local_folder(place)) if place else []


def _copy(policy: PretrainedPolicy, work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
    from starpo.ragen.agents.policy.load import copy_policy

    with store.new_folder() as folder:
        states = trained_states(policy)
        headline = copy_policy(policy, folder)
        if states:
            write_states(folder, states)
        yield Output("checkpoint", folder, headline)
