"""The choice of a head without a gold alignment, against loops over sets of links."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_rela.analysis.best_head import agreement, association, count_common


@st.composite
def sentences(draw):
    """Generate for each pair its lengths, and the links of three forward and two backward heads."""
    pairs = []
    for _ in range(draw(st.integers(1, 4))):
        source, target = draw(st.integers(0, 5)), draw(st.integers(0, 5))

        def heads(number, words, others):
            row = st.lists(st.integers(-1, others - 1), min_size=words, max_size=words)
            rows = draw(st.lists(row, min_size=number, max_size=number))
            return torch.tensor(rows, dtype=torch.long).reshape(number, words)

        pairs.append((heads(3, target, source), heads(2, source, target)))
    return pairs


def links(positions, head, swap):
    pairs = enumerate(positions[head].tolist())
    return {(word, other) if swap else (other, word) for word, other in pairs if other >= 0}


@settings(max_examples=200, deadline=None)
@given(sentences())
def test_agreement_is_the_f1_of_the_links(pairs):
    shares = agreement([forward for forward, _ in pairs], [backward for _, backward in pairs])
    for head in range(3):
        for other in range(2):
            both = [(links(forward, head, False), links(backward, other, True)) for forward, backward in pairs]
            common, size = sum(len(a & b) for a, b in both), sum(len(a) + len(b) for a, b in both)
            assert shares[head, other].item() == (2 * common / size if size else 0)
            counts = [count_common(*pair)[head, other].item() for pair in pairs]
            assert counts == [len(a & b) for a, b in both]


def test_association_is_computed_from_counts():
    pairs = [(["the", "cat"], ["die", "katze"]), (["the", "dog", "the"], ["der", "hund"]), ([], ["katze"])]
    right, wrong = [[0, 1], [0, 1], [-1]], [[1, 0], [1, -1], [-1]]
    positions = [torch.tensor(heads) for heads in zip(right, wrong)]
    # c(the) = 2, c(cat) = c(dog) = 1, c(katze) = 2, c(die) = c(der) = c(hund) = 1
    expected = [(2 / 3 + 2 / 3 + 2 / 3 + 1 + 0) / 5, (1 + 2 / 4 + 1 + 0 + 0) / 5]
    assert association(positions, pairs).tolist() == torch.tensor(expected, dtype=torch.double).tolist()


def test_the_head_that_links_translations_has_the_highest_association():
    generator = torch.Generator().manual_seed(1)
    pairs, positions = [], []
    for _ in range(60):
        order = torch.randperm(30, generator=generator)[:6].tolist()
        target = list(reversed(order))
        pairs.append(([f"s{i}" for i in order], [f"t{i}" for i in target]))
        true = [order.index(i) for i in target]
        heads = [list(range(6)), true, [5] * 6, true[1:] + true[:1], true[-1:] + true[:-1], [-1] * 6]
        positions.append(torch.tensor(heads))
    means = association(positions, pairs)
    assert int(means.argmax()) == 1 and means[5] == 0
