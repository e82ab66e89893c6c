"""Score the sentence pairs of raw text of any size by null rate and log-probability, and select the best pairs."""

import hashlib
import math
import os
import sys
import time
from array import array
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy
import torch
from fairseq import utils
from fairseq.data.data_utils import collate_tokens
from torch import nn
from tqdm import tqdm

from ..attention import attention_name
from ..data.folder import DataFolder
from ..data.settings import Settings, refuse_other_side
from ..errors import InputError
from ..files.lines import LineBlock, PathLike, read_lines, read_parallel_blocks
from ..files.locks import only_process
from ..files.outputs import refuse_overwriting
from ..files.plain_text import refuse_not_text
from ..files.records import read_json, sha256, write_json
from ..files.workers import Map, blocks, worker_pool
from ..models.transformer_rela import attention_modules
from ..text.preprocess import repair_tokens
from ..variants import VARIANTS
from .capture import load_model, recorded_weights
from .ranking import DEFAULT_BY, ORDERS, count_nulls
from .ranking_study import recommended_for
from .selections import Choice, choose, describe, selection_files, selections_path, write_selections

FORMAT = 1
COLUMNS = ("line", "null_rate", "log_probability", "source_pieces", "target_pieces", "reason")
_BLOCK = 1000  # pairs that a process scores at a time; it makes batches of pairs with similar lengths among them
_WINDOW = 20  # number of blocks from which batches are made on a GPU
_CELLS = 1 << 20  # most weights of one head in a batch: 200 MB with 8 heads and 6 layers
_LOGITS = 1 << 24  # most logits in memory at a time: 64 MB


class Score(NamedTuple):
    """The scores of one sentence pair.

    Attributes:
        null_rate: share (0 to 1) of (layer, head, target query) triples whose cross-attention weights are all 0;
            low = good. The query that predicts the end of sentence counts.
        log_probability: natural logarithm of the probability of the target given the source, divided by the number of
            target pieces including the end of sentence.
        source_pieces, target_pieces: numbers of pieces without the ends of sentences.
        reason: why the pair has no score, in which case both scores are nan; else empty.
    """

    null_rate: float
    log_probability: float
    source_pieces: int
    target_pieces: int
    reason: str = ""


class Encoded(NamedTuple):
    """The ids of both sides with the end of sentence; ``reason`` says why a pair cannot be scored, else it is empty."""

    source: List[int]
    target: List[int]
    reason: str = ""


class Ranking(NamedTuple):
    """Numbers of pairs of a ranked corpus.

    Attributes:
        pairs: all pairs.
        unscored: pairs without a score.
        kept, worst, sampled: pairs in the three selections; None for a selection that was not requested.
    """

    pairs: int
    unscored: int
    kept: Optional[int] = None
    worst: Optional[int] = None
    sampled: Optional[int] = None


class PairEncoder:
    """Convert raw text of both sides to ids, with the preparation steps of a data folder.

    If the training text of the data folder was given tokenised and truecased, this text must be so too.

    Args:
        data: a data folder.
        dictionaries: dictionaries of source and target.
        longest: most ids of source and target that the model can take.
    """

    def __init__(self, data: DataFolder, dictionaries: Tuple[Any, Any], longest: Tuple[int, int]) -> None:
        self.settings = data.settings
        self.tokenised = "train" in self.settings.tokenised
        self._dictionaries = dictionaries
        self._longest = longest
        self._sides = [self._steps(data, lang) for lang in self.settings.languages]

    def _steps(self, data: DataFolder, lang: str) -> Tuple[Any, Any, Any]:
        preprocess = data.preprocessor(lang, "none" if self.tokenised else None)
        recase = str if self.tokenised else data.truecaser(lang)
        return preprocess, recase, data.segmenter(lang)

    def __call__(self, sources: Sequence[str], targets: Sequence[str]) -> List[Encoded]:
        return [self._pair(*pair) for pair in zip(sources, targets)]

    def _pair(self, *texts: str) -> Encoded:
        sides: List[List[int]] = []
        reasons: List[str] = []
        for side, (name, text) in enumerate(zip(("source", "target"), texts)):
            try:
                pieces = self._pieces(side, text)
            except InputError:  # a word that looks like BPE pieces, which training text does not have
                sides.append([])
                reasons.append(f"unsplittable {name}")
                continue
            dictionary = self._dictionaries[side]
            ids = [dictionary.indices.get(piece, dictionary.unk()) for piece in pieces]
            sides.append([*ids, dictionary.eos()])
            if not ids:
                reasons.append(f"empty {name}")
            elif len(ids) >= self._longest[side]:
                reasons.append(f"long {name}")
        return Encoded(sides[0], sides[1], ", ".join(reasons))

    def _pieces(self, side: int, text: str) -> List[str]:
        preprocess, recase, segmenter = self._sides[side]
        tokens = preprocess(repair_tokens(text) if self.tokenised else text)
        return segmenter.process_line(recase(tokens)).split()


class PairScorer:
    """Compute the null rate and log-probability of sentence pairs with a model.

    Attributes:
        encode: the encoder from raw text to ids.
        label: name of the cross-attention, such as ``rela_g``.

    Args:
        model: a Transformer of this plugin or of fairseq, in evaluation mode.
        task: its translation task, which has the dictionaries.
        data: the data folder it was trained on.
        device: device to compute on.
        max_tokens: most padded pieces in a batch, counted on the longer side; a single pair may have more.
    """

    def __init__(
        self, model: nn.Module, task: Any, data: DataFolder, device: torch.device, max_tokens: int = 4096
    ) -> None:
        self.device = device
        self.max_tokens = max_tokens
        self._model = model.to(device)
        self._cross = attention_modules(model)["cross"]
        self._pads = task.source_dictionary.pad(), task.target_dictionary.pad()
        self._eos = task.target_dictionary.eos()
        self._left_pad_source = bool(getattr(task.cfg, "left_pad_source", True))
        self.label = "+".join(sorted({attention_name(module) for module in self._cross.values()}))
        longest = utils.resolve_max_positions(task.max_positions(), model.max_positions())
        self.encode = PairEncoder(data, (task.source_dictionary, task.target_dictionary), longest)

    @property
    def has_nulls(self) -> bool:
        """Whether queries of the model can be null.

        The weights of softmax, sparsemax and entmax sum to 1, and GeLU is 0 only at 0, so only ReLU makes null queries.
        """
        return any(name in VARIANTS and VARIANTS[name].can_be_null for name in self.label.split("+"))

    def score(self, pairs: Sequence[Tuple[str, str]]) -> List[Score]:
        """Return the scores of pairs of raw text, in order."""
        return self.score_encoded(self.encode([pair[0] for pair in pairs], [pair[1] for pair in pairs]))

    def score_encoded(self, pairs: Sequence[Encoded]) -> List[Score]:
        """Return the scores in order; they are computed in batches of pairs with similar lengths."""
        scores: List[Optional[Score]] = [None] * len(pairs)
        for index, pair in enumerate(pairs):
            if pair.reason:
                scores[index] = self._score(pair, math.nan, math.nan, pair.reason)
        for batch in self._batches(pairs):
            for index, values in zip(batch, self._score_batch([pairs[index] for index in batch])):
                # nan where the training of the model has diverged
                finite = math.isfinite(values[1])
                reason = "" if finite else "not finite"
                null_rate, log_probability = values if finite else (math.nan, math.nan)
                scores[index] = self._score(pairs[index], null_rate, log_probability, reason)
        return [score for score in scores if score is not None]

    @staticmethod
    def _score(pair: Encoded, null_rate: float, log_probability: float, reason: str) -> Score:
        source, target = (max(len(ids) - 1, 0) for ids in (pair.source, pair.target))
        return Score(null_rate, log_probability, source, target, reason)

    def _batches(self, pairs: Sequence[Encoded]) -> Iterator[List[int]]:
        """Yield batches as indices of pairs with similar lengths, limited by ``max_tokens`` and by the weights."""
        batch: List[int] = []
        longest = (0, 0)
        lengths = [(len(pair.target), len(pair.source)) for pair in pairs]
        for index in sorted((i for i, pair in enumerate(pairs) if not pair.reason), key=lengths.__getitem__):
            target, source = map(max, longest, lengths[index])
            size = len(batch) + 1
            if batch and (size * max(target, source) > self.max_tokens or size * target * source > _CELLS):
                yield batch
                batch, (target, source) = [], lengths[index]
            batch.append(index)
            longest = target, source
        if batch:
            yield batch

    @torch.no_grad()
    def _score_batch(self, pairs: Sequence[Encoded]) -> List[Tuple[float, float]]:
        sources = [torch.tensor(pair.source) for pair in pairs]
        targets = [torch.tensor(pair.target) for pair in pairs]
        source = collate_tokens(sources, self._pads[0], left_pad=self._left_pad_source).to(self.device)  # (B, S)
        target = collate_tokens(targets, self._pads[1]).to(self.device)  # (B, T)
        previous = collate_tokens(targets, self._pads[1], self._eos, move_eos_to_beginning=True).to(self.device)
        lengths = torch.tensor([len(ids) for ids in sources], device=self.device)
        # only cross-attention, because the weights of the other sites take memory
        with recorded_weights({"cross": self._cross}) as weights:
            features, _ = self._model(source, lengths, previous, features_only=True)
        words = target != self._pads[1]
        allowed = words[:, :, None] & (source != self._pads[0])[:, None, :]  # (B, T, S)
        nulls = sum(count_nulls(weights[name], allowed) for name in self._cross)  # (B,)
        queries = words.sum(dim=1) * sum(module.num_heads for module in self._cross.values())
        log_probabilities = self._log_probabilities(features, target).double().masked_fill(~words, 0.0).sum(dim=1)
        null_rates = (nulls.double() / queries).tolist()
        return list(zip(null_rates, (log_probabilities / words.sum(dim=1)).tolist()))

    def _log_probabilities(self, features: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of the target, (B, T), from features (B, T, d).

        The logits are computed for a part of the batch at a time, to limit memory.
        """
        size = max(1, _LOGITS // (target.size(1) * len(self._model.decoder.dictionary)))
        parts = []
        for some, wanted in zip(features.split(size), target.split(size)):
            logits = self._model.decoder.output_layer(some)  # (b, T, V)
            log_probabilities = self._model.get_normalized_probs((logits, None), log_probs=True)
            parts.append(log_probabilities.gather(-1, wanted.unsqueeze(-1)).squeeze(-1))
        return torch.cat(parts)


def load_scorer(checkpoint: Path, data: DataFolder, device: Optional[str] = None, max_tokens: int = 4096) -> PairScorer:
    """Load a model with its data folder for scoring.

    Args:
        checkpoint, data: a model and the data folder it was trained on.
        device: ``cpu`` or ``cuda``; by default a GPU if there is one.
        max_tokens: see :class:`PairScorer`.

    Raises:
        InputError: the checkpoint or the device cannot be used, the data folder is not that of the model, or its files
            have changed.
    """
    if max_tokens < 1:
        raise InputError(f"--max-tokens {max_tokens}: give a number of at least 1")
    where = _find_device(device)
    data.refuse_changed(data.text_files())
    model, task = load_model(checkpoint, data.path)
    return PairScorer(model, task, data, where, max_tokens)


def _find_device(name: Optional[str]) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {name}: cannot be used; give cpu, or cuda where there is a GPU") from error
    return device


def rank(
    checkpoint: Path,
    data: Path,
    source: Path,
    target: Path,
    output: Path,
    keep_best: Optional[int] = None,
    max_null_rate: Optional[float] = None,
    workers: Optional[int] = None,
    device: Optional[str] = None,
    max_tokens: int = 4096,
    by: str = DEFAULT_BY,
    keep_worst: Optional[int] = None,
    sample: Optional[int] = None,
    seed: int = 1,
) -> Ranking:
    """Score the pairs of lines of two raw text files in their order and in bounded memory, and select pairs by score.

    The files written are

    - ``OUTPUT``: tab-separated, with a header and one line for each pair; the columns are :data:`COLUMNS`, lines count
      from 0, see :class:`Score`;
    - ``OUTPUT.rank.json``: the checksums and settings of the inputs;
    - ``OUTPUT.SOURCE_LANG`` and ``OUTPUT.TARGET_LANG``: with ``keep_best`` or ``max_null_rate``, the unchanged lines of
      the best pairs, in their original order, see :func:`fairseq_rela.analysis.ranking.select_pairs`;
    - ``OUTPUT.worst.LANG`` and ``OUTPUT.sample.LANG``: the same for ``keep_worst`` and ``sample``;
    - ``OUTPUT.selections.json``: with any selection, see
      :func:`fairseq_rela.analysis.selections.write_selections`.

    Selections take about 50 bytes of memory for each pair. Scores are first appended to ``OUTPUT.partial``. An
    interrupted run continues from this file and gives the same bytes; a complete ranking is not computed again.

    Args:
        checkpoint, data: a model and the data folder it was trained on, whose preparation steps the text goes through.
        source, target: text of the two languages of the data folder, plain or ``.gz``.
        output: file to write.
        keep_best: most pairs to keep.
        max_null_rate: highest null rate to keep, from 0 to 1.
        workers: number of processes, by default one for each core; on a GPU, they only prepare the text.
        device: ``cpu`` or ``cuda``; by default a GPU if there is one.
        max_tokens: most padded pieces in a batch.
        by: order of the pairs, one of :data:`fairseq_rela.analysis.ranking.ORDERS`.
        keep_worst: number of the worst pairs to write.
        sample: number of pairs to write that are drawn at random from all pairs with a score.
        seed: seed of the sample.

    Raises:
        InputError: a file is missing or not UTF-8, the files differ in length, the model is of other data, an option
            has a bad value, or an output exists that was made from other inputs.
    """
    choice = Choice(by, keep_best, max_null_rate, keep_worst, sample, seed)
    _check_options(choice, workers)
    if not output.name:
        raise InputError(f"--output {output}: give the name of a file to write")
    folder = DataFolder(data)
    scorer = load_scorer(checkpoint, folder, device, max_tokens)
    settings = scorer.encode.settings
    refuse_swapped(source, target, settings)
    for path in (source, target):
        refuse_not_text(path)
    kept_files = selection_files(output, settings.languages)
    made = (output, _partial(output), _record(output), selections_path(output), *chain(*kept_files.values()))
    refuse_overwriting((checkpoint, source, target), made)
    if not scorer.has_nulls:
        print(
            f"warning: {scorer.label} always attends to something, so the null rate is 0 everywhere; only the "
            "log-probability tells pairs apart",
            file=sys.stderr,
        )
    if scorer.encode.tokenised:
        print(f"the training text of {data} was tokenised already, and the text to rank has to be so too")
    with only_process(output, "ranked"):
        pairs, checksums = _inspect(source, target)
        state = {
            "format": FORMAT,
            "attention": scorer.label,
            "pairs": pairs,
            "inputs": {
                "checkpoint": sha256(checkpoint),
                "data_folder": {name: sha256(data / name) for name in folder.text_files()},
                "settings": settings.record(),
                "source_text": checksums[0],
                "target_text": checksums[1],
            },
            # the last digits of the scores depend on which pairs are in a batch
            "batches": {"device": scorer.device.type, "block_size": _block(scorer), "max_tokens": max_tokens},
        }
        if not _is_complete(output, state):
            _score_corpus(scorer, source, target, output, state, workers or os.cpu_count() or 1)
        null_rates, log_probabilities = _read_scores(output, pairs)
        unscored = int(numpy.isnan(null_rates).sum())
        if unscored:
            print(f"{output}: {unscored:,} of {pairs:,} pairs have no score; the last column says why")
        if choice.is_empty:
            return Ranking(pairs, unscored)
        recommended = recommended_for(checkpoint)
        if recommended not in (None, by):
            print(f"{checkpoint.parent / 'rank.json'}: on damaged pairs --by {recommended} works better than --by {by}")
        try:
            chosen = choose(null_rates, log_probabilities, choice)
        except InputError as error:
            raise InputError(f"{output}: {error}") from error
        about = {"label": scorer.label, **choice._asdict(), "pairs": pairs, "unscored": unscored}
        record = write_selections(output, (source, target), settings.languages, chosen, about)
        counts = {name: int(mask.sum()) for name, mask in chosen.items()}
        for name, kept in counts.items():
            how = "drawn at random" if name == "sample" else f"kept, the {name} by {by}"
            print(f"{kept_files[name][0]}, {kept_files[name][1]}: {kept:,} of {pairs:,} pairs {how}")
        print(describe(record))
        return Ranking(pairs, unscored, *map(counts.get, kept_files))


def _check_options(choice: Choice, workers: Optional[int]) -> None:
    numbers = {"keep-best": choice.keep_best, "keep-worst": choice.keep_worst, "sample": choice.sample}
    for name, value in {**numbers, "workers": workers}.items():
        if value is not None and value < 1:
            raise InputError(f"--{name} {value}: give a number of at least 1")
    if choice.max_null_rate is not None and not 0 <= choice.max_null_rate <= 1:
        raise InputError(f"--max-null-rate {choice.max_null_rate}: give a number from 0 to 1")
    if choice.by not in ORDERS:
        raise InputError(f"--by {choice.by}: choose one of {', '.join(ORDERS)}")


def refuse_swapped(source: Path, target: Path, settings: Settings) -> None:
    """Check that the source and target files are not swapped, by their names, and not the same file.

    Raises:
        InputError: they are.
    """
    refuse_other_side(source, settings.source_lang, settings.target_lang)
    refuse_other_side(target, settings.target_lang, settings.source_lang)
    if source.resolve() == target.resolve():
        raise InputError(f"{source} is given for both sides; give the source and its translation")


def _inspect(source: PathLike, target: PathLike) -> Tuple[int, Tuple[str, str]]:
    """Return the number of pairs and the SHA-256 checksums of the lines of both files.

    The files are read completely before the scoring, which may take hours, so that errors in them show at once.

    Raises:
        InputError: the files are empty, not UTF-8 or of unequal length.
    """
    digests = hashlib.sha256(), hashlib.sha256()
    pairs = 0
    with tqdm(desc="read both files", unit=" pairs", unit_scale=True, disable=None, leave=False) as bar:
        for both in read_parallel_blocks(source, target, 20 * _BLOCK):
            for digest, block in zip(digests, both):
                block.decode()
                digest.update(block.content)
            pairs += len(both[0])
            bar.update(len(both[0]))
    if not pairs:
        raise InputError(f"{source}: no lines to rank")
    return pairs, (digests[0].hexdigest(), digests[1].hexdigest())


# --- scoring all pairs, and resuming an interrupted run ----------------------------------------------------------

Blocks = Iterable[Tuple[LineBlock, LineBlock]]


def _partial(output: Path) -> Path:
    return output.with_name(f"{output.name}.partial")


def _record(output: Path) -> Path:
    return output.with_name(f"{output.name}.rank.json")


def _block(scorer: PairScorer) -> int:
    """Return the number of pairs from which batches are made and after which results are written."""
    return _BLOCK if _in_processes(scorer) else _BLOCK * _WINDOW


def _in_processes(scorer: PairScorer) -> bool:
    """Return whether each process has its own model; on a GPU there is one model, and the processes only encode."""
    return scorer.device.type == "cpu"


def _is_complete(output: Path, state: Dict[str, Any]) -> bool:
    """Return whether the ranking exists; its batches may differ, because they change only the last digits.

    Raises:
        InputError: it was made from other inputs.
    """
    if not output.exists():
        return False
    _refuse_other(output, output, state, ("inputs",))
    print(f"{output}: already ranked from the same files by the same model")
    return True


def _refuse_other(path: Path, output: Path, state: Dict[str, Any], parts: Sequence[str]) -> None:
    """Check that the file ``path`` was made with the same values as ``state`` has in ``parts``.

    Raises:
        InputError: it was not, or not by this version of ``rela rank``.
    """
    if not path.is_file() or not _record(output).is_file():
        raise InputError(f"{path} exists and was not made by `rela rank`; choose another --output")
    begun = read_json(_record(output))
    if not isinstance(begun, dict) or begun.get("format") != FORMAT:
        raise InputError(f"{_record(output)}: not of this version of `rela rank`; choose another --output")
    for part in parts:
        for name, value in state[part].items():
            if begun.get(part, {}).get(name) != value:
                what = name.replace("_", " ")
                raise InputError(f"{path} was made with another {what}; remove it or choose another --output")


def _score_corpus(
    scorer: PairScorer, source: Path, target: Path, output: Path, state: Dict[str, Any], workers: int
) -> None:
    partial, pairs = _partial(output), state["pairs"]
    start = time.monotonic()
    try:
        number = done = _resume(partial, output, state)
        if done:
            print(f"{partial}: {done:,} of {pairs:,} pairs are scored already; going on", flush=True)
        todo = islice(read_parallel_blocks(source, target, _BLOCK), done // _BLOCK, None)
        results = _score_blocks(scorer, todo, min(workers, -(-(pairs - done) // _BLOCK) or 1))
        with open(partial, "ab") as file, closing(results), _bar(pairs, done) as bar:
            for scores in results:
                file.write("".join(map(_row, range(number, number + len(scores)), scores)).encode("utf-8"))
                file.flush()
                number += len(scores)
                bar.update(len(scores))
            os.fsync(file.fileno())
        if number != pairs:
            raise InputError(f"{source} or {target} has changed while it was read; remove {partial} and begin again")
        os.replace(partial, output)
    except OSError as error:
        raise InputError(f"{partial}: cannot be written ({error.strerror or error})") from error
    seconds = max(time.monotonic() - start, 1e-3)
    print(f"{output}: {pairs - done:,} pairs in {seconds:.1f} s, {(pairs - done) / seconds:,.1f} a second", flush=True)


def _bar(pairs: int, done: int) -> Any:
    return tqdm(total=pairs, initial=done, desc="rank", unit=" pairs", unit_scale=True, disable=None, leave=False)


def _resume(partial: Path, output: Path, state: Dict[str, Any]) -> int:
    """Truncate the file of an interrupted run after its last complete block, and return the number of pairs in it.

    Without such a file, a new one is started.

    Raises:
        InputError: the interrupted run had other inputs or batches, or the file was not made by ``rela rank``.
    """
    header = ("\t".join(COLUMNS) + "\n").encode("utf-8")
    if not partial.exists():
        write_json(_record(output), state)
        partial.write_bytes(header)
        return 0
    _refuse_other(partial, output, state, ("inputs", "batches"))
    done, end, position = 0, 0, len(header)
    with open(partial, "rb+") as file:
        if file.readline() == header:
            end = position
            for number, line in enumerate(file):
                # after a power failure, the end of the file may hold any bytes
                if not (line.startswith(b"%d\t" % number) and line.count(b"\t") == 5 and line.endswith(b"\n")):
                    break
                position += len(line)
                if (number + 1) % state["batches"]["block_size"] == 0:
                    done, end = number + 1, position
        file.seek(end)
        file.truncate()
        if not end:
            file.write(header)
    return done


def _row(number: int, score: Score) -> str:
    numbers = f"{score.null_rate:.6f}\t{score.log_probability:.6f}"
    return f"{number}\t{numbers}\t{score.source_pieces}\t{score.target_pieces}\t{score.reason}\n"


_worker: Dict[str, Any] = {}


def _score_blocks(scorer: PairScorer, todo: Blocks, workers: int) -> Iterator[List[Score]]:
    """Yield the scores of each block of pairs, or on a GPU of each window of blocks."""
    if _in_processes(scorer):
        with _threads_restored(), worker_pool(workers, _take_scorer, scorer) as run:
            yield from run(_score_block, todo)
    else:
        with worker_pool(workers, _take_encoder, scorer.encode) as run, closing(_encoded(run, todo)) as encoded:
            for window in blocks(encoded, _WINDOW):
                yield scorer.score_encoded(list(chain.from_iterable(window)))


def _encoded(run: Map, todo: Blocks) -> Iterator[List[Encoded]]:
    yield from run(_encode_block, todo)  # closing() needs a generator


@contextmanager
def _threads_restored() -> Iterator[None]:
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _take_scorer(scorer: PairScorer) -> None:
    # one thread for each process, so that the scores do not depend on the number of processes
    torch.set_num_threads(1)
    _worker["encode"], _worker["score"] = scorer.encode, scorer.score_encoded


def _take_encoder(encode: PairEncoder) -> None:
    _worker["encode"] = encode


def _encode_block(pair: Tuple[LineBlock, LineBlock]) -> List[Encoded]:
    return _worker["encode"](pair[0].decode(), pair[1].decode())


def _score_block(pair: Tuple[LineBlock, LineBlock]) -> List[Score]:
    return _worker["score"](_encode_block(pair))


# --- reading the scores -------------------------------------------------------------------------------------------


def _read_scores(ranking: Path, pairs: int) -> Tuple["numpy.ndarray", "numpy.ndarray"]:
    """Return the null rates and log-probabilities of a ranking, (n,) float32 each, nan where a pair has no score.

    Raises:
        InputError: the file is damaged.
    """
    scores = array("f"), array("f")
    for number, line in enumerate(read_lines(ranking), -1):
        if number < 0:
            continue
        columns = line.split("\t")
        try:
            if int(columns[0]) != number or len(columns) != len(COLUMNS):
                raise ValueError
            for values, column in zip(scores, columns[1:3]):
                values.append(float(column))
        except ValueError as error:
            raise InputError(f"{ranking}, line {number + 2}: damaged; remove the file and rank again") from error
    if len(scores[0]) != pairs:
        raise InputError(f"{ranking}: {len(scores[0])} of {pairs} pairs; remove the file and rank again")
    return numpy.frombuffer(scores[0], numpy.float32), numpy.frombuffer(scores[1], numpy.float32)
