"""Whether a run's teacher is there and reads the tokens that its policy writes, before anything is computed.

configuration, store -> the policy's vocabulary, the teacher's -> nothing, or a sentence
"""

from typing import TYPE_CHECKING

from starpo.ragen.config.model_files import model_place
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.teachers import ModelTeacher, RunTeacher, ServerTeacher, TeacherSettings
from starpo.ragen.context_fit import tokenizer_and_positions
from starpo.ragen.core.errors import ConfigError, StarPOError
from starpo.ragen.learning.distillation.vocabulary import check_vocabulary
from starpo.ragen.runs.stored_policy import checkpoints_of, find_tokenizer
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import policies

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def teacher_faults(config: StarPOConfig, store: Store | None, *, should_download: bool) -> list[str]:
    """Say what is wrong with a run's teacher, as far as this machine can tell.

    Args:
        config: Settings with a teacher.
        store: The run's store, which has the teacher's run. None: a teacher of type 'run' is not looked at.
        should_download: Whether models on the hub are downloaded to be looked at.
    """
    assert config.teacher is not None
    try:
        if isinstance(config.teacher, ServerTeacher):
            policy = tokenizer_and_positions(config, should_download=should_download)
            if policy is not None:
                from starpo.ragen.learning.distillation.served import check_server

                check_server(config.teacher, policy[0])
            return []
        teacher = _tokenizer(config.teacher, store, should_download)
        policy = tokenizer_and_positions(config, should_download=should_download) if teacher is not None else None
        if teacher is not None and policy is not None:
            check_vocabulary(policy[0].get_vocab(), teacher.get_vocab(), name_of(config.teacher))
    except StarPOError as error:
        return [str(error)]
    return []


def _tokenizer(
    settings: TeacherSettings, store: Store | None, should_download: bool
) -> "PreTrainedTokenizerBase | None":
    """Return a teacher's tokenizer; None if it is the policy's, or cannot be had here."""
    if isinstance(settings, RunTeacher) and store is not None:
        key, run = named_checkpoint(store, settings.checkpoint), settings.checkpoint.partition(":")[0]
        return find_tokenizer(store, [key, *checkpoints_of(store, store.runs.iterations(run))])
    if isinstance(settings, ModelTeacher):
        place = model_place(settings.name_or_path, "teacher.name_or_path")
        if place is None and not should_download:
            return None
        from starpo.ragen.agents.policy.load import load_tokenizer
        from starpo.ragen.agents.policy.source import resolve_policy

        return load_tokenizer(resolve_policy(settings.policy))
    return None


def named_checkpoint(store: Store, name: str) -> str:
    """Return the key of the checkpoint `RUN:ITERATION`.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If it has no such checkpoint.
    """
    run, _, number = name.partition(":")
    keys = policies(store, run)
    if int(number) not in keys:
        known = f"it has {min(keys)} to {max(keys)}" if keys else "it has none"
        raise ConfigError(f"teacher.checkpoint = '{name}': run '{run}' has no such checkpoint; {known}")
    return keys[int(number)]


def name_of(settings: TeacherSettings) -> str:
    """Return what messages call a teacher: the setting that names it."""
    if isinstance(settings, ModelTeacher):
        return f"teacher.name_or_path = '{settings.name_or_path}'"
    return f"teacher.checkpoint = '{getattr(settings, 'checkpoint', '')}'"
