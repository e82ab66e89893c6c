"""Worker processes for blocks."""

import pytest

from fairseq_rela.files.workers import blocks, worker_pool


def double(items):
    return [2 * item for item in items]


@pytest.mark.parametrize("number", [1, 2])
def test_blocks_come_back_in_order(number):
    with worker_pool(number) as run:
        assert [item for block in run(double, blocks(range(10), 3)) for item in block] == list(range(0, 20, 2))
