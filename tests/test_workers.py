"""Processes that work on blocks, and work beside them."""

import threading

import pytest

from fairseq_rela.errors import InputError
from fairseq_rela.files.workers import begin, blocks, worker_pool


def double(items):
    return [2 * item for item in items]


@pytest.mark.parametrize("number", [1, 2])
def test_blocks_come_back_in_order(number):
    with worker_pool(number) as run:
        assert [item for block in run(double, blocks(range(10), 3)) for item in block] == list(range(0, 20, 2))


@pytest.mark.parametrize("number", [1, 2])
def test_work_beside_a_pool_gives_what_it_has_made_or_raised(number):
    def refuse():
        raise InputError("no")

    assert begin(number, double, [1, 2])() == [2, 4]
    with pytest.raises(InputError, match="no"):
        begin(number, refuse)()


def test_work_begins_at_once_beside_a_pool_and_with_one_process_when_it_is_wanted():
    begun, go_on = threading.Event(), threading.Event()

    def work():
        begun.set()
        return go_on.wait(20)

    result = begin(2, work)
    assert begun.wait(20)
    go_on.set()
    assert result()
    begun.clear()
    result = begin(1, work)
    assert not begun.is_set()
    assert result() and begun.is_set()
