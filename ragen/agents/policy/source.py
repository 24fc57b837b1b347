"""The one folder that everything reads a pretrained policy from, whatever its settings name.

policy.name_or_path -> folder | GGUF file -> converted folder | package:NAME -> either | name -> the hub
-> a checked local folder in Hugging Face's layout
"""

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
from starpo.ragen.config.model_files import model_digest, model_place
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
    """Return the folder of a local model (`model_place`): the place itself, or what a GGUF file is converted to.

    Raises:
        PolicyError: As for `converted_folder`.
        MissingPackageError: As for `converted_folder`.
    """
    if place.is_dir():
        return place
    from starpo.ragen.agents.policy.gguf import converted_folder

    return converted_folder(place)


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
