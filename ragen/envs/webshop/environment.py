"""WebShop (Yao et al. 2022): buy the product that an instruction describes, by searching and clicking through a shop.

seed -> goal        settings -> catalogue (loaded once per process)
"""

import random
from collections.abc import Callable
from hashlib import blake2b
from typing import ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.grammar import Pattern
from starpo.ragen.envs.webshop.catalogue import Catalogue, CatalogueSource, load_catalogue
from starpo.ragen.envs.webshop.files import files_digest
from starpo.ragen.envs.webshop.goals import Goal, Split
from starpo.ragen.envs.webshop.pages import write_compact, write_text
from starpo.ragen.envs.webshop.score import PurchaseScore, score
from starpo.ragen.envs.webshop.search import words
from starpo.ragen.envs.webshop.visit import BUY, PageVisit, Shop

GRAMMAR = Pattern(
    regex=r"(?:search|click)\[[^\[\]\x00-\x1f\x7f-\x9f]+\]",
    form="search[words] or click[label]",
    shown=f"click[{BUY}]",
    max_chars=400,
)
_WON = 1.0 - 1e-9
_PAGES: dict[str, Callable[[Shop, Goal, PageVisit, float], str]] = {"text": write_text, "compact": write_compact}


def search_for(text: str) -> str:
    """Return a search for the words of a text: the first ones that fit into an action, or the beginning of the first
    one if that does not fit."""
    query, room = " ".join(words(text)), GRAMMAR.max_chars - len("search[]")
    if len(query) > room:
        query = query[: room + 1].rpartition(" ")[0] or query[:room]
    return f"search[{query}]"


class WebShopSettings(EnvironmentSettings):
    """Products, goals and the form of observations."""

    type: Literal["webshop"] = "webshop"
    folder: str = ""
    """Folder of WebShop's original files: `items_shuffle*.json`, `items_ins_v2*.json` and, for goals = 'human',
    `items_human_ins.json`. '': use the synthetic catalogue."""
    digest: str = Field("", pattern="^([0-9a-f]{16})?$")
    """Digest of the files in `folder`, filled in from them, so that changed files are a different environment. If it is
    given, files with another digest are rejected."""
    num_products: int | None = Field(None, ge=100, le=2_000_000)
    """Size of the synthetic catalogue (at most 60,000), or number of products to take from the start of the files.
    None: 5,000, or all products of the files."""
    catalogue_seed: int = Field(0, ge=0)
    """Seed of the synthetic catalogue."""
    num_hidden: int = Field(0, ge=0, le=2)
    """For the synthetic catalogue: number of attributes per goal that only the page Features shows, not the title."""
    goals: Literal["synthetic", "human"] = "synthetic"
    """'synthetic': every product's own wish, with each combination of its options. 'human': instructions by people."""
    split: Split = "train"
    """Goals 0 to 499 are 'test', 500 to 1499 'val', the rest 'train'; 'all' takes all of them. A seed selects the goal
    at the seed modulo the size of the split, with training goals shuffled, as in RAGEN."""
    pays: Literal["score", "success"] = "score"
    """Reward of the purchase. 'score': its score, 0 to 1. 'success': 1 for a score of 1, otherwise 0 (RAGEN)."""
    nouns: Literal["rule", "spacy"] = "rule"
    """How nouns in titles of the user's files are found. 'rule': words of at least three letters, without function
    words. 'spacy': spaCy's en_core_web_sm, as in WebShop. The synthetic catalogue has its own list."""
    results_per_page: int = Field(10, ge=1, le=50)
    """Products per page of results; a search finds at most 50."""
    observation: Literal["text", "compact"] = "text"
    """'text': the content of WebShop's pages, joined by [SEP]. 'compact': few lines, with clickable items in brackets;
    products are clicked by their position on the page of results, not by ASIN."""
    should_list_admissible: bool = False
    """Whether an observation ends with a line of all admissible actions."""

    @field_validator("digest")
    @classmethod
    def _of_the_files(cls, digest: str, info: ValidationInfo) -> str:
        folder = info.data.get("folder", "")
        if digest and not folder:
            raise ValueError("digest belongs to the files in folder, which is not set; set folder, or leave digest out")
        return files_digest(folder) if folder and not digest else digest

    @model_validator(mode="after")
    def _settings_have_an_effect(self) -> "WebShopSettings":
        if self.folder and (self.catalogue_seed or self.num_hidden):
            raise ValueError("catalogue_seed and num_hidden are for the synthetic catalogue; leave them out, or folder")
        if not self.folder and (self.goals != "synthetic" or self.nouns != "rule"):
            raise ValueError("goals = 'human' and nouns = 'spacy' are for WebShop's own files; set folder")
        if not self.folder and self.num_products is not None and self.num_products > 60_000:
            raise ValueError(f"num_products = {self.num_products}: the synthetic catalogue has at most 60,000")
        return self


class WebShop(Environment[WebShopSettings]):
    """Environment with one purchase per episode.

    The info of the purchase step has `score`, its parts, and `nouns`, the rule by which nouns were found.
    """

    settings_type = WebShopSettings
    demonstrator: ClassVar[str] = "starpo.ragen.envs.webshop.demonstrations:demonstrate"

    def __init__(self, settings: WebShopSettings) -> None:
        """Load the catalogue unless this process has it already, so that its errors surface before any episode.

        Raises:
            ConfigError, MissingPackageError: See `load_catalogue`; or if the split has no goals.
        """
        super().__init__(settings)
        self._source = CatalogueSource(
            settings.folder,
            settings.digest,
            settings.num_products,
            settings.catalogue_seed,
            settings.num_hidden,
            settings.goals,
            settings.nouns,
        )
        self.catalogue.goals.index(settings.split, seed=0)
        self._goal: Goal | None = None
        self._visit = PageVisit()
        self._clicks: dict[str, PageVisit] | None = None
        self._score: PurchaseScore | None = None

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue, one object shared by all environments of a process."""
        return load_catalogue(self._source)

    @property
    def shop(self) -> Shop:
        """The catalogue and its presentation."""
        return Shop(self.catalogue, self.settings.results_per_page, self.settings.observation == "compact")

    @property
    def goal(self) -> Goal:
        """Goal of the current episode.

        Raises:
            EnvironmentFault: Before the first `reset`.
        """
        if self._goal is None:
            raise EnvironmentFault("webshop: no episode has begun; call reset(seed=...) first")
        return self._goal

    @property
    def visit(self) -> PageVisit:
        """The current page and choices."""
        return self._visit

    @property
    def clicks(self) -> dict[str, PageVisit]:
        """Clickable label in lower case -> visit that it leads to; empty on the search page."""
        if self._clicks is None:
            self._clicks = self.shop.clicks(self._visit)
        return self._clicks

    @property
    def score(self) -> float:
        """Score of the purchase; 0 before it."""
        return self._score.total if self._score else 0.0

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Select a goal of the split and start on the search page."""
        goals = self.catalogue.goals
        index = goals.index(self.settings.split, seed)
        self._goal, self._score = goals.goal(index), None
        self._go(PageVisit())
        return self.render(), {"goal": index, "num_refused": len(self.catalogue.refused)}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Search or click; an action that the current page does not offer is a no-op. Only the purchase is rewarded."""
        goal, before = self.goal, self._visit
        if before.page == "done":
            raise EnvironmentFault("webshop: the episode has ended with the purchase; call reset")
        if GRAMMAR.read(action) != action:
            raise EnvironmentFault(f"webshop: {action[:80]!r} is not an action. {GRAMMAR.describe()}")
        kind, _, argument = action[:-1].partition("[")
        argument = argument.strip()
        if kind == "click":
            self._go(self.clicks.get(argument.lower(), before))
        elif before.page == "search" and words(argument):
            self._go(PageVisit("results", argument))
        info: Info = {"effective": self._visit != before, "page": self._visit.page}
        if self._visit.page != "done":
            return self.render(), 0.0, False, False, info
        catalogue, asin = self.catalogue, self._visit.asin
        price = catalogue.prices[catalogue.place(asin)]
        self._score = score(catalogue.product(asin), price, self._visit.values, goal, catalogue.nouns)
        reward = self._score.total if self.settings.pays == "score" else float(self.is_success)
        info |= {
            "is_success": self.is_success,
            "bought": asin,
            "score": self._score.total,
            "type": self._score.type,
            "attributes_met": self._score.attributes,
            "options_met": self._score.options,
            "is_price_met": self._score.is_price_met,
            "nouns": catalogue.nouns_rule,
        }
        return self.render(), reward, True, False, info

    def _go(self, visit: PageVisit) -> None:
        self._visit, self._clicks = visit, None

    @property
    def grammar(self) -> Pattern:
        """`search[..]` and `click[..]`."""
        return GRAMMAR

    @property
    def actions(self) -> tuple[str, ...]:
        """All clicks of the current page; empty on the search page, where any words can be searched."""
        return tuple(f"click[{label}]" for label in self.clicks)

    def random_action(self, rng: random.Random) -> str:
        """Return a search for some words of the instruction, or one of `actions`."""
        if self._visit.page == "search":
            known = words(self.goal.terse)
            return search_for(" ".join(rng.sample(known, rng.randint(1, len(known)))))
        return rng.choice(self.actions or (GRAMMAR.shown,))

    @property
    def is_success(self) -> bool:
        """Whether a purchase with a score of 1 has been made."""
        return self.score >= _WON

    def rules(self) -> str:
        """Return the task description."""
        reward = "its score" if self.settings.pays == "score" else "1 if its score is 1, otherwise 0"
        product = "its number" if self.settings.observation == "compact" else "its ASIN"
        return "\n".join(
            [
                "You are shopping online. Buy the product that the instruction asks for.",
                "On the search page, search for words: search[words].",
                "On every other page, click a button, an option or a product with click[label]; the label of a product "
                f"is {product}.",
                "On the product's page, choose the requested options, then buy it with click[buy now], which ends the "
                "episode.",
                "A purchase scores the fraction of requested attributes, options and price limit it meets, and less if "
                "it is a different kind of product.",
                f"A purchase earns {reward}; every other action earns 0.",
            ]
        )

    def state_digest(self) -> str:
        """Return a digest of the catalogue, the goal and the visit."""
        state = (self.catalogue.digest, self.goal, self._visit)
        return blake2b(repr(state).encode(), digest_size=8).hexdigest()

    def render(self) -> str:
        """Return the current page in the configured form."""
        page = _PAGES[self.settings.observation](self.shop, self.goal, self._visit, self.score)
        if not self.settings.should_list_admissible or self._visit.page == "done":
            return page
        return f"{page}\nAdmissible: {', '.join(self.actions) or 'search[words]'}"
