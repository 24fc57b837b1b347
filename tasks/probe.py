"""checkpoint, turns -> metrics of how far the reasoning depends on the prompt."""

from collections.abc import Iterator
from functools import partial

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage

STAGE = Stage(name="probe", version=1)


def probe(config: StarPOConfig, iteration: int, checkpoint: str, reference: str, turns: str) -> Work:
    """Score reasoning texts under each other's prompts with the policy that is about to be updated.

    Args:
        config: Settings of the iteration.
        iteration: Updates completed before it.
        checkpoint: Key of that policy.
        reference: Key of the run's first checkpoint.
        turns: Key of the turns.
    """
    settings = {
        "iteration": iteration,
        "rows": config.diagnostics.probe_rows,
        "temperature": config.rollout.temperature,
        "dtype": config.update.dtype,
    }
    seed = derive_seed(config.seed, "probe", iteration)
    inputs = {"checkpoint": checkpoint, "turns": turns}
    if (
        config.update.needs_first_checkpoint
    ):  # scoring does not need it, but the update that follows reuses this learner
        inputs["reference"] = reference
    return Work(STAGE, ("metrics",), partial(_probe, config.update), settings, inputs, seed)


def _probe(config: UpdateConfig, work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
    from starpo.ragen.agents.policy.load import load_tokenizer
    from starpo.ragen.learning.learners.learner import UpdateContext
    from starpo.ragen.learning.learners.measuring import able_to_measure, token_logprobs
    from starpo.ragen.learning.metrics.reasoning import CHOICES, crossed, matrices, pick
    from starpo.ragen.learning.metrics.table import metrics_table
    from starpo.ragen.learning.metrics.template import template_metrics
    from starpo.ragen.runs.stored_images import read_turns

    assert work.seed is not None
    iteration, temperature = work.settings["iteration"], work.settings["temperature"]
    turns, images = read_turns(store, work.inputs)
    checkpoint = work.inputs["checkpoint"]
    learner = placement.learner.at(store, checkpoint, able_to_measure([config]), work.inputs.get("reference"))
    tokenizer = load_tokenizer(placement.learner.policy_folder(store, checkpoint))
    values: dict[str, float] = {}
    for choice in CHOICES:
        reasoned = pick(turns, choice, work.settings["rows"], work.seed, lambda ids: str(tokenizer.decode(ids)))
        contexts = [row.context for row in reasoned]
        values |= {f"{choice}/num_rows": len(reasoned), f"{choice}/num_prompts": len(set(contexts))}
        if len(set(contexts)) < 2:
            continue  # needs reasoning under at least two prompts
        context = UpdateContext(iteration, iteration + 1, work.seed, temperature, 0)
        scores = token_logprobs(learner, crossed(reasoned, images), context).numpy()
        for unit, scores_NN in matrices(scores, reasoned).items():
            metrics = template_metrics(scores_NN, contexts)
            values |= {f"{choice}/{unit}/{name}": value for name, value in metrics.items()}
    named = {f"reasoning/{name}": value for name, value in values.items()}
    yield Output("metrics", metrics_table(iteration, STAGE.name, named), is_deterministic=learner.is_deterministic)
