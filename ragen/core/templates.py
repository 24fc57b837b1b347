"""Gateway to HTML pages: values in a template are escaped, and their invisible characters replaced."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from starpo.ragen.core.visible import visible


def template(package: str, name: str) -> Template:
    """Load a template from a package's folder `templates`."""
    environment = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalise,
    )
    return environment.get_template(name)


def _finalise(value: Any) -> Any:
    return visible(value) if type(value) is str else value  # Markup is a subclass of str, and trusted
