"""Translate with fairseq-generate, restore the input order, detokenise, and score against the raw reference."""

import math
import re
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from ..data.binarise import binarise_texts, count_sentences
from ..data.folder import DataFolder
from ..data.settings import MAX_POSITIONS, refuse_other_side, require_language
from ..errors import InputError
from ..files.commands import USER_DIR, run_fairseq
from ..files.lines import PathLike, read_lines
from ..files.locks import only_process
from ..files.outputs import refuse_overwriting, write_whole
from ..files.plain_text import refuse_not_text, refuse_numbers, refuse_pieces
from ..text import bpe
from ..text.preprocess import TOKENISERS, Detokeniser
from ..text.truecase import detruecase

_SPEED = re.compile(r"Translated ([\d,]+) sentences \(([\d,]+) tokens\) in ([\d.]+)s")


class Decoding(NamedTuple):
    """Settings of the beam search; the defaults are the paper's, as in ``configs/decoding/paper.yaml``.

    Attributes:
        beam: beam size.
        gnmt_lenpen: exponent of the GNMT length penalty; None uses fairseq's own penalty, ``lenpen``.
        lenpen: exponent of fairseq's length penalty; used only if ``gnmt_lenpen`` is None.
        max_len_a, max_len_b: an output has at most ``max_len_a * source_length + max_len_b`` pieces.
        max_tokens: maximum number of source pieces in a batch, padding included.
    """

    beam: int = 4
    gnmt_lenpen: Optional[float] = 0.6
    lenpen: float = 1.0
    max_len_a: float = 1
    max_len_b: int = 50
    max_tokens: int = 4096

    def check(self) -> "Decoding":
        """Return these settings if all values are valid.

        Raises:
            InputError: a value has the wrong type or is out of range.
        """
        for name, value in self._asdict().items():
            whole = name in ("beam", "max_len_b", "max_tokens")
            number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            if not (number and math.isfinite(value)) and not (value is None and name == "gnmt_lenpen"):
                what = "whole number" if whole else "number"
                raise InputError(f"--{name.replace('_', '-')} {value}: give a {what}")
        if self.beam < 1:
            raise InputError(f"--beam {self.beam}: give a number of at least 1")
        if self.max_tokens < 1:
            raise InputError(f"--max-tokens {self.max_tokens}: give a number of at least 1")
        if self.max_len_a < 0 or self.max_len_b < 0 or self.max_len_a + self.max_len_b == 0:
            raise InputError("--max-len-a and --max-len-b leave no room for an output; give larger numbers")
        return self


class Speed(NamedTuple):
    """The speed that fairseq-generate reports: sentences, target pieces, and seconds spent in the search alone."""

    sentences: int
    tokens: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.sentences:,} sentences, {self.tokens / self.seconds:,.0f} pieces a second"


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
            raise InputError(f"{path}, line {number}: a second translation of sentence {index}")
        best.setdefault(index, columns[2])
        last = index
    missing = [i for i in range(sentences) if i not in best]
    extra = sorted(set(best) - set(range(sentences)))
    if missing or extra:
        what = f"no translation of sentence {_some(missing)}" if missing else f"unexpected sentence {_some(extra)}"
        raise InputError(f"{path}: {what} (ids from 0; {sentences} are expected, {len(best)} are there)")
    return [best[i] for i in range(sentences)]


def translate(
    data: Path,
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
        data: a prepared data folder.
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
    data: Path, checkpoint: Path, output: Path, decoding: Decoding, subset: str, source: Optional[Path]
) -> Speed:
    from .. import checkpoints  # imports torch

    state = checkpoints.load(checkpoint)  # refuses invalid or unsafe files before fairseq starts
    prepared = DataFolder(data)
    prepared.refuse_model(checkpoint, state)
    settings, languages = prepared.settings, prepared.languages
    log = output.with_name(output.name + ".log")
    if source is not None:
        refuse_other_side(source, *languages)
        refuse_not_text(source, f"give raw text of {languages[0]}, as a person writes it")
        refuse_overwriting([source], [log, *(Path(f"{output}.{suffix}") for suffix in ("bpe", "tok", "txt"))])
    with tempfile.TemporaryDirectory(prefix="rela-translate-") as name:
        work = Path(name)
        folder = data
        if source is not None:
            folder, subset = _binarise_text(source, prepared, work), "test"
        prefix = folder / f"{subset}.{languages[0]}-{languages[1]}.{languages[0]}"
        sentences = count_sentences(prefix)
        arguments: List[object] = [folder, "--user-dir", USER_DIR, "--task", "translation_rela"]
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
    to_text = _to_text(languages[1], settings.tokeniser, settings.truecase)
    tokens = [bpe.undo(line) for line in hypotheses]
    for suffix, lines in (("bpe", hypotheses), ("tok", tokens), ("txt", map(to_text, tokens))):
        with write_whole(f"{output}.{suffix}") as file:
            file.writelines(line + "\n" for line in lines)
    return speed


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    target_lang: str,
    tokeniser: str = "moses",
    tokenised_references: Optional[Sequence[str]] = None,
    truecased: bool = False,
) -> Dict[str, Any]:
    """Return sacreBLEU (0 to 100) of model output against the raw reference.

    Args:
        hypotheses: BPE pieces, as the model returned them. This function joins the pieces, undoes truecasing and
            detokenises.
        references: raw, unprocessed text.
        target_lang: language code; selects the detokeniser and sacreBLEU's tokeniser (zh for Chinese, otherwise 13a).
        tokeniser: the tokeniser of the data, see :class:`fairseq_rela.text.preprocess.Detokeniser`.
        tokenised_references: tokens from the same preprocessing as the model's data, for tokenised BLEU.
        truecased: whether the data was truecased.

    Returns:
        ``bleu``, ``signature``, ``sentences``, and ``hypothesis_length`` and ``reference_length`` in tokens of
        sacreBLEU's tokeniser. With ``tokenised_references`` also ``tokenised_bleu``, as multi-bleu.perl computes it,
        and ``tokenised_signature``. Tokenised BLEU is not comparable across preprocessing.

    Raises:
        InputError: an unknown language or tokeniser; the numbers of lines differ; the reference is empty or not raw
            text; or the hypotheses are numbered lines of fairseq-generate or SentencePiece, byte-level or WordPiece
            pieces.
    """
    from sacrebleu.metrics import BLEU

    require_language("--target-lang", target_lang)
    if tokeniser not in TOKENISERS:
        raise InputError(f"--tokeniser {tokeniser}: choose one of {', '.join(TOKENISERS)}")
    if not any(line.strip() for line in references):
        raise InputError("the reference has no text; is it the right file?")
    # this matches most lines of BPE pieces, but only one in many thousands of raw text
    if 10 * sum(line.endswith("@@") or "@@ " in line for line in references) >= len(references):
        raise InputError("the reference holds BPE pieces; give the raw text, such as DATA/raw/test.LANG")
    raw = "give the raw text, such as DATA/raw/test.LANG"
    refuse_numbers(references, "the reference", raw)
    refuse_pieces(references, "the reference", raw)
    refuse_numbers(hypotheses, "the hypotheses", "sort them by number and keep the last column")
    refuse_pieces(
        hypotheses, "the hypotheses", "give words: undo the pieces first, or let fairseq by --remove-bpe", False
    )
    _same_length(hypotheses, references, "reference")
    tokens = [bpe.undo(line) for line in hypotheses]
    to_text = _to_text(target_lang, tokeniser, truecased)
    metric = BLEU(tokenize="zh" if target_lang == "zh" else "13a")
    result = metric.corpus_score([to_text(line) for line in tokens], [list(references)])
    scores = {
        "bleu": result.score,
        "signature": str(metric.get_signature()),
        "sentences": len(references),
        "hypothesis_length": result.sys_len,
        "reference_length": result.ref_len,
    }
    if tokenised_references is not None:
        words = "give its words, such as DATA/text/test.LANG"
        refuse_numbers(tokenised_references, "the tokenised reference", words)
        refuse_pieces(tokenised_references, "the tokenised reference", words)
        _same_length(hypotheses, tokenised_references, "tokenised reference")
        metric = BLEU(tokenize="none", smooth_method="none", force=True)
        scores["tokenised_bleu"] = metric.corpus_score(tokens, [list(tokenised_references)]).score
        scores["tokenised_signature"] = str(metric.get_signature())
    return scores


def suspect_order(hypotheses: Sequence[str], references: Sequence[str]) -> bool:
    """Return whether the hypotheses are probably in another order than the references.

    This is so if there are at least 100 and the correlation of their lengths in characters is below 0.3. In the
    right order the correlation is about 0.9, in another order about 0.
    """
    if len(hypotheses) < 100 or len(hypotheses) != len(references):
        return False
    sides = [[len(bpe.undo(line)) for line in lines] for lines in (hypotheses, references)]
    means = [sum(side) / len(side) for side in sides]
    left, right = ([length - mean for length in side] for side, mean in zip(sides, means))
    spread = math.sqrt(sum(x * x for x in left) * sum(y * y for y in right))
    return spread > 0 and sum(x * y for x, y in zip(left, right)) < 0.3 * spread


def _to_text(lang: str, tokeniser: str, truecased: bool) -> Callable[[str], str]:
    """Return a function from tokens to text: it undoes truecasing if ``truecased``, then detokenises."""
    detokenise = Detokeniser(lang, tokeniser)
    return (lambda tokens: detokenise(detruecase(tokens))) if truecased and lang != "zh" else detokenise


def _same_length(hypotheses: Sequence[str], references: Sequence[str], what: str) -> None:
    if len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} hypotheses, {len(references)} lines of {what}: the two must be of the same text"
        )


def _binarise_text(source: Path, data: DataFolder, work: Path) -> Path:
    """Write a data folder in ``work`` whose test set is the source side of a raw text, and return its path."""
    languages = data.languages
    pieces = work / f"test.{languages[0]}"
    with write_whole(pieces) as file:
        for number, line in enumerate(data.segment(read_lines(source)), 1):
            if len(line.split()) >= MAX_POSITIONS:
                raise InputError(f"{source}, line {number}: {len(line.split())} pieces; shorten or split the sentence")
            file.write(line + "\n")
    if not pieces.stat().st_size:
        raise InputError(f"{source}: no lines to translate")
    folder = work / "data"
    folder.mkdir()
    binarise_texts(folder, data, {languages[0]: pieces}, "test")
    return folder


def _read_speed(path: Path) -> Speed:
    for line in read_lines(path):
        match = _SPEED.search(line)
        if match:
            sentences, tokens, seconds = (value.replace(",", "") for value in match.groups())
            return Speed(int(sentences), int(tokens), float(seconds))
    raise InputError(f"{path}: fairseq-generate did not report that it has finished")


def _some(ids: List[int]) -> str:
    return ", ".join(map(str, ids[:5])) + (" ..." if len(ids) > 5 else "")
