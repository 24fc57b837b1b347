"""The one folder that everything reads a pretrained policy from, whatever its settings name.

policy.name_or_path -> folder | GGUF file -> converted folder | package:NAME -> either | name -> the hub
-> a checked local folder in Hugging Face's layout

An adapter's folder that names a base elsewhere is read as one folder, of links to the base's files and the adapter's.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from starpo.ragen.agents.policy.folder import check_folder
from starpo.ragen.agents.policy.links import link
from starpo.ragen.config.model_files import (
    ADAPTER,
    base_of_adapter,
    model_digest,
    model_place,
    models_cache,
    place_of_base,
    read_files,
)
from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.core.errors import PolicyError

_DOWNLOADED = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model", "vocab.txt", "merges.txt")
_TWICE = ("consolidated*", "original/*")  # the same weights once more, in another layout


def resolve_policy(policy: PretrainedPolicy) -> str:
    """Return the folder of a pretrained policy: downloaded if it is on the hub, converted if it is a GGUF file.

    Returns:
        A local folder with a config, weights in safetensors and a tokenizer, checked by `check_folder`.

    Raises:
        PolicyError: If there is no such folder, file, package or model, the hub does not respond, the folder is not a
            policy's, or the digest of the files differs from `policy.digest`.
        MissingPackageError: If it is a GGUF file, and the packages that read it are not installed.
    """
    place = model_place(policy.name_or_path)
    if place is None:
        folder = _download(policy.name_or_path, policy.revision)
    else:
        digest = model_digest(place) if policy.digest else ""
        if digest != policy.digest:
            raise PolicyError(
                f"the files in '{place}' have changed: they have the digest {digest}, but policy.digest is "
                f"{policy.digest}. Restore the original files, or leave policy.digest out of the settings to use the "
                "files as they are now"
            )
        folder = str(local_folder(place))
    check_folder(folder)
    return folder


def local_folder(place: Path) -> Path:
    """Return the folder of a local model (`model_place`): the place itself, what a GGUF file is converted to, or an
    adapter together with its base.

    Raises:
        PolicyError: As for `converted_folder`; if the base of an adapter cannot be had.
        MissingPackageError: As for `converted_folder`.
    """
    if place.is_dir():
        base = base_of_adapter(place)
        return place if base is None else _with_base(place, base)
    from starpo.ragen.agents.policy.gguf import converted_folder

    return converted_folder(place)


def _with_base(adapter: Path, base: str) -> Path:
    """Return a folder of links to the files of an adapter's base and to the adapter's two; it may be deleted at any
    time, and is then made again."""
    place = place_of_base(adapter, base)
    model = Path(_download(base, None)) if place is None else local_folder(place)
    folder = models_cache() / model_digest(adapter)
    if folder.is_dir() and all(each.exists() for each in folder.rglob("*")):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".made-") as temporary:
        policy = Path(temporary) / "made"
        links = {file.relative_to(model): file for file in read_files(model)}
        for name, file in {**links, **{Path(name): adapter / name for name in ADAPTER}}.items():
            (policy / name).parent.mkdir(parents=True, exist_ok=True)
            link(policy / name, file)
        shutil.rmtree(folder, ignore_errors=True)  # links to where files were
        with contextlib.suppress(OSError):  # another process was first
            policy.rename(folder)
    return folder


def _download(name: str, revision: str | None) -> str:
    what = f"'{name}'" + (f" at revision '{revision}'" if revision else "")
    try:
        wanted, left_out = list(_DOWNLOADED), list(_TWICE)
        return snapshot_download(name, revision=revision, allow_patterns=wanted, ignore_patterns=left_out)
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise PolicyError(
            f"policy.name_or_path: neither a local folder nor a model that can be read on the hub: {what}; check "
            "the name (a private model needs HF_TOKEN to be set)"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise PolicyError(
            f"the Hugging Face hub does not answer, and {what} is not in the local cache. Download it first where "
            f"there is a network (`hf download {name}`) and give the folder as policy.name_or_path, or use the "
            "embedded policy, which needs no download: policy.type = 'tiny'"
        ) from error
