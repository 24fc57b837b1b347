"""(configuration, stored episodes to imitate) -> the first checkpoint of a run."""

from collections.abc import Mapping

from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.runs.work import Work
from starpo.tasks.first_checkpoint.embedded import embedded
from starpo.tasks.progress import RunProgress


def warm_start(
    config: StarPOConfig,
    stored: Mapping[str, str] | None = None,
    progress: RunProgress | None = None,
    *,
    should_render: bool = False,
) -> Work:
    """Create the tiny policy and train it on demonstrations, or take a pretrained one, optionally fine-tuned.

    Args:
        config: All settings.
        stored: Role -> key of the stored episodes to imitate, from `first_checkpoint.stored_episodes.episode_keys`.
        progress: Receives the progress of the training.
        should_render: Whether some of them are texts (`has_texts`), so that the chat template has an effect.
    """
    policy = config.policy
    if isinstance(policy, TinyPolicy):
        return embedded(config, policy, progress)
    from starpo.tasks.first_checkpoint.fine_tuned import fine_tuned_on_demonstrations, fine_tuned_on_episodes
    from starpo.tasks.first_checkpoint.pretrained import pretrained

    if policy.fine_tuning is None:
        return pretrained(config, policy)
    if policy.fine_tuning.runs:
        return fine_tuned_on_episodes(
            config, policy, policy.fine_tuning, stored or {}, progress, should_render=should_render
        )
    return fine_tuned_on_demonstrations(config, policy, policy.fine_tuning, progress)
