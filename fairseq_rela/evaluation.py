"""Translations in the order of their input, detokenised and scored against the raw reference."""

import math
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .commands import USER_DIR, run_fairseq
from .data import bpe
from .data.binarise import (
    TASK_STATE,
    binarise,
    count_sentences,
    dictionary_file_checksum,
    identity,
    refuse_other_data,
)
from .data.folders import only_process
from .data.lines import PathLike, read_json, read_lines, refuse_overwriting, write_whole
from .data.outputs import refuse_not_text, refuse_numbers, refuse_pieces
from .data.prepare import (
    MAX_POSITIONS,
    RECORD,
    load_record,
    refuse_other_side,
    require_language,
    segment_text,
    settings_of,
)
from .data.text import TOKENISERS, Detokeniser
from .data.truecase import detruecase
from .errors import InputError

_SPEED = re.compile(r"Translated ([\d,]+) sentences \(([\d,]+) tokens\) in ([\d.]+)s")


class Decoding(NamedTuple):
    """How to search: the paper's settings, which ``configs/decoding/paper.yaml`` holds.

    Attributes:
        beam: size of the beam.
        gnmt_lenpen: exponent of the GNMT length penalty, or None for fairseq's own ``lenpen``.
        lenpen: exponent of fairseq's length penalty, where there is no other.
        max_len_a, max_len_b: at most a times the source length plus b pieces.
        max_tokens: padded source pieces in a batch.
    """

    beam: int = 4
    gnmt_lenpen: Optional[float] = 0.6
    lenpen: float = 1.0
    max_len_a: float = 1
    max_len_b: int = 50
    max_tokens: int = 4096

    def check(self) -> "Decoding":
        """
        Raises:
            InputError: a value that cannot be.
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
    """What fairseq-generate says of its speed: sentences, target pieces, seconds of search alone."""

    sentences: int
    tokens: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.sentences:,} sentences, {self.tokens / self.seconds:,.0f} pieces a second"


def read_hypotheses(path: PathLike, sentences: int) -> List[str]:
    """The best hypotheses in fairseq's output, in the order of the input.

    fairseq prints sentences by length, under ids from 0; with ``--nbest`` several times, best first; and an
    empty translation as an empty column.

    Args:
        path: output of ``fairseq-generate`` or ``fairseq-interactive``.
        sentences: how many there must be.

    Raises:
        InputError: ids that are missing, unexpected, or come back after another; or a line cut short.
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
    data: Path, checkpoint: Path, output: Path, decoding: Decoding, subset: str = "test", source: Optional[Path] = None
) -> Speed:
    """Translate a subset of a data folder, or a file of raw text, by ``fairseq-generate``.

    Writes ``output.bpe``, pieces as the model gave them; ``output.tok``, tokens; and ``output.txt``, text: each
    has exactly one line for each line of input, in the same order.

    Raises:
        InputError: a sentence without translation, files that are missing, or fairseq failed.
    """
    decoding.check()
    if not output.name:
        raise InputError(f"--output {output}: give a name that the files OUTPUT.txt and others begin with")
    with only_process(output, "translated"):
        return _translate_alone(data, checkpoint, output, decoding, subset, source)


def _translate_alone(
    data: Path, checkpoint: Path, output: Path, decoding: Decoding, subset: str, source: Optional[Path]
) -> Speed:
    from . import checkpoints  # imports torch

    state = checkpoints.load(checkpoint)  # refuses what is not a checkpoint, or would run code, in one line
    settings = settings_of(load_record(data))
    refuse_other_dictionaries(checkpoint, data, state)
    languages = settings.languages
    log = output.with_name(output.name + ".log")
    if source is not None:
        refuse_other_side(source, *languages)
        refuse_not_text(source, f"give raw text of {languages[0]}, as a person writes it")
        refuse_overwriting([source], [log, *(Path(f"{output}.{suffix}") for suffix in ("bpe", "tok", "txt"))])
    with tempfile.TemporaryDirectory(prefix="rela-translate-") as name:
        work = Path(name)
        folder = data
        if source is not None:
            folder, subset = _binarise_text(source, data, languages, work), "test"
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


def refuse_other_dictionaries(checkpoint: Path, data: Path, state: Optional[Dict[str, Any]] = None) -> None:
    """
    Args:
        state: what the checkpoint holds; without it only the record of its run is asked.

    Raises:
        InputError: the checkpoint, or the record of its run, says that it was trained with other dictionaries.
    """
    if state is not None:
        langs = settings_of(load_record(data)).languages
        given = identity(*langs, *(dictionary_file_checksum(data / f"dict.{lang}.txt") for lang in langs))
        refuse_other_data((state.get("task_state") or {}).get(TASK_STATE), given, checkpoint, data)
    run, record = checkpoint.parent / "train.json", data / RECORD
    if run.is_file() and record.is_file():
        try:
            trained = read_json(run)["data"]
            ours = isinstance(trained, dict) and any(name.startswith("dict.") for name in trained)
        except (InputError, TypeError, KeyError):
            ours = False  # many a data set has a file of this name
        given = load_record(data)["outputs"]
        for name in given if ours else ():
            if name.startswith("dict.") and trained.get(name) != given[name]:
                raise InputError(f"{checkpoint} was trained with another {name} than that of {data}; give its own data")


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    target_lang: str,
    tokeniser: str = "moses",
    tokenised_references: Optional[Sequence[str]] = None,
    truecased: bool = False,
) -> Dict[str, Any]:
    """sacreBLEU of model output against the raw reference.

    Args:
        hypotheses: pieces as the model gave them; BPE and truecasing are undone and the text detokenised here.
        references: raw text, untouched.
        target_lang: decides how to detokenise; and sacreBLEU's tokeniser, which is 13a but for Chinese.
        tokeniser: of the data, see :class:`fairseq_rela.data.text.Detokeniser`.
        tokenised_references: tokens, made by the same pipeline as the model's data, for tokenised BLEU.
        truecased: the data was truecased.

    Returns:
        ``bleu`` and ``signature``, ``hypothesis_length`` and ``reference_length`` in 13a tokens; where asked for
        ``tokenised_bleu`` (what multi-bleu.perl gives), which is not comparable across preprocessing.

    Raises:
        InputError: the numbers of lines differ, the reference is not raw text, or the hypotheses are not in the order
            of the reference (numbered lines of fairseq-generate) or hold SentencePiece marks.
    """
    from sacrebleu.metrics import BLEU

    require_language("--target-lang", target_lang)
    if tokeniser not in TOKENISERS:
        raise InputError(f"--tokeniser {tokeniser}: choose one of {', '.join(TOKENISERS)}")
    if not any(line.strip() for line in references):
        raise InputError("the reference has no text; is it the right file?")
    # of pieces most lines have this; of text, one in many thousands
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
    """Return whether the lengths of 100 or more hypotheses and references have a correlation below 0.3.

    Translations in the order of their references have one of about 0.9, in another order of about 0.
    """
    if len(hypotheses) < 100 or len(hypotheses) != len(references):
        return False
    sides = [[len(bpe.undo(line)) for line in lines] for lines in (hypotheses, references)]
    means = [sum(side) / len(side) for side in sides]
    left, right = ([length - mean for length in side] for side, mean in zip(sides, means))
    spread = math.sqrt(sum(x * x for x in left) * sum(y * y for y in right))
    return spread > 0 and sum(x * y for x, y in zip(left, right)) < 0.3 * spread


def _to_text(lang: str, tokeniser: str, truecased: bool) -> Callable[[str], str]:
    """Tokens to text: the first word of a sentence in capitals again, then detokenised."""
    detokenise = Detokeniser(lang, tokeniser)
    return (lambda tokens: detokenise(detruecase(tokens))) if truecased and lang != "zh" else detokenise


def _same_length(hypotheses: Sequence[str], references: Sequence[str], what: str) -> None:
    if len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} hypotheses, {len(references)} lines of {what}: the two must be of the same text"
        )


def _binarise_text(source: Path, data: Path, languages: Tuple[str, str], work: Path) -> Path:
    """A data folder with only the source side of a raw text as its test set."""
    pieces = work / f"test.{languages[0]}"
    with write_whole(pieces) as file:
        for number, line in enumerate(segment_text(read_lines(source), data), 1):
            if len(line.split()) >= MAX_POSITIONS:
                raise InputError(f"{source}, line {number}: {len(line.split())} pieces; shorten or split the sentence")
            file.write(line + "\n")
    if not pieces.stat().st_size:
        raise InputError(f"{source}: no lines to translate")
    folder = work / "data"
    folder.mkdir()
    binarise(folder, *languages, {"test": work / "test"}, workers=1, dictionaries=data, only_source=True)
    shutil.copyfile(data / f"dict.{languages[1]}.txt", folder / f"dict.{languages[1]}.txt")
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
