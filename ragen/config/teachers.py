"""Teachers of on-policy distillation: models that score the tokens that the policy sampled (docs/distillation.md)."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.model_files import NUM_DIGITS
from starpo.ragen.config.objective import ObjectiveConfig
from starpo.ragen.config.openai_engine import OpenAIServer
from starpo.ragen.config.policy import PretrainedPolicy, TinyPolicy
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.core.settings import Settings
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.make import environment_type

Policy = TinyPolicy | PretrainedPolicy
PLACE = "{hint}"
"""Where a hint's text names the hint."""


class TeacherSettings(Settings):
    """A teacher, and what its prompts show more than the policy's."""

    type: str
    """'model': another model. 'run': a checkpoint of a run in the same store. 'policy': the policy itself. 'server': a
    model on a server."""
    hint: Literal["none", "plan", "outcome"] = "none"
    """What the teacher's prompts say and the policy's do not. 'plan': in every turn the next actions of the
    environment's demonstrator at full skill, for Sokoban and FrozenLake their solver. 'outcome': in the first prompt
    whether this attempt succeeds and, if it does not, the actions of another one of its group that does."""
    hint_text: str = Field("\n\nHint: {hint}", max_length=2000)
    """How a hint is appended to the user's message; it contains {hint} once."""
    top_k: int = Field(0, ge=0, le=256)
    """Tokens at each position, those that the teacher finds most probable, whose log-probs are stored too, for
    update.distillation = 'reverse_kl' or 'forward_kl'. 0: none."""
    limit_s: float | None = Field(None, gt=0)
    """Seconds that the teacher may take for a rollout; a run whose teacher takes longer ends. None: as long as it
    takes."""

    def loaded(self, policy: Policy) -> Policy | None:
        """Return the settings of the model that the teacher's stage loads, for its size; None if it loads none.

        Args:
            policy: The run's policy.
        """
        return policy

    @field_validator("hint_text")
    @classmethod
    def _has_a_place(cls, text: str) -> str:
        if text.count(PLACE) != 1:
            raise ValueError(f"should contain {PLACE} once, where the hint goes; found it {text.count(PLACE)} times")
        return text

    def check_suffices(self, objective: ObjectiveConfig) -> None:
        """Check that it says what the objective reads.

        Raises:
            ValueError: If not; the message says what to set.
        """
        if objective.distills_top_tokens and self.top_k == 0:
            raise ValueError(
                f"update.distillation = '{objective.distillation}' is over the teacher's most probable tokens, and "
                "teacher.top_k = 0 stores none: set it, for instance to 32"
            )

    def check_fits(self, environment: EnvironmentSettings, agent: AgentConfig, rollout: RolloutConfig) -> None:
        """Check that there can be a hint, and that the policy itself does not see it.

        Raises:
            ValueError: If not; the message says what to set.
        """
        if self.hint == "none":
            return
        words = self.hint_text.replace(PLACE, "").strip()
        for name in ("system_prompt", "prompt_template"):
            text = getattr(agent, name)
            if PLACE in text or (words and words in text):
                raise ValueError(
                    f"agent.{name} contains {PLACE if PLACE in text else repr(words)}, which is the teacher's hint: "
                    "only the teacher may see it, else there is nothing to learn from it. Take it out, or set another "
                    "teacher.hint_text"
                )
        if agent.shows_images:
            raise ValueError(
                f"teacher.hint = '{self.hint}' is text between tokens of text, and agent.observation = "
                f"'{agent.observation}' shows images: set teacher.hint = 'none', or agent.observation = 'text'"
            )
        if self.hint == "plan":
            types = [part.type for part in environment.tagged().values()]
            blind = next((one for one in types if not environment_type(one).demonstrator), None)
            if blind is not None:
                raise ValueError(
                    f"teacher.hint = 'plan' shows what the environment's demonstrator would do, and '{blind}' has "
                    "none: set teacher.hint = 'outcome', or give the environment a demonstrator (docs/extend.md)"
                )
            if rollout.search is not None:
                raise ValueError(
                    "teacher.hint = 'plan' follows the actions of an episode, and with rollout.search they were tried "
                    "on copies of the environment: leave rollout.search out, or set teacher.hint = 'outcome'"
                )


class LoadedTeacherSettings(TeacherSettings):
    """A teacher whose passes this machine computes."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the teacher's passes; its weights are held in float32."""


class ModelTeacher(LoadedTeacherSettings):
    """Another model with the vocabulary of the policy."""

    type: Literal["model"] = "model"
    name_or_path: str = Field(min_length=1)
    """As `policy.name_or_path`: a folder, a GGUF file, `package:NAME`, or a name on the Hugging Face hub."""
    revision: str | None = None
    """As `policy.revision`."""
    digest: str = Field("", pattern=f"^([0-9a-f]{{{NUM_DIGITS}}})?$")
    """As `policy.digest`: filled in from the files of a local model."""

    @field_validator("digest")
    @classmethod
    def _of_the_model(cls, digest: str, info: ValidationInfo) -> str:
        name = info.data.get("name_or_path")
        return PretrainedPolicy(name_or_path=name, digest=digest).digest if name else digest

    def loaded(self, policy: Policy) -> Policy:
        """See `TeacherSettings.loaded`."""
        return self.policy

    @property
    def policy(self) -> PretrainedPolicy:
        """The model as one that a run could start from."""
        return PretrainedPolicy(name_or_path=self.name_or_path, revision=self.revision, digest=self.digest)


class RunTeacher(LoadedTeacherSettings):
    """A checkpoint of a run in the same store."""

    type: Literal["run"] = "run"
    checkpoint: str = Field(pattern=r"^[^:]+:\d+$")
    """`RUN:ITERATION`: the checkpoint after that many updates. Its key is part of the key of what it says."""


class PolicyTeacher(LoadedTeacherSettings):
    """The policy itself, shown more (SDFT, OPSD, SDPO)."""

    type: Literal["policy"] = "policy"
    checkpoint: Literal["current", "first"] = "current"
    """'current': as it is before each update. 'first': the run's first checkpoint."""

    @model_validator(mode="after")
    def _knows_more(self) -> "PolicyTeacher":
        if self.checkpoint == "current" and self.hint == "none":
            raise ValueError(
                "the policy as its own teacher, with the same prompts, has nothing to teach: set hint = 'plan' or "
                "'outcome', or checkpoint = 'first'"
            )
        return self


class ServerTeacher(OpenAIServer, TeacherSettings):
    """A model with the policy's vocabulary on a server that scores given tokens: vLLM's, by `prompt_logprobs`."""

    type: Literal["server"] = "server"
    base_url: str = Field(pattern=r"^https?://[^\s@?#]+$")
    """Address, including '/v1'; must not contain secrets."""
    model: str = Field(min_length=1)
    """Name of the model on the server. Part of the key of what it says; the address is not."""

    def loaded(self, policy: Policy) -> None:
        """See `TeacherSettings.loaded`."""

    def check_fits(self, environment: EnvironmentSettings, agent: AgentConfig, rollout: RolloutConfig) -> None:
        """See `TeacherSettings.check_fits`.

        Raises:
            ValueError: Also if the rollout has images, or another temperature than that of a server's log-probs.
        """
        super().check_fits(environment, agent, rollout)
        if agent.shows_images:
            raise ValueError(
                f"teacher.type = 'server' is sent tokens of text, and agent.observation = '{agent.observation}' shows "
                "images: set teacher.type = 'model', or agent.observation = 'text'"
            )
        if rollout.temperature != 1.0:
            raise ValueError(
                "teacher.type = 'server' gives log-probs at temperature 1, to be compared with the policy's at "
                f"rollout.temperature = {rollout.temperature:g}: set that to 1, or teacher.type = 'model'"
            )


TEACHERS: dict[str, type[TeacherSettings]] = {
    "model": ModelTeacher,
    "run": RunTeacher,
    "policy": PolicyTeacher,
    "server": ServerTeacher,
}
"""Type of a teacher -> its settings."""
