"""Extract the raw text of a task from downloaded archives, and count its pairs."""

import shutil
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from tqdm import tqdm

from ..errors import InputError
from ..files.lines import read_lines, read_parallel
from ..files.outputs import work_folder, write_whole
from ..files.records import read_json, sha256, write_json
from .archives import matches, read_members
from .formats import Member, member_name, read_pairs
from .spec import Expected, Part, Sources

RECORD = "extract.json"
_MOST_DAMAGED = 0.01  # largest share of damaged pairs in a training corpus; above it, the file is refused

Pair = Tuple[str, str]


def extract(
    sources: Sources, archives: Mapping[str, Path], output: Path, identity: Mapping[str, Any]
) -> Dict[str, Any]:
    """Write ``SPLIT.LANG`` and ``test.SUBSET.lines`` of a task to the new folder ``output``.

    Dev and test sets must be complete and undamaged. In a training corpus, up to 1 % of the pairs may be damaged (not
    UTF-8, or without two sides); they are left out and counted. Empty lines stay, and cleaning counts them.

    Args:
        sources: the corpora of the task.
        archives: the file of each download, by name.
        output: the folder to make.
        identity: what the text is made from; stored in the record and compared by :func:`finished`.

    Returns:
        the record, which is also written to ``extract.json``: the counts of each corpus, and checksums.

    Raises:
        InputError: a member is missing or damaged, sides have unequal lengths, or counts are not as expected.
    """
    with work_folder(output) as work:
        record: Dict[str, Any] = {**identity, "splits": {}, "subsets": {}}
        for split, parts in sources.splits.items():
            record["splits"][split] = _write_split(split, parts, sources.languages, archives, work)
        _check_train_pairs(record["splits"]["train"], sources.train_pairs)
        for name, part in sources.subsets.items():
            record["subsets"][name] = _write_subset(name, part, sources.languages, archives, work)
        if sources.reference_length is not None:
            _check_reference(work / f"test.{sources.languages[1]}", sources.reference_length)
        record["outputs"] = {path.name: sha256(path) for path in sorted(work.iterdir()) if path.is_file()}
        write_json(work / RECORD, record)
    return record


def cost(sources: Sources, folder: Path) -> str:
    """Return a line with the number of training pairs, the size of their text, and the free disk space, in GB."""
    known = [part.expected.pairs for part in sources.splits["train"] if part.expected is not None]
    pairs = sources.train_pairs.pairs if sources.train_pairs is not None else sum(known)
    more = " and more" if sources.train_pairs is None and len(known) < len(sources.splits["train"]) else ""
    needed, free = pairs * sources.bytes_a_pair / 1e9, shutil.disk_usage(folder).free / 1e9
    return f"{pairs:,} training pairs{more}: about {needed:.1f} GB of text; {free:.1f} GB are free"


def finished(output: Path, identity: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """Return the record of a complete folder that was made with the same ``identity``, or None if there is no folder.

    Raises:
        InputError: the folder was made from something else, or one of its files is missing or has changed.
    """
    if not output.exists():
        return None
    if not (output / RECORD).is_file():
        raise InputError(f"{output} exists and was not made by the stage extract; move it away")
    record = read_json(output / RECORD)
    if not isinstance(record, dict) or any(record.get(key) != value for key, value in identity.items()):
        raise InputError(f"{output} was made from other corpora; remove it, or choose another experiments folder")
    for name, checksum in record.get("outputs", {}).items():
        if not (output / name).is_file() or sha256(output / name) != checksum:
            raise InputError(f"{output / name} is missing or has changed; remove {output} and run again")
    return record


def describe(record: Mapping[str, Any]) -> str:
    """Return the counts of a record as text, one line for each corpus and subset."""
    lines = []
    for split, parts in record["splits"].items():
        for part in parts:
            damaged = ", ".join(f"{rule} {n:,}" for rule, n in part["left_out"].items() if n)
            lines.append(f"{split}: {part['pairs']:,} pairs from {part['from']}" + (f" ({damaged})" if damaged else ""))
    lines += [f"test.{name}: {n:,} lines of the test set" for name, n in record["subsets"].items()]
    return "\n".join(lines)


# --- a split -------------------------------------------------------------------------------------------------------


def _write_split(
    split: str, parts: Iterable[Part], languages: Tuple[str, str], archives: Mapping[str, Path], work: Path
) -> List[Dict[str, Any]]:
    counts = []
    with ExitStack() as stack:
        sides = [stack.enter_context(write_whole(work / f"{split}.{lang}", "wb")) for lang in languages]
        for part in parts:
            pairs = 0
            left_out: "Counter[str]" = Counter()
            with _members(part, archives, work) as files:
                for pair in tqdm(
                    read_pairs(part, files, languages),
                    desc=f"{split}: {part.name}",
                    unit=" pairs",
                    unit_scale=True,
                    disable=None,
                ):
                    if isinstance(pair, str):
                        left_out[pair] += 1
                        continue
                    pairs += 1
                    for side, line in zip(sides, pair):
                        side.write(line.encode("utf-8") + b"\n")
            _check_counts(split, part, pairs, left_out)
            counts.append({"from": part.name, "pairs": pairs, "left_out": dict(left_out)})
    return counts


def _check_counts(split: str, part: Part, pairs: int, left_out: "Counter[str]") -> None:
    damaged = sum(left_out.values())
    if damaged and (split != "train" or damaged > _MOST_DAMAGED * (pairs + damaged)):
        what = ", ".join(f"{rule}: {n:,}" for rule, n in left_out.items())
        raise InputError(f"{part.name}: {damaged:,} of {pairs + damaged:,} pairs are damaged ({what}); fetch it again")
    if not pairs:
        raise InputError(f"{part.name}: holds no pair of lines; fetch it again")
    if part.expected is not None and not part.expected.allows(pairs + damaged):
        raise InputError(
            f"{part.name}: {pairs + damaged:,} pairs, {part.expected} are expected; is it the right file, complete?"
        )


def _check_train_pairs(parts: List[Dict[str, Any]], expected: Optional[Expected]) -> None:
    """Check the number of training pairs in all corpora together, with the damaged pairs.

    Raises:
        InputError: it is not as expected.
    """
    pairs = sum(part["pairs"] + sum(part["left_out"].values()) for part in parts)
    if expected is not None and not expected.allows(pairs):
        raise InputError(
            f"train: {pairs:,} pairs in all corpora together, {expected} are expected; are they the right files, "
            "complete?"
        )


def _write_subset(name: str, part: Part, languages: Tuple[str, str], archives: Mapping[str, Path], work: Path) -> int:
    """Write ``test.NAME.lines``, the numbers of a subset's lines in the test set, and return how many they are.

    Lines are numbered from 0 and written in the order of the subset. A pair is found by both sides, or else by its
    source if only one line of the test set has that source; the reference of the test set is used then.

    Raises:
        InputError: a pair is not in the test set, a line occurs twice, or the count is not as expected.
    """
    pairs = list(read_parallel(*(work / f"test.{lang}" for lang in languages)))
    where: Dict[Pair, List[int]] = {}
    for number, pair in enumerate(pairs):
        where.setdefault(pair, []).append(number)
    sources = Counter(source for source, _ in pairs)
    only = {source: number for number, (source, _) in enumerate(pairs) if sources[source] == 1}
    lines, other = [], 0
    with _members(part, archives, work) as files:
        for pair in read_pairs(part, files, languages):
            if where.get(pair):
                lines.append(where[pair].pop(0))
            elif not isinstance(pair, str) and pair[0] in only:
                lines.append(only[pair[0]])
                other += 1
            else:
                raise InputError(f"{part.name}: a pair of the subset {name} is not in the test set")
    if len(set(lines)) < len(lines):
        raise InputError(f"{part.name}: the subset {name} has a line of the test set twice")
    if other:
        print(f"{part.name}: {other:,} of {len(lines):,} references differ from the test set's, which are used")
    _check_counts(name, part, len(lines), Counter())
    with write_whole(work / f"test.{name}.lines") as file:
        file.writelines(f"{line}\n" for line in lines)
    return len(lines)


def _check_reference(path: Path, expected: int) -> None:
    """Check the length of the test reference in tokens of sacreBLEU's tokeniser 13a.

    Raises:
        InputError: the length differs: then this is not the reference of published scores.
    """
    from sacrebleu.metrics import BLEU

    lines = list(read_lines(path))
    length = BLEU(tokenize="13a").corpus_score(lines, [lines]).ref_len
    if length != expected:
        raise InputError(f"{path.name}: the test reference has {length:,} 13a tokens, {expected:,} are expected")


@contextmanager
def _members(part: Part, archives: Mapping[str, Path], work: Path) -> Iterator[List[List[Member]]]:
    """Unpack the members of a part; yield their names and paths, one list for each of ``part.files``.

    The unpacked files are removed at the end of the context.
    """
    folder = work / "members"
    folder.mkdir()
    found: Dict[str, List[Member]] = {name: [] for name in part.files}
    for download in dict.fromkeys(part.downloads):
        wanted = {name: member_name(name) for name in found if name.partition(":")[0] == download}
        for number, (member, file) in enumerate(read_members(archives[download], list(wanted.values()))):
            # a download that is a single file has one member, with the name of the file; a member should match only
            # one of two patterns, because the names of the files contain their languages
            names = [name for name, pattern in wanted.items() if len(wanted) == 1 or matches(member, pattern)]
            if len(names) != 1:
                raise InputError(
                    f"{member} of {download} matches both {' and '.join(wanted.values())}; give narrower patterns"
                )
            name = names[0]
            path = folder / f"{download}.{number}"
            with open(path, "wb") as output:
                shutil.copyfileobj(file, output, 1 << 20)
            found[name].append((member, path))
    try:
        yield [found[name] for name in part.files]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
