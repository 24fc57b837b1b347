"""Settings of reward component 'checklist'."""

from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from starpo.ragen.core.settings import Settings
from starpo.ragen.methods.judge.settings import OF_THE_TURN, ONE_WORD, TURN, JudgeOptions


class ChecklistItem(Settings):
    """One question about a turn (CM2)."""

    question: str = Field(min_length=1)
    """Question to be answered with YES or NO."""
    weight: float = Field(1.0, gt=0, le=1000)
    """Weight relative to the other items."""
    depends_on: list[int] = Field(default_factory=list)
    """Indices (from 0) of earlier items. Unless all of them pass, this item is not asked and fails."""


class ChecklistOptions(JudgeOptions):
    """Options of 'checklist': the model and the questions."""

    placeholders: ClassVar[tuple[str, ...]] = (*OF_THE_TURN, "question")

    reward: float = Field(0.5, ge=0, le=1000)
    """Reward of a turn that passes all items; other turns get the weighted share of the items that they pass."""
    template: str = Field(f"You judge one turn of an agent.\n\n{TURN}\n{{question}} {ONE_WORD}")
    """Prompt of the judge, with the placeholders of 'judge' and {question}."""
    items: list[ChecklistItem] = Field(min_length=1)
    """The questions: tables of `question`, `weight` (default 1) and `depends_on` (indices, from 0, of earlier items;
    unless all of them pass, the item is not asked and fails)."""

    @field_validator("template")
    @classmethod
    def _asks_the_question(cls, template: str) -> str:
        if "{question}" not in template:
            raise ValueError("expected {question} in it: otherwise all items ask the same question")
        return template

    @model_validator(mode="after")
    def _depend_on_items_before(self) -> "ChecklistOptions":
        for number, item in enumerate(self.items):
            if strange := [other for other in item.depends_on if not 0 <= other < number]:
                raise ValueError(
                    f"items.{number}.depends_on names item {strange[0]}; expected items before it"
                    + (f", 0 to {number - 1}" if number else ", and it is the first")
                )
        return self
