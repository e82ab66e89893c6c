"""The stages from archives to prepared data: download, extract, prepare."""

import json
from dataclasses import asdict
from typing import Any, Dict, Optional

from ..corpora import extract as corpora
from ..corpora import synthetic
from ..corpora.download import fetch, fetch_all
from ..corpora.ledger import why_outdated
from ..corpora.spec import Sources
from ..data import prepare as preparing
from ..errors import InputError
from .experiment import Experiment


def download(experiment: Experiment) -> None:
    """Fetch the archives of the task, unless its text is already extracted."""
    if _extracted(experiment) is None:
        fetch_all(dict(experiment.spec.downloads), experiment.downloads, experiment.offline)
    else:
        print(f"{experiment.raw_text}: already extracted; the archives are not needed")


def extract(experiment: Experiment) -> None:
    """Extract the raw text of the task from its archives, and print the counts of each corpus."""
    raw, spec, sources = experiment.raw_text, experiment.spec, _sources(experiment)
    record = _extracted(experiment)
    if record is None:
        fetched = {
            name: fetch(download, experiment.downloads, experiment.offline) for name, download in spec.downloads.items()
        }
        print(corpora.cost(sources, experiment.root))
        entries = {name: entry for name, (_, entry) in fetched.items()}
        archives = {name: path for name, (path, _) in fetched.items()}
        record = corpora.extract(sources, archives, raw, {**_identity(experiment), "archives": entries})
    else:
        print(f"{raw}: already extracted")
    print(corpora.describe(record))


def _sources(experiment: Experiment) -> Sources:
    sources = experiment.spec.sources
    assert sources is not None  # without sources these stages are left out
    return sources


def _identity(experiment: Experiment) -> Dict[str, Any]:
    """Return what determines the raw text of a task, in the form in which JSON reads it back."""
    sources = json.loads(json.dumps(asdict(_sources(experiment))))
    del sources["bytes_a_pair"]  # an estimate, which does not change the text
    return {"task": experiment.task, "choices": dict(experiment.spec.choices), "sources": sources}


def _extracted(experiment: Experiment) -> Optional[Dict[str, Any]]:
    """Return the record of the extracted raw text, or None if nothing is extracted yet.

    Raises:
        InputError: the text was made from other corpora or archives, or a file is missing or has changed.
    """
    raw = experiment.raw_text
    record = corpora.finished(raw, _identity(experiment))
    for name, entry in (record or {}).get("archives", {}).items():
        reason = why_outdated(entry, experiment.spec.downloads[name].mirrors)
        if reason:
            raise InputError(f"{raw} was made from another {name}: {reason}; remove {raw} and run again")
    return record


def prepare(experiment: Experiment) -> None:
    """Make the data folder from the raw text, and print the counts of each split.

    Raises:
        InputError: the raw text is missing, or as :func:`fairseq_rela.data.prepare.prepare`.
    """
    raw, spec = experiment.raw_text, experiment.spec
    if experiment.raw is None:
        if experiment.task == "synthetic":
            if not (raw / "test.align").is_file():
                synthetic.write_corpus(raw)
        elif spec.sources is None:
            raise InputError(f"{experiment.task} needs --raw FOLDER, the folder with your copy of the corpus")
        elif _extracted(experiment) is None:
            raise InputError(f"{raw} is missing; run the stages download and extract first, or give --raw FOLDER")
    record = preparing.prepare(spec.corpus(raw), spec.settings, experiment.data, experiment.workers, experiment.moses)
    print(preparing.describe(record))
