"""`--push` of exports and checkpoints to an in-process Hub: private, with a card, and without leaking the token."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from starpo.flows.cli import app
from starpo.flows.console.pushing import NOT_OF_THE_POLICY
from starpo.ragen.core.errors import ConfigError, HubError
from starpo.ragen.evidence.exchange.cards import write_model_card
from starpo.ragen.evidence.exchange.hub import HubRepository
from tests.ragen.evidence.exchange.fake_hub import FakeHub, Repository, fake_hub

TOKEN = "hf_" + "Secret9" * 5


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """Hub, with a token for it in the file that `hf auth login` writes."""
    from huggingface_hub import constants

    login = tmp_path / "token"
    login.write_text(TOKEN)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(login))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the fake Hub does not serve Xet storage
    with fake_hub(TOKEN) as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.url)
        yield served


def ragen(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "160"})


def export(store, folder: Path, *more: object, form: str = "datasets") -> Result:
    return ragen("export", "mine", "--format", form, "-o", folder, "--store", store.url, *more)


def files_under(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "token"]


def test_a_datasets_folder_is_pushed_whole_private_and_with_a_card(hub, store, put_run, tmp_path):
    put_run()
    done = export(store, tmp_path / "out", "--push", "me/games")
    assert done.exit_code == 0, done.output + repr(done.exception)
    assert f"pushed  {hub.url}/datasets/me/games (private), commit cccccccccccc" in done.stdout
    pushed = hub.repositories["datasets/me/games"]
    assert pushed.is_private
    here = {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in files_under(tmp_path / "out")}
    assert pushed.files == here
    card = here["README.md"].decode()
    assert card.startswith('---\nconfigs: [{"config_name": "trajectories"')
    digest = store.manifest("turns", store.runs.iteration("mine", 0)["rollout"]["turns"]).content_digest
    assert f'"turns": {{\n    "0": "{digest}"\n  }}' in card
    assert '"group_size"' in card
    assert "licen" not in card.lower()


def test_every_format_can_be_pushed(hub, store, put_run, tmp_path):
    put_run()
    done = export(store, tmp_path / "out", "--push", "me/chat", "--public", "--json", form="messages")
    assert json.loads(done.stdout)["pushed"] == {
        "url": f"{hub.url}/datasets/me/chat", "commit": "c" * 40, "is_private": False,
    }  # fmt: skip
    assert sorted(hub.repositories["datasets/me/chat"].files) == ["README.md", "iteration-00000.jsonl"]


def test_a_checkpoint_is_pushed_as_a_model_and_the_store_stays_as_it_is(hub, store, put_run, tmp_path):
    put_run()
    before = {path: path.read_bytes() for path in files_under(Path(store.url))}
    done = ragen("checkpoint", "mine", "--iteration", 0, "--push", "me/policy", "--store", store.url)
    assert done.exit_code == 0, done.output + repr(done.exception)
    pushed = hub.repositories["models/me/policy"]
    assert pushed.is_private
    assert "tokenizer.json" in pushed.files
    assert "manifest.json" not in pushed.files
    card = pushed.files["README.md"].decode()
    assert card.startswith('---\nlibrary_name: "transformers"\n')
    assert store.runs.iteration("mine", 0)["warm_start"]["checkpoint"] in card
    assert {path: path.read_bytes() for path in files_under(Path(store.url))} == before


def test_what_only_an_update_needs_stays_here(hub, tmp_path):
    beside = ("optimiser.safetensors", "critic.safetensors", "prm.safetensors", "trainer.json")
    for name in ("model.safetensors", *beside):
        (tmp_path / "policy" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "policy" / name).write_text(name)
    HubRepository("me/policy", "model").push(tmp_path / "policy", "a policy", NOT_OF_THE_POLICY)
    assert list(hub.repositories["models/me/policy"].files) == ["model.safetensors"]


def test_the_token_is_nowhere_but_in_the_requests(hub, store, put_run, tmp_path, caplog):
    put_run()
    caplog.set_level(0)
    said = [export(store, tmp_path / "out", "--push", "me/games", "--json")]
    assert set(hub.authorisations) == {f"Bearer {TOKEN}"}
    hub.token = "another"  # the server's answer repeats the token that it received
    said.append(export(store, tmp_path / "refused", "--push", "me/games"))
    assert isinstance(said[1].exception, HubError)
    assert "has no write access there" in str(said[1].exception)
    assert f"The folder is kept: {tmp_path / 'refused'}" in str(said[1].exception)
    texts = [result.output + repr(result.exception) for result in said] + [caplog.text]
    assert [text for text in texts if TOKEN in text] == []
    assert [path for path in files_under(tmp_path) if TOKEN.encode() in path.read_bytes()] == []


def test_a_repository_that_is_public_takes_nothing_private(hub, store, put_run, tmp_path):
    put_run()
    hub.repositories["datasets/me/open"] = Repository(is_private=False)
    done = export(store, tmp_path / "out", "--push", "me/open")
    assert "'me/open' already exists and is public; nothing was pushed" in str(done.exception)
    assert hub.repositories["datasets/me/open"].files == {}


def test_pushing_again_goes_to_the_same_repository(hub, store, put_run, tmp_path):
    put_run()
    for number in range(2):
        assert export(store, tmp_path / f"out{number}", "--push", "me/games").exit_code == 0
    assert list(hub.repositories) == ["datasets/me/games"]


def test_without_credentials_nothing_is_done_and_it_says_how_to_log_in(hub, store, put_run, tmp_path, monkeypatch):
    from huggingface_hub import constants

    put_run()
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    done = export(store, tmp_path / "out", "--push", "me/games")
    assert isinstance(done.exception, HubError)
    assert "log in with `hf auth login`, or set HF_TOKEN" in str(done.exception)
    assert not (tmp_path / "out").exists()
    assert hub.authorisations == []


@pytest.mark.parametrize(
    "name",
    [
        "mine", "a/b/c", "../up", "me/..", "/etc/passwd", "me/", "me/na me", "me/a--b", "me/x.git", "me/\u202eevil",
        "m" * 96 + "/x", "https://evil.example/me/x", "me/x\n", "me/.hidden", "-o/x", "",
    ],
)  # fmt: skip
def test_a_hostile_name_is_refused_before_any_work(hub, store, put_run, tmp_path, name):
    done = export(store, tmp_path / "out", f"--push={name}")
    assert isinstance(done.exception, ConfigError), done.output
    assert "expected OWNER/NAME" in str(done.exception)
    assert not (tmp_path / "out").exists()
    assert hub.authorisations == []


def test_a_push_needs_to_know_what_and_where(hub, store, put_run, tmp_path):
    put_run()
    assert "--public needs --push" in str(export(store, tmp_path / "out", "--public").exception)
    done = ragen("checkpoint", "mine", "--push", "me/policy", "--store", store.url)
    assert "--push needs --iteration N" in str(done.exception)


def test_a_hub_that_is_not_there_is_one_message(hub, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError, match=r"push to 'me/x' .* failed .*; try again, or check HF_ENDPOINT"):
        HubRepository("me/x", "model").push(tmp_path, "nothing")


def test_a_card_holds_no_secret_and_no_markup_of_a_run(store, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", "topsecretvalue")
    config = {
        "policy": {"type": "pretrained", "name_or_path": "Qwen/Qwen2.5-0.5B-Instruct"},
        "server": {"api_key": "plain", "url": "http://user:pass@host/", "note": "```\n# topsecretvalue </x>"},
    }
    run = store.runs.create("mine", flow="starpo", preset=None, config=config)
    write_model_card(tmp_path, run, {"iteration": 3, "key": "k", "digest": None})
    card = (tmp_path / "README.md").read_text()
    assert 'base_model: "Qwen/Qwen2.5-0.5B-Instruct"' in card
    assert [secret for secret in ("plain", "pass@", "topsecretvalue") if secret in card] == []
    assert "````json" in card
    assert "\n# ***" not in card
