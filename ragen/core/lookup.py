"""`Registry`: names used in settings -> the implementation of each, imported only when it is used.

    built-in entries + entry points of installed packages -> Registry: name -> "module:attribute" -> load -> object

Listing names needs no import, so settings can be validated and shown without torch. The registries themselves are in
`ragen.core.registry`.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError, WithJsonSchema, create_model

from starpo.ragen.core.errors import CallLimitError, ConfigError, RegistryError, StarPOError
from starpo.ragen.core.faults import describe_fault
from starpo.ragen.core.guard import FOREIGN, guarded

M = TypeVar("M", bound=BaseModel)

TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""`module:attribute`."""


_INSTALLED = metadata.entry_points()


class Entry(str):
    """`module:attribute` of a built-in implementation, with the properties that are known without importing it.

    Attributes:
        needs: Its requirements, as words separated by spaces (`needs`).
        options: `module:attribute` of its own settings model; '' if it has none.
        marks: `module:attribute` of what marks the turns that an estimator reads; '' if it reads none.
    """

    needs: str
    options: str
    marks: str

    def __new__(cls, target: str, needs: str = "", options: str = "", marks: str = "") -> "Entry":
        """Create a target with its properties."""
        entry = super().__new__(cls, target)
        entry.needs, entry.options, entry.marks = needs, options, marks
        return entry


class Registry(dict[str, str]):
    """`name -> "module:attribute"`: built-in names, and those of installed packages.

    Attributes:
        group: Entry-point group whose entries are included.
        packages: Name -> the package that declares it, for names that are not built in.
        faults: Name -> why it is unusable: two packages declare it.
        shadowed: Built-in name -> message that a package declares it too. The built-in one wins, but no run should
            start with an ambiguous name (`ragen.readiness`).
        takes_targets: Whether a setting may give `module:attribute` instead of a name.
        needed: Registry whose names its entries may declare as requirements, beside `NEEDS`; None if there is none.
    """

    def __init__(
        self,
        group: str,
        built_in: Mapping[str, str],
        *,
        takes_targets: bool = False,
        needed: "Registry | None" = None,
    ) -> None:
        super().__init__(built_in)
        self.group, self.takes_targets, self.needed = group, takes_targets, needed
        self.packages: dict[str, str] = {}
        self.faults: dict[str, str] = {}
        self.shadowed: dict[str, str] = {}
        for point in sorted(_INSTALLED.select(group=group), key=lambda point: (point.name, point.value)):
            self._add(point)

    def __missing__(self, name: str) -> str:
        """Return a target itself, where targets are allowed."""
        if self.takes_targets and TARGET.fullmatch(name):
            return name
        raise KeyError(name)

    def is_built_in(self, name: str) -> bool:
        """Whether this project has it, rather than a package or module of one's own."""
        return name in self and name not in self.packages

    def _add(self, point: metadata.EntryPoint) -> None:
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
        owner = self.packages.get(point.name)
        if point.name in self and owner != package:
            (self.faults if owner else self.shadowed)[point.name] = (
                f"'{point.name}' is {f'a name of {owner}' if owner else 'a built-in name'} and one of {package} (entry "
                f"points of group {self.group}): rename or uninstall one, since names must be unique"
            )
            return
        self[point.name] = point.value
        self.packages[point.name] = package


def installed_folders(group: str) -> tuple[dict[str, Path], list[str]]:
    """Find folders that installed packages declare as entry points of a group: `name = "package.with.files"`.

    Returns:
        Package with its version -> the folder; and a sentence for each that cannot be had.
    """
    folders, faults = {}, []
    for point in sorted(_INSTALLED.select(group=group), key=lambda point: (point.name, point.value)):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
        try:
            with _importing(point.value):
                spec = find_spec(point.value)
        except CallLimitError as error:
            faults.append(f"{package}: {error}")
            continue
        except FOREIGN as error:
            faults.append(f"{package}: '{point.value}' cannot be imported: {describe_fault(error, point.value)}")
            continue
        if spec is None or not spec.submodule_search_locations:
            faults.append(f"{package}: '{point.value}' (group {group}) is no package, whose folder holds the files")
        else:
            folders[package] = Path(spec.submodule_search_locations[0])
    return folders, faults


def resolve(target: str) -> Any:
    """Import `module:attribute`.

    Raises:
        RegistryError: If it cannot be imported; the message gives the file, the line and the error.
        CallLimitError: If its import takes longer than `CallLimits.plugin_s`.
    """
    return _resolve(target, target)


def load(registry: Mapping[str, str], name: str) -> Any:
    """Import the implementation that `name` refers to.

    Raises:
        ConfigError: If the registry has no such name; the message lists the names it has.
        RegistryError: If the implementation cannot be imported; the message gives the file, the line and the error.
    """
    return _resolve(name, registry[known(registry, name)])


NEEDS = frozenset(
    {"groups", "states", "greedy", "spans", "probabilities", "covariances", "unnormalised", "components"}
    | {"credits", "top_tokens"}
    | {"scene", "store", "server"}
    | {"clones"}
)
"""Possible requirements. Of a part of an objective: groups of at least two; the states of the environment; a greedy
rollout of each group; which tokens are reasoning and which are the answer; the probabilities of tokens; covariances
over a mini-batch; returns that are not normalised; what each component of the reward paid; the true credit of turns,
measured by continuations; a teacher's most probable tokens; also each companion model, by its name in `COMPANIONS` or
as `module:attribute`. Of a reward component: an environment in `SCENES`; the store that holds the turns, as its third
argument; a server, which the package `openai` asks. Of a search: copies of the environment."""


def needs(registry: "Registry", name: str) -> frozenset[str]:
    """Return the requirements of a part of an objective, a reward component or a search (`NEEDS`).

    A built-in entry declares them in the registry, so that settings can be checked without importing it. Any other
    declares them as an attribute of the function, `mine.needs = "critic"`, several words separated by spaces.

    Raises:
        RegistryError: If it cannot be loaded, or declares anything else.
    """
    if name in registry and name not in registry.packages:
        return frozenset(getattr(registry[name], "needs", "").split())
    declaration = getattr(load(registry, name), "needs", "")
    words = NEEDS | frozenset(registry.needed or ())
    takes_targets = registry.needed is not None and registry.needed.takes_targets
    if not isinstance(declaration, str) or not all(
        word in words or (takes_targets and TARGET.fullmatch(word)) for word in declaration.split()
    ):
        raise RegistryError(f"'{name}' has needs = {declaration!r}; expected words of {', '.join(sorted(words))}")
    return frozenset(declaration.split())


def attached(registry: "Registry", name: str, role: Literal["options", "marks"]) -> Any:
    """Return what belongs to an implementation, such as the settings model of its own options; None if nothing does.

    A built-in entry names it in the registry; any other has it in an attribute, `mine.options = MyOptions`.

    Raises:
        RegistryError: If it cannot be loaded.
    """
    if name in registry and name not in registry.packages:
        target = getattr(registry[name], role, "")
        return resolve(target) if target else None
    return getattr(load(registry, name), role, None)


def settings_model(registry: "Registry", name: str, base: type[M]) -> type[M]:
    """Return the settings model of an implementation, its `options`, which is derived from that of its kind.

    Raises:
        RegistryError: If it cannot be loaded, or has no such model.
    """
    model = attached(registry, name, "options")
    if not (isinstance(model, type) and issubclass(model, base)):
        raise RegistryError(
            f"'{name}' ({registry[name]}) has options = {model!r}; expected a class derived from "
            f"{base.__module__}.{base.__qualname__}"
        )
    return model


def checked_options(registry: "Registry", name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate an implementation's own options (`attached`) and fill in their defaults.

    Raises:
        ValueError: If the options are invalid, or if it takes none.
        RegistryError: If it cannot be loaded.
    """
    model = attached(registry, name, "options")
    if model is None:
        if options:
            raise ValueError(f"'{name}' takes no options, found {', '.join(sorted(options))}")
        return {}
    try:
        checked: dict[str, Any] = model.model_validate(dict(options)).model_dump(mode="json")
    except ValidationError as error:
        known = f"no such option; known: {', '.join(model.model_fields)}"
        parts = (
            (
                ".".join(map(str, fault["loc"])),
                known if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1 else fault["msg"],
            )
            for fault in error.errors()
        )
        faults = (": ".join(filter(None, (place, message.removeprefix("Value error, ")))) for place, message in parts)
        raise ValueError(f"options of '{name}': {'; '.join(faults)}") from error
    return checked


def known(registry: Mapping[str, str], name: str) -> str:
    """Return `name` if the registry has it, or if it is a target that can be loaded.

    Raises:
        ConfigError: Otherwise; the message lists the known names.
        RegistryError: If it is a target that cannot be imported.
    """
    fault = registry.faults.get(name) if isinstance(registry, Registry) else None
    if fault:
        raise ConfigError(fault)
    if name in registry:
        return name
    if isinstance(registry, Registry) and registry.takes_targets and ":" in name:
        if not TARGET.fullmatch(name):
            raise ConfigError(f"'{name}' is not a module:attribute, such as my_rewards:bonus")
        _resolve(name, name)
        return name
    hint = " (or module:attribute)" if isinstance(registry, Registry) and registry.takes_targets else ""
    raise ConfigError(f"'{name}' is not known here; known: {', '.join(sorted(registry))}{hint}")


def registered(registry: Mapping[str, str]) -> tuple[AfterValidator, WithJsonSchema]:
    """Return annotations for a string setting that must name an entry: `Annotated[str, *registered(FILTERS)]`."""
    schema: dict[str, Any] = {"type": "string", "enum": sorted(registry)}
    if isinstance(registry, Registry) and registry.takes_targets:
        target = {"type": "string", "pattern": f"^{TARGET.pattern}$", "title": "module:attribute"}
        schema = {"anyOf": [schema, target]} if registry else target
    return AfterValidator(lambda name: known(registry, name)), WithJsonSchema(schema)


def with_tables(registry: Registry, kind: str) -> Callable[[type[M]], type[M]]:
    """Return a decorator that adds to a settings model a table for each entry with options, under its name.

    A package declares the options of what it registers in the group with `.options` at its end, apart from the
    implementation: settings are read before engines and learners can be imported.
    """
    models = {name: resolve(entry.options) for name, entry in registry.items() if isinstance(entry, Entry)}
    for point in _INSTALLED.select(group=f"{registry.group}.options"):
        try:
            models |= {point.name: resolve(point.value)} if point.name in registry.packages else {}
        except (RegistryError, CallLimitError) as error:
            registry.faults[point.name] = f"the options of {kind} '{point.name}': {error}"
    fields: dict[str, Any] = {
        name: (options, Field(options(), description=f"Settings of {kind} '{name}'; no effect on others."))
        for name, options in models.items()
    }
    return lambda model: create_model(
        model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields
    )


def _resolve(name: str, target: str) -> Any:
    if not TARGET.fullmatch(target):
        place = "" if name == target else f"'{name}' is registered as {target}: "
        raise RegistryError(
            f"{place}'{target}' is no module:attribute, such as my_rewards:bonus. Mend it where it is declared, or "
            "uninstall its package"
        )
    module, _, attribute = target.partition(":")
    try:
        with _importing(module):
            return getattr(import_module(module), attribute)
    except StarPOError:
        raise
    except FOREIGN as error:
        place = "named as module:attribute" if name == target else f"registered as {target}"
        advice = "Fix that file, or uninstall its package"
        if isinstance(error, ModuleNotFoundError) and module.startswith(str(error.name)):
            advice = "Add its folder to PYTHONPATH where stages run, or install its package"
        raise RegistryError(
            f"'{name}' ({place}) cannot be loaded: {describe_fault(error, module)}. {advice}"
        ) from error


def _importing(module: str) -> AbstractContextManager[None]:
    """Return a context manager around the import of a module; one of this project has no limit."""
    if module.startswith("starpo."):
        return guarded()
    from starpo.ragen.core.limits import CallLimits  # only where it is needed: it takes time to import

    return guarded(f"the import of module '{module}'", CallLimits.current().plugin_limit)
