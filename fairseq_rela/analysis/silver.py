"""Make silver word alignments with eflomal for the text of a data folder that has no manual alignments.

eflomal aligns all pairs of the folder in both directions. Links in the intersection are sure, links that
grow-diag-final (Koehn, Och and Marcu 2003) adds are possible. The alignments are automatic, so they are not a gold
standard.
"""

import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import AbstractSet, Any, Dict, List, Optional, Sequence, Set, Tuple

from ..corpora.spec import SPLITS
from ..data.folder import DataFolder
from ..errors import InputError
from ..files.lines import read_both_sides, read_lines, read_parallel
from ..files.machine import installed
from ..files.outputs import write_whole
from ..files.records import write_json
from .aer import Gold, Link, read_links

Pairs = Sequence[Tuple[str, str]]
_TOOLS = ("eflomal", "fairseq-rela")
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def grow_diag_final(forward: AbstractSet[Link], reverse: AbstractSet[Link]) -> Set[Link]:
    """Return the links that grow-diag-final selects from the two directions of an aligner.

    The algorithm starts with the intersection. It repeatedly adds links of the union that are horizontal, vertical or
    diagonal neighbours of a selected link and have a word without a link, until nothing changes. Then it adds the links
    of ``forward``, and after them those of ``reverse``, that have a word without a link.

    Args:
        forward, reverse: links (source, target) of one sentence pair.
    """
    union = sorted(forward | reverse, key=_by_target)
    links = set(forward & reverse)
    sources, targets = {i for i, _ in links}, {j for _, j in links}

    def add(link: Link) -> bool:
        if link in links or (link[0] in sources and link[1] in targets):
            return False
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])
        return True

    allowed, grown = set(union), True
    while grown:
        grown = False
        for i, j in union:
            if (i, j) in links:
                for di, dj in _NEIGHBOURS:
                    link = (i + di, j + dj)
                    grown |= link in allowed and add(link)
    for direction in (forward, reverse):
        for link in sorted(direction, key=_by_target):
            add(link)
    return links


def _by_target(link: Link) -> Link:
    return link[1], link[0]


def combine(forward: AbstractSet[Link], reverse: AbstractSet[Link]) -> Gold:
    """Return the intersection as sure links and the links of :func:`grow_diag_final` as possible links."""
    return Gold(frozenset(forward & reverse), frozenset(grow_diag_final(forward, reverse)))


def as_gold_line(links: Gold) -> str:
    """Return links as a line of a gold file: ``i-j`` for sure links, ``ipj`` for links that are only possible."""
    return " ".join(f"{i}{'-' if (i, j) in links.sure else 'p'}{j}" for i, j in sorted(links.possible))


def align(pairs: Pairs) -> List[Tuple[Set[Link], Set[Link]]]:
    """Align sentence pairs with eflomal.

    eflomal lower-cases the words and takes no seed, so a few links differ from run to run.

    Args:
        pairs: source and target sentence of each pair; words are separated by white space.

    Returns:
        the forward links and the reverse links of each pair, both as (source, target); pairs with an empty side have
        no links.

    Raises:
        InputError: eflomal is not installed or fails, or no pair has words on both sides.
    """
    try:
        from eflomal import Aligner
    except ImportError as error:
        raise InputError(f"silver alignments need eflomal ({error}); run: pip install eflomal") from error
    full = [index for index, pair in enumerate(pairs) if all(side.split() for side in pair)]
    if not full:
        raise InputError("no pair has words on both sides; give text to align")
    with tempfile.TemporaryDirectory(prefix="rela-silver-") as name:
        files = [Path(name) / direction for direction in ("forward", "reverse")]
        sides = [[pairs[index][side] + "\n" for index in full] for side in (0, 1)]
        try:
            Aligner().align(*sides, links_filename_fwd=str(files[0]), links_filename_rev=str(files[1]), quiet=True)
        except (OSError, RuntimeError) as error:
            raise InputError(f"eflomal failed: {error}") from error
        lengths = [(len(pairs[index][0].split()), len(pairs[index][1].split())) for index in full]
        links = [read_links(read_lines(file), f"eflomal's {file.name} links", lengths=lengths) for file in files]
    result: List[Tuple[Set[Link], Set[Link]]] = [(set(), set()) for _ in pairs]
    for index, forward, reverse in zip(full, *links):
        result[index] = set(forward.sure), set(reverse.sure)
    return result


def write_silver(data: Path, output: Path, subset: str = "test", sentences: Optional[Path] = None) -> Dict[str, Any]:
    """Write silver alignments to ``output``, one line for each sentence pair, and their record to ``output.json``.

    The format is that of ``rela analyze --gold``. Links count the words of ``text/SUBSET.LANG`` in the data folder,
    from 0.

    Args:
        data: a data folder of ``rela prepare``; eflomal aligns the pairs of all its splits together.
        output: file to write; its name must contain "silver".
        subset: split whose alignments are written.
        sentences: file of other pairs, ``source ||| target``, tokenised into words. They are aligned together with the
            pairs of the folder, and their alignments are written instead of those of ``subset``.

    Returns:
        the record in the JSON file.

    Raises:
        InputError: ``data`` is not a data folder or has changed, an option has a bad value, or as :func:`align`.
    """
    folder = DataFolder(data)
    languages = folder.languages
    if subset not in SPLITS:
        raise InputError(f"--subset {subset}: choose one of {', '.join(SPLITS)}")
    if "silver" not in output.name or output.is_dir():
        raise InputError(
            f'--output {output}: give the name of a file with "silver" in it, such as silver.{subset}.talp'
        )
    names = {split: [f"text/{split}.{lang}" for lang in languages] for split in SPLITS}
    folder.refuse_changed([name for both in names.values() for name in both])
    texts = {split: list(read_parallel(*(data / name for name in both))) for split, both in names.items()}
    name = subset
    if sentences is not None:
        name, subset = sentences.name, "sentences"
        texts[subset] = list(read_both_sides(sentences))
    print(f"eflomal: {sum(map(len, texts.values())):,} pairs, about a minute for 30,000", file=sys.stderr)
    links = iter(align([pair for text in texts.values() for pair in text]))
    chosen = {split: list(islice(links, len(text))) for split, text in texts.items()}[subset]
    silver = [combine(*both) for both in chosen]
    record = {
        **_counts(silver, chosen),
        "subset": name,
        "languages": list(languages),
        "trained_on": {split: len(text) for split, text in texts.items()},
        "data": {name: folder.outputs[name] for both in names.values() for name in both},
    }
    with write_whole(output) as file:
        file.writelines(as_gold_line(line) + "\n" for line in silver)
    write_json(f"{output}.json", record)
    return record


def _counts(silver: Sequence[Gold], links: Sequence[Tuple[Set[Link], Set[Link]]]) -> Dict[str, Any]:
    return {
        "kind": "silver: made by eflomal, checked by nobody",
        "sure": "intersection of both directions",
        "possible": "grow-diag-final (Koehn et al. 2003)",
        "sentences": len(silver),
        "links": {
            "sure": sum(len(line.sure) for line in silver),
            "possible": sum(len(line.possible) for line in silver),
            "forward": sum(len(forward) for forward, _ in links),
            "reverse": sum(len(reverse) for _, reverse in links),
        },
        "seed": None,  # eflomal takes no seed
        "versions": {**dict.fromkeys(_TOOLS), **installed(_TOOLS)},
    }
