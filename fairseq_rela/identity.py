"""The identity of data, which a model must share: two languages and the checksums of two dictionaries."""

import hashlib
from typing import Any, Dict, Iterable

from .errors import InputError

TASK_STATE = "translation_rela"  # key of a checkpoint's task_state: the identity of the training data


def dictionary_checksum(pieces: Iterable[str]) -> str:
    """Return the SHA-256 checksum, in hexadecimal, of a dictionary's pieces in their order.

    Args:
        pieces: the pieces, without the special symbols and without counts.
    """
    return hashlib.sha256("\n".join(pieces).encode("utf-8")).hexdigest()


def identity(source_lang: str, target_lang: str, source_dictionary: str, target_dictionary: str) -> Dict[str, str]:
    """Return the identity of data as a checkpoint stores it: languages and dictionary checksums.

    Args:
        source_lang, target_lang: language codes.
        source_dictionary, target_dictionary: checksums from :func:`dictionary_checksum`.
    """
    return {
        "source_lang": source_lang,
        "target_lang": target_lang,
        "source_dictionary": source_dictionary,
        "target_dictionary": target_dictionary,
    }


def refuse_other_data(trained: Any, given: Dict[str, str], checkpoint: Any, data: Any) -> None:
    """Refuse data whose dictionaries or translation direction differ from those that a model was trained with.

    A model would otherwise read the data without an error if the other dictionary has the same size.

    Args:
        trained: :func:`identity` of the training data, from the checkpoint; None if the checkpoint has none, and
            then nothing is refused.
        given: :func:`identity` of the data.
        checkpoint, data: their names, for messages.

    Raises:
        InputError: the dictionaries differ, or source and target are swapped.
    """
    if not isinstance(trained, dict) or not given.keys() <= trained.keys():
        return
    source, target = trained["source_lang"], trained["target_lang"]
    if (source, target) == (given["target_lang"], given["source_lang"]):
        raise InputError(f"{checkpoint} translates {source} to {target}, not the other way; swap the two languages")
    refuse_other_dictionaries(trained, given, checkpoint, data)


def refuse_other_dictionaries(trained: Any, given: Dict[str, str], checkpoint: Any, data: Any) -> None:
    """Refuse data whose dictionaries differ from those that a model was trained with.

    Args:
        trained, given, checkpoint, data: as for :func:`refuse_other_data`.

    Raises:
        InputError: the dictionaries of a side differ.
    """
    if not isinstance(trained, dict) or not given.keys() <= trained.keys():
        return
    for side in ("source", "target"):
        if trained[f"{side}_dictionary"] != given[f"{side}_dictionary"]:
            name = f"dict.{given[f'{side}_lang']}.txt"
            raise InputError(
                f"{checkpoint} was trained with another {name} than that of {data}; give the data that it was trained "
                "on"
            )
