"""Gold word alignments: find their sentences and links, and check that they count the words of the same text."""

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..errors import InputError
from ..files.lines import read_both_sides, read_lines, read_parallel
from ..files.outputs import write_whole
from ..files.records import sha256
from .aer import Gold, guess_base, read_links
from .options import Options

LINKS = (".talp", ".align", ".pharaoh")  # endings of the names of files of links


class GoldSet(NamedTuple):
    """A set of sentence pairs with gold word alignments.

    Attributes:
        source, target: files of the sentences of each side.
        links: file of the links.
        base: number of the first word in ``links``, 0 or 1.
        swapped: whether the target word comes first in ``links``.
        files: the files that were given or found, whose checksums identify the set.
    """

    source: Path
    target: Path
    links: Path
    base: int
    swapped: bool
    files: List[Path]

    @property
    def record(self) -> Dict[str, Any]:
        """The names and checksums of the files, which identify the set in an analysis."""
        files = {path.name: sha256(path) for path in self.files}
        return {"file": self.links.name, "sha256": sha256(self.links), "files": files}

    def read(self, lengths: Sequence[Tuple[int, int]]) -> List[Gold]:
        """Return the links of each sentence pair.

        Args:
            lengths: numbers of source and target words of each pair.

        Raises:
            InputError: as :func:`fairseq_rela.analysis.aer.read_links`.
        """
        return read_links(read_lines(self.links), str(self.links), self.base, self.swapped, lengths)


def open_gold_set(paths: Sequence[Path], languages: Tuple[str, str], work: Path) -> GoldSet:
    """Find the sentences and the links of a gold set.

    The sentences are in one file ``NAME.L1-L2`` with a pair "first ||| second" on each line, or in two files
    ``NAME.L1`` and ``NAME.L2``. The links are in another file, such as ``deen.talp``. The two languages in its name
    give the side that comes first in the links; if its name has none, the first side of ``NAME.L1-L2`` or the source
    comes first. Words count from 1 if no link has a word 0.

    Args:
        paths: a folder with these files, or the files.
        languages: source and target language.
        work: folder for files of the two sides, if the sentences are in one file.

    Raises:
        InputError: a file is missing, several files fit, or a line does not have two sides.
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
    """Return the language of the first word of each link, from the name of the file, or None."""
    source, target = languages
    for name in (links.stem, links.suffix[1:]):
        for first, second in ((source, target), (target, source)):
            if name in (first + second, f"{first}-{second}"):
                return first
    return None


def _find_links(files: Sequence[Path], languages: Sequence[str], where: str, named: bool) -> Path:
    """Return the file of links; among the files of a folder, its name must end as in :data:`LINKS`.

    Raises:
        InputError: there is no such file, or several.
    """
    found = [path for path in files if named or path.suffix in LINKS]
    if len(found) > 1:  # the folder may also hold the links of aligners
        found = [path for path in found if _first_language(path, languages)] or found
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise InputError(
            f"--gold-alignment {where}: one file of links ({', '.join(LINKS)}) is needed, found: {names}; "
            "give each file of sentences and links by its own --gold-alignment"
        )
    return found[0]


def _split(path: Path, order: Sequence[str], work: Path) -> Dict[str, Path]:
    """Write each side of lines "first ||| second" to its own file, and return language to file."""
    pairs = list(read_both_sides(path))
    files = {}
    for side, lang in enumerate(order):
        files[lang] = work / f"{path.stem}.{lang}"
        with write_whole(files[lang]) as file:
            file.writelines(pair[side] + "\n" for pair in pairs)
    return files


def read_gold(options: Options, languages: Sequence[str], lengths: Sequence[Tuple[int, int]]) -> Optional[List[Gold]]:
    """Return the gold links of each sentence of a subset, or None without a gold alignment.

    Args:
        options: those of the analysis.
        languages: source and target language.
        lengths: numbers of source and target words of each sentence.

    Raises:
        InputError: a file cannot be read, or the numbers of sentences or of words differ.
    """
    if options.gold is None:
        return None
    _refuse_other_words(options.gold, options.gold_sentences, languages, lengths)
    return read_links(read_lines(options.gold), str(options.gold), options.gold_base, options.gold_reversed, lengths)


def _refuse_other_words(
    gold: Path, given: Sequence[Path], languages: Sequence[str], lengths: Sequence[Tuple[int, int]]
) -> None:
    """Check that the text of a gold alignment has the words of the prepared text.

    Raises:
        InputError: the numbers of sentences or of words differ.
    """
    files = list(given) or [gold.with_suffix(f".{lang}") for lang in languages]
    if len(files) != 2:
        raise InputError("give the sentences of the gold alignment as two files, source and target")
    if not given and not all(path.is_file() for path in files):
        return
    counted = list(zip(*([_word_counts(line) for line in lines] for lines in zip(*read_parallel(*files)))))
    if len(counted) != len(lengths):
        raise InputError(
            f"{files[0]} has {len(counted)} sentences, but the subset {len(lengths)}; give the sentences of the subset"
        )
    for number, (counts, prepared) in enumerate(zip(counted, lengths), 1):
        for path, possible, words in zip(files, counts, prepared):
            if words not in possible:
                raise InputError(
                    f"{path}, line {number}: {possible[0]} words, but {words} in the prepared text, so the gold "
                    "alignment counts other words; prepare the subset from its tokens (rela prepare --tokenised)"
                )


def _word_counts(line: str) -> Tuple[int, ...]:
    """Return the possible numbers of words of a line: two if a full stop is joined to the last word, else one."""
    words = line.split()
    together = bool(words) and len(words[-1]) > 1 and words[-1].endswith(".")
    return (len(words), len(words) + 1) if together else (len(words),)
