"""Translate with fairseq-generate, restore the order of the input, and detokenise."""

import re
import tempfile
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional

from ..data.binarise import binarise_texts, count_sentences
from ..data.folder import DataFolder
from ..data.settings import MAX_POSITIONS, refuse_other_side
from ..errors import InputError
from ..files.commands import run_fairseq
from ..files.lines import PathLike, read_lines
from ..files.locks import only_process
from ..files.outputs import refuse_overwriting, write_whole
from ..files.plain_text import refuse_not_text
from ..text import bpe
from ..text.preprocess import Detokeniser
from ..text.truecase import detruecase
from ..user_dir import user_dir
from .decoding import Decoding

_SPEED = re.compile(r"Translated ([\d,]+) sentences \(([\d,]+) tokens\) in ([\d.]+)s .*?, ([\d.]+) tokens/s\)")


class Speed(NamedTuple):
    """The speed that fairseq-generate reports: sentences, target pieces, and seconds spent in the search alone."""

    sentences: int
    tokens: int
    seconds: float

    def __str__(self) -> str:
        rate = self.tokens / self.seconds if self.seconds else 0.0
        return f"{self.sentences:,} sentences, {rate:,.0f} pieces a second"


def read_hypotheses(path: PathLike, sentences: int) -> List[str]:
    """Return the best hypothesis of each sentence in fairseq's output, in the order of the input.

    fairseq prints sentences sorted by length, with ids from 0. With ``--nbest`` it prints several hypotheses per
    sentence, the best first. An empty translation is an empty column.

    Args:
        path: output of ``fairseq-generate`` or ``fairseq-interactive``.
        sentences: the expected number of sentences.

    Raises:
        InputError: an id is missing, unexpected or occurs again after another id, or a line is cut short.
    """
    best: Dict[int, str] = {}
    last = None
    for number, line in enumerate(read_lines(path), 1):
        if not line.startswith("H-"):
            continue
        columns = line.split("\t", 2)
        if len(columns) < 3 or not columns[0][2:].isdecimal():
            raise InputError(f"{path}, line {number}: not `H-ID, score, hypothesis` in three columns")
        index = int(columns[0][2:])
        if index in best and index != last:
            raise InputError(f"{path}, line {number}: a second translation of sentence {index}; give one output")
        best.setdefault(index, columns[2])
        last = index
    missing = [i for i in range(sentences) if i not in best]
    extra = sorted(set(best) - set(range(sentences)))
    if missing or extra:
        what = f"no translation of sentence {_some(missing)}" if missing else f"unexpected sentence {_some(extra)}"
        raise InputError(f"{path}: {what} (ids from 0; {sentences} are expected, {len(best)} are there)")
    return [best[i] for i in range(sentences)]


def translate(
    data: DataFolder,
    checkpoint: Path,
    output: Path,
    decoding: Decoding,
    subset: str = "test",
    source: Optional[Path] = None,
) -> Speed:
    """Translate a subset of a data folder, or a file of raw text, with ``fairseq-generate``.

    Writes ``OUTPUT.bpe`` (BPE pieces, as the model returned them), ``OUTPUT.tok`` (tokens), ``OUTPUT.txt``
    (detokenised text) and ``OUTPUT.log``. The first three have one line for each input line, in the same order.

    Args:
        data: the data folder of the model.
        checkpoint: the model.
        output: path and name to which the suffixes are added.
        decoding: settings of the search.
        subset: the subset of the data folder to translate.
        source: a file of raw source text to translate instead of the subset.

    Returns:
        the speed that fairseq-generate reports.

    Raises:
        InputError: a sentence has no translation, a file is missing or invalid, the model was trained with other
            dictionaries, or fairseq failed.
    """
    decoding.check()
    if not output.name:
        raise InputError(f"--output {output}: give a name that the files OUTPUT.txt and others begin with")
    with only_process(output, "translated"):
        return _translate_alone(data, checkpoint, output, decoding, subset, source)


def _translate_alone(
    data: DataFolder, checkpoint: Path, output: Path, decoding: Decoding, subset: str, source: Optional[Path]
) -> Speed:
    """Do the work of :func:`translate`; the caller holds the lock of the output."""
    from ..safe_loading import load  # imports torch

    state = load(checkpoint)  # refuses invalid or unsafe files before fairseq starts
    data.refuse_model(checkpoint, state)
    settings, languages = data.settings, data.languages
    log = output.with_name(output.name + ".log")
    if source is not None:
        refuse_other_side(source, *languages)
        refuse_not_text(source, f"give raw text of {languages[0]}, as a person writes it")
        refuse_overwriting([source], [log, *(Path(f"{output}.{suffix}") for suffix in ("bpe", "tok", "txt"))])
    with tempfile.TemporaryDirectory(prefix="rela-translate-") as name:
        work = Path(name)
        folder = data.path
        if source is not None:
            folder, subset = _binarise_text(source, data, work), "test"
        prefix = folder / f"{subset}.{languages[0]}-{languages[1]}.{languages[0]}"
        sentences = count_sentences(prefix)
        arguments: List[object] = [folder, "--user-dir", user_dir(), "--task", "translation_rela"]
        arguments += ["--source-lang", languages[0], "--target-lang", languages[1], "--gen-subset", subset]
        arguments += ["--path", checkpoint, "--results-path", work / "results"]
        arguments += ["--beam", decoding.beam, "--max-len-a", decoding.max_len_a, "--max-len-b", decoding.max_len_b]
        arguments += (
            ["--lenpen", decoding.lenpen] if decoding.gnmt_lenpen is None else ["--gnmt-lenpen", decoding.gnmt_lenpen]
        )
        arguments += ["--max-tokens", decoding.max_tokens, "--required-batch-size-multiple", 1]
        run_fairseq("generate", arguments, log=log)
        generated = work / "results" / f"generate-{subset}.txt"
        hypotheses = read_hypotheses(generated, sentences)
        speed = _read_speed(log)
    to_text = text_maker(languages[1], settings.tokeniser, settings.truecase)
    tokens = [bpe.undo(line) for line in hypotheses]
    for suffix, lines in (("bpe", hypotheses), ("tok", tokens), ("txt", map(to_text, tokens))):
        with write_whole(f"{output}.{suffix}") as file:
            file.writelines(line + "\n" for line in lines)
    return speed


def text_maker(lang: str, tokeniser: str, truecased: bool) -> Callable[[str], str]:
    """Return a function from tokens to text: it undoes truecasing if ``truecased``, then detokenises."""
    detokenise = Detokeniser(lang, tokeniser)
    return (lambda tokens: detokenise(detruecase(tokens))) if truecased and lang != "zh" else detokenise


def _binarise_text(source: Path, data: DataFolder, work: Path) -> Path:
    """Write a data folder in ``work`` whose test set is the source side of a raw text, and return its path."""
    pieces = work / f"test.{data.settings.source_lang}"
    with write_whole(pieces) as file:
        for number, line in enumerate(data.segment(read_lines(source)), 1):
            if len(line.split()) >= MAX_POSITIONS:
                raise InputError(f"{source}, line {number}: {len(line.split())} pieces; shorten or split the sentence")
            file.write(line + "\n")
    if not pieces.stat().st_size:
        raise InputError(f"{source}: no lines to translate")
    folder = work / "data"
    folder.mkdir()
    binarise_texts(folder, data, {data.settings.source_lang: pieces}, "test")
    return folder


def _read_speed(path: Path) -> Speed:
    for line in read_lines(path):
        match = _SPEED.search(line)
        if match:
            sentences, tokens, seconds, rate = (float(value.replace(",", "")) for value in match.groups())
            # the seconds are rounded to tenths
            return Speed(int(sentences), int(tokens), tokens / rate if rate else seconds)
    raise InputError(f"{path}: fairseq-generate did not report that it has finished; run it again")


def _some(ids: List[int]) -> str:
    return ", ".join(map(str, ids[:5])) + (" ..." if len(ids) > 5 else "")
