"""Sets of sentence pairs with gold word alignments, as they are published: which file is what, and what comes first."""

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..data.lines import read_lines, write_whole
from ..errors import InputError
from .aer import guess_base

LINKS = (".talp", ".align", ".pharaoh")  # endings of files of links
_BETWEEN = " ||| "  # the two sides in a file of both


class GoldSet(NamedTuple):
    """
    Attributes:
        source, target: the sentences, a file for each side.
        links: the file of links.
        base: number of the first word in it, 0 or 1.
        swapped: whether it has the target word first.
        files: the files that were given or found, by which the set is known.
    """

    source: Path
    target: Path
    links: Path
    base: int
    swapped: bool
    files: List[Path]


def open_gold_set(paths: Sequence[Path], languages: Tuple[str, str], work: Path) -> GoldSet:
    """Find the sentences and the links of a gold set.

    The sentences are in one file ``NAME.L1-L2``, a pair "first ||| second" a line, or in two files ``NAME.L1`` and
    ``NAME.L2``. The links are in a file of another name, such as ``deen.talp``, where ``deen`` says which side comes
    first; without that it is the first side of the sentences, or the source. Words count from 1 where no link has a 0.

    Args:
        paths: a folder with these files, or the files.
        languages: source and target.
        work: a folder to write the two sides into, where they are in one file.

    Raises:
        InputError: files that are missing, or of which several may be meant.
    """
    files = _list(paths)
    both = [path for path in files if path.suffix in (f".{'-'.join(languages)}", f".{'-'.join(languages[::-1])}")]
    sides = {lang: [path for path in files if path.suffix == f".{lang}"] for lang in languages}
    where = ", ".join(map(str, paths))
    first = None
    if len(both) == 1:
        text = both
        order = both[0].suffix[1:].split("-")
        first = order[0]
        sentences = _split(both[0], order, work)
    elif all(len(found) == 1 for found in sides.values()):
        text = [sides[lang][0] for lang in languages]
        sentences = {lang: sides[lang][0] for lang in languages}
    else:
        raise InputError(
            f"--gold-alignment {where}: give the sentences as one file NAME.{'-'.join(languages)} of lines "
            f'"source ||| target", or as one NAME.{languages[0]} and one NAME.{languages[1]}'
        )
    links = _find_links([path for path in files if path not in text], languages, where, named=len(paths) > 1)
    first = _first_language(links, languages) or first or languages[0]
    base = guess_base(read_lines(links))
    source, target = (sentences[lang] for lang in languages)
    return GoldSet(source, target, links, base, first == languages[1], [*text, links])


def _list(paths: Sequence[Path]) -> List[Path]:
    """Return the files of a folder, or the files themselves."""
    for path in paths:
        if not path.exists():
            raise InputError(f"--gold-alignment {path}: no such file or folder")
    folders = [path for path in paths if path.is_dir()]
    if folders and len(paths) > 1:
        raise InputError(f"--gold-alignment {folders[0]}: give one folder, or files")
    return sorted(path for path in folders[0].iterdir() if path.is_file()) if folders else list(paths)


def _first_language(links: Path, languages: Sequence[str]) -> Optional[str]:
    """Return the language of the first word of each link, None where the name of the file does not say."""
    source, target = languages
    for name in (links.stem, links.suffix[1:]):
        for first, second in ((source, target), (target, source)):
            if name in (first + second, f"{first}-{second}"):
                return first
    return None


def _find_links(files: Sequence[Path], languages: Sequence[str], where: str, named: bool) -> Path:
    """Return the file of links, which in a folder is told by its name."""
    found = [path for path in files if named or path.suffix in LINKS]
    if len(found) > 1:  # links of aligners may lie beside the gold ones
        found = [path for path in found if _first_language(path, languages)] or found
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise InputError(
            f"--gold-alignment {where}: one file of links {'/'.join(LINKS)} is needed, here are: {names}; "
            "give the files of sentences and links, each by a --gold-alignment of its own"
        )
    return found[0]


def _split(path: Path, order: Sequence[str], work: Path) -> Dict[str, Path]:
    """Write each side of "first ||| second" into a file of its own."""
    lines: List[List[str]] = []
    for number, line in enumerate(read_lines(path), 1):
        both = f" {line} ".split(_BETWEEN)  # a side may be empty
        if len(both) != 2:
            raise InputError(f'{path}, line {number}: not "source{_BETWEEN}target"')
        lines.append([side.strip() for side in both])
    files = {}
    for side, lang in enumerate(order):
        files[lang] = work / f"{path.stem}.{lang}"
        with write_whole(files[lang]) as file:
            file.writelines(pair[side] + "\n" for pair in lines)
    return files
