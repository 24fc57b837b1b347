"""Chat templates are rendered as transformers does, and within limits."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from starpo.ragen.agents.prompting.rendering import render
from starpo.ragen.core.errors import TemplateError

CONVERSATION = [
    {"role": "user", "content": "<b>state</b> \u00e9 'x'"},
    {"role": "assistant", "content": "<think>so</think>Up"},
    {"role": "user", "content": "  two blanks"},
]
TOOLS = [{"type": "function", "function": {"name": "go", "parameters": {"type": "object", "properties": {}}}}]


@pytest.mark.parametrize(
    "name", ["gemma", "hermes_tools", "llama3", "mistral", "no_end_token", "opens_thought", "qwen2.5"]
)
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_texts_are_those_of_transformers(make_tokenizer, name, tools):
    tokenizer = make_tokenizer(name)
    expected = tokenizer.apply_chat_template(
        CONVERSATION, tools=tools, tokenize=False, add_generation_prompt=True, date_string="26 Jul 2024"
    )
    variables = {"tools": tools, **tokenizer.special_tokens_map}
    assert render(tokenizer.chat_template, [CONVERSATION], variables) == [(expected, "")]


def test_template_extensions_beyond_jinja():
    template = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
        "{% set ns = namespace(n=1) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}"
        "{{ {'a': '\u00e9<'} | tojson }}{{ strftime_now('%d.%m.%Y') }}"
    )
    assert render(template, [CONVERSATION], {}) == [(CONVERSATION[0]["content"] + '2{"a": "\u00e9<"}26.07.2024', "")]


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{ 'x' * 10000000000 }}", "MemoryError"),
        ("{{ 'x' * 10000000 }}", "it writes 10,000,000 characters"),
        ("{{ 'x'.center(99999999999) }}", "MemoryError"),
        ("{{ 10.0 ** 400 }}", "OverflowError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ messages[0].__class__.__mro__ }}", "SecurityError"),
        ("{% for", "TemplateSyntaxError"),
        ("{{ raise_exception('only tools') }}", "only tools"),
    ],
)
def test_excessive_or_failing_template_is_error(template, problem):
    ((text, error),) = render(template, [CONVERSATION], {})
    assert text == ""
    assert problem in error


@pytest.mark.ci
def test_endless_template_is_stopped():
    started = time.monotonic()
    loops = "{% for a in range(99999) %}" * 4 + "{% endfor %}" * 4
    with pytest.raises(TemplateError, match="5 s of CPU time"):
        render(loops, [CONVERSATION], {})
    assert time.monotonic() - started < 100


def test_secrets_do_not_reach_the_process(monkeypatch):
    from starpo.ragen.agents.prompting import rendering

    variables = {}
    run = rendering.subprocess.run
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setattr(rendering.subprocess, "run", lambda *a, **k: (variables.update(k["env"]), run(*a, **k))[1])
    assert render("{{ 'fresh' }}", [CONVERSATION], {}) == [("fresh", "")]
    assert set(variables) == {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    assert "HF_TOKEN" in os.environ


def test_unlimited_system_renders_without_limit(monkeypatch, tmp_path):
    """As macOS refuses RLIMIT_AS; the child imports `sitecustomize` from the search path that it is given."""
    (tmp_path / "sitecustomize.py").write_text(
        "import resource\nset_limit = resource.setrlimit\n"
        "def setrlimit(limit, values):\n"
        "    if limit == resource.RLIMIT_AS:\n"
        "        raise ValueError('current limit exceeds maximum limit')\n"
        "    set_limit(limit, values)\n"
        "resource.setrlimit = setrlimit\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert render("{{ 'without a limit' }}", [CONVERSATION], {}) == [("without a limit", "")]


def test_equal_requests_share_a_process(monkeypatch):
    from starpo.ragen.agents.prompting import rendering

    started = []
    run = rendering.subprocess.run
    monkeypatch.setattr(rendering.subprocess, "run", lambda *args, **given: started.append(args) or run(*args, **given))
    with ThreadPoolExecutor(8) as threads:
        texts = list(threads.map(lambda _: render("{{ messages[0].content }}", [CONVERSATION], {"new": 1}), range(8)))
    assert texts == [[(CONVERSATION[0]["content"], "")]] * 8
    assert len(started) == 1
