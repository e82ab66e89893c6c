"""The generated corpus: reproducible, without leaks, with the gold alignment of its own words."""

from collections import Counter

import pytest

from fairseq_rela.corpora.synthetic import make_corpus, write_corpus
from fairseq_rela.errors import InputError
from fairseq_rela.files.lines import read_lines
from fairseq_rela.text.preprocess import Preprocessor

SIZES = {"train": 800, "valid": 50, "test": 100}


def test_the_same_seed_gives_the_same_corpus():
    assert make_corpus(1, SIZES) == make_corpus(1, SIZES)
    assert make_corpus(1, SIZES) != make_corpus(2, SIZES)


def test_no_sentence_is_in_two_splits():
    corpus = make_corpus(1, SIZES)
    seen = [tuple(s.source) for sentences in corpus.values() for s in sentences]
    assert len(seen) == len(set(seen)) == sum(SIZES.values())


def test_links_stay_inside_sentences_and_follow_the_grammar():
    sentences = make_corpus(1, SIZES)["train"]
    reordered = multiple = unaligned_source = unaligned_target = 0
    meanings = Counter()
    for s in sentences:
        assert all(0 <= i < len(s.source) and 0 <= j < len(s.target) for i, j in s.links)
        assert len(set(s.links)) == len(s.links)
        sources, targets = [i for i, _ in s.links], [j for _, j in s.links]
        reordered += any(a < c and b > d for a, b in s.links for c, d in s.links)
        multiple += len(set(sources)) < len(sources) or len(set(targets)) < len(targets)
        unaligned_source += any(s.source[i] == "the" for i in range(len(s.source)) if i not in sources)
        unaligned_target += any(s.target[j] == "ka" for j in range(len(s.target)) if j not in targets)
        assert all(s.source[i] == "the" for i in range(len(s.source)) if i not in sources)
        assert all(s.target[j] == "ka" for j in range(len(s.target)) if j not in targets)
        assert (len(s.source) - 1, len(s.target) - 1) in s.links
        meanings.update((s.source[i], s.target[j]) for i, j in s.links)
    n = len(sentences)
    assert reordered > 0.95 * n and multiple > 0.3 * n and unaligned_source > 0.6 * n and unaligned_target == n
    # a source word has few translations: its forms under agreement
    forms = Counter(source for source, _ in meanings)
    assert max(forms.values()) <= 8


def test_positions_are_those_of_the_tokenised_text(tmp_path):
    write_corpus(tmp_path, seed=4, train_pairs=200)
    sentences = make_corpus(4, {"train": 200, "valid": 200, "test": 300})["test"]
    tokens = [
        [Preprocessor(lang)(line).split() for line in read_lines(tmp_path / f"test.{lang}")] for lang in ("xa", "xb")
    ]
    links = list(read_lines(tmp_path / "test.align"))
    assert len(sentences) == len(tokens[0]) == len(tokens[1]) == len(links) == 300
    for s, source, target, line in zip(sentences, *tokens, links):
        assert s.source == source and s.target == target
        assert [tuple(map(int, link.split("-"))) for link in line.split()] == s.links


@pytest.mark.parametrize("pairs", [0, -1, 10**9])
def test_invalid_sizes_are_refused(pairs, tmp_path):
    with pytest.raises(InputError, match="--pairs"):
        write_corpus(tmp_path, train_pairs=pairs)
    assert list(tmp_path.iterdir()) == []
