"""A resumed epoch continues with its first batches, or one line of the log warns that it does not."""

import json
from collections import Counter

import pytest
from conftest import run_fairseq, train_arguments
from fairseq.data.iterators import GroupedIterator
from test_tasks import dataset, task_with, training_iterator

from fairseq_rela.errors import InputError

MADE_WITH = dict(max_tokens=40, seed=3, num_shards=1, required_batch_size_multiple=1)


def begin(sentences=60, **options):
    task = task_with(update_freq=options.pop("update_freq", [1]))
    task.datasets = {"train": dataset(sentences)}
    return training_iterator(task, **{**MADE_WITH, **options})


def trained_on(iterator, updates, update_freq):
    """Return the sentences of the next updates, by fairseq's own loop; all remaining ones where ``updates`` is None."""
    grouped = GroupedIterator(iterator.next_epoch_itr(), update_freq)
    ids = []
    for number, batches in enumerate(grouped, 1):
        ids += [i for batch in batches for i in batch["id"].tolist()]
        if number == updates:
            break
    return ids


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def interrupted(caplog, sentences=60, update_freq=2, **options):
    """Interrupt an epoch after two updates of two batches; return warnings, counts of each sentence, iterator."""
    first = begin()
    ids = trained_on(first, 2, 2)
    state = json.loads(json.dumps(first.state_dict()))  # plain, for a checkpoint
    assert state["iterations_in_epoch"] == 4
    second = begin(sentences, update_freq=[update_freq], **options)
    second.load_state_dict(state)
    counts = Counter(ids + trained_on(second, None, update_freq))
    return warnings_of(caplog), counts, second


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"data_buffer_size": 2}, {"update_freq": 1}])
def test_resumed_run_sees_the_same_batches_without_a_warning(options, caplog):
    """fairseq counts batches, not updates: an --update-freq that divides their number repeats and skips nothing."""
    warnings, counts, iterator = interrupted(caplog, **options)
    assert warnings == [] and counts == Counter(range(60)) and iterator.next_epoch_idx == 2


@pytest.mark.slow
def test_an_update_freq_that_does_not_divide_the_finished_batches_warns(caplog):
    """In that case fairseq's groups of batches end early, and the epoch begins again."""
    warnings, counts, iterator = interrupted(caplog, update_freq=3)
    assert counts != Counter(range(60)) and iterator.next_epoch_idx == 1
    assert (
        len(warnings) == 1
        and "epoch 1 is resumed after 4 batches, which --update-freq 3 does not divide" in warnings[0]
    )


def test_the_update_freq_of_the_resumed_epoch_counts():
    """With [4, 2] the value 2 applies from the second epoch on."""
    iterator = begin(update_freq=[4, 2])
    assert [iterator._update_freq(epoch) for epoch in (1, 2, 3)] == [4, 2, 2]
    assert task_with().cfg.update_freq == "${optimization.update_freq}"
    for unknown in (None, [], "${optimization.update_freq}"):
        assert begin(update_freq=unknown)._update_freq(1) == 1


@pytest.mark.parametrize(
    "options, change",
    [
        ({"max_tokens": 64}, "--max-tokens is 64, was 40"),
        ({"max_tokens": None, "max_sentences": 6}, "--max-tokens is None, was 40, --batch-size is 6, was None"),
        ({"required_batch_size_multiple": 4}, "--required-batch-size-multiple is 4, was 1"),
        ({"seed": 4}, "--seed is 4, was 3"),
        ({"num_shards": 2}, "--distributed-world-size is 2, was 1"),
        ({"sentences": 70}, "the training data, or which of them are too long, have changed"),
    ],
)
def test_other_batches_are_named_in_one_line(options, change, caplog):
    warnings, counts, _ = interrupted(caplog, **options)
    assert counts != Counter(range(options.get("sentences", 60)))  # sentences are repeated, or left out
    assert len(warnings) == 1 and f"epoch 1 is resumed with other batches: {change}; " in warnings[0]
    assert "\n" not in warnings[0]


def test_an_option_that_changes_no_batch_is_not_named(caplog):
    first = begin(max_tokens=None, max_sentences=1)
    trained_on(first, 1, 1)
    begin(max_tokens=64, max_sentences=1).load_state_dict(first.state_dict())
    assert warnings_of(caplog) == []


def test_options_may_change_between_epochs_without_a_warning(caplog):
    first = begin()
    trained_on(first, None, 1)
    second = begin(max_tokens=64)
    second.load_state_dict(first.state_dict())
    assert second.next_epoch_idx == 2 and warnings_of(caplog) == []


def test_an_epoch_with_fewer_batches_than_were_trained_on_is_an_error():
    """fairseq's own message asks the user to report a mismatch to its developers."""
    first = begin()
    trained_on(first, 2, 2)
    with pytest.raises(
        InputError, match="--max-tokens is 4000, was 40, and it now has fewer batches than were trained on"
    ):
        begin(max_tokens=4000).load_state_dict(first.state_dict())


def test_a_checkpoint_without_the_record_gives_no_warning(caplog):
    """Checkpoints of fairseq's own task have no record either."""
    first = begin()
    trained_on(first, 2, 2)
    state = first.state_dict()
    del state["made_by"]
    second = begin(max_tokens=64)
    second.load_state_dict(state)
    assert warnings_of(caplog) == [] and second.iterations_in_epoch == 4


def test_only_one_process_warns(caplog):
    first = begin(num_shards=2)
    trained_on(first, 1, 1)
    for rank in range(2):
        begin(num_shards=2, shard_id=rank, seed=8).load_state_dict(first.state_dict())
    assert len(warnings_of(caplog)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, change",
    [
        (["--max-tokens", 700], "is resumed with other batches: --max-tokens is 700, was 1000"),
        (["--update-freq", 3], "is resumed after 2 batches, which --update-freq 3 does not divide"),
    ],
)
def test_fairseq_train_warns_about_other_batches(options, change, data, trained, tmp_path):
    arguments = [*train_arguments(data, tmp_path), "--restore-file", trained / "checkpoint_1_2.pt", "--seed", 5]
    arguments += ["--no-save", "--disable-validation", "--max-update", 3]
    result = run_fairseq("train", *arguments, *options)
    assert result.returncode == 0, result.stderr[-2000:]
    lines = [line for line in (result.stdout + result.stderr).splitlines() if "epoch 1 is resumed" in line]
    assert len(lines) == 1 and change in lines[0]
