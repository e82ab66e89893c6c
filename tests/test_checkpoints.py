"""Choosing and averaging checkpoints."""

import pytest
import torch
from conftest import run_rela

from fairseq_rela import checkpoints, safe_loading
from fairseq_rela.errors import InputError


def write(path, updates, value=1.0, dtype=torch.float32, interval=2, model=None, **extra):
    state = {
        "args": None,
        "cfg": {"model": {"_name": "transformer_rela", "attention": "rela_g"}, "checkpoint": {}},
        "model": model or {"w": torch.full((3,), value, dtype=dtype), "n": torch.tensor(7)},
        "optimizer_history": [{"num_updates": updates, "criterion_name": "c", "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": {"state": torch.zeros(3)},
    }
    state["cfg"]["checkpoint"]["save_interval_updates"] = interval
    state.update(extra)
    torch.save(state, path)
    return path


def epoch_of_8_updates_saved_every_2(folder, epoch_files):
    """B09: write fairseq's files: no update file where an epoch ends (8, 16, 24), the last state in _last."""
    for updates in (2, 4, 6, 10, 12, 14, 18, 20, 22):
        write(folder / f"checkpoint_{1 + updates // 8}_{updates}.pt", updates)
    if epoch_files:
        for epoch in (1, 2, 3):
            write(folder / f"checkpoint{epoch}.pt", 8 * epoch)
    write(folder / "checkpoint_last.pt", 24)
    write(folder / "checkpoint_best.pt", 14)
    write(folder / "checkpoint.best_loss_3.21.pt", 14)


def test_the_last_five_checkpoints_are_chosen(tmp_path):
    epoch_of_8_updates_saved_every_2(tmp_path, epoch_files=True)
    choice = checkpoints.choose_last(tmp_path, 5)
    assert [f.updates for f in choice.chosen] == [24, 22, 20, 18, 16]
    assert [f.path.name for f in choice.chosen][::4] == ["checkpoint3.pt", "checkpoint2.pt"]
    assert choice.missing == [] and choice.interval == 2


def test_a_gap_is_named(tmp_path):
    epoch_of_8_updates_saved_every_2(tmp_path, epoch_files=False)
    choice = checkpoints.choose_last(tmp_path, 5)
    assert [f.updates for f in choice.chosen] == [24, 22, 20, 18, 14]
    assert choice.missing == [16]


def test_update_numbers_come_from_inside_the_files(tmp_path):
    """The number in the name of a file may be wrong."""
    for name, updates in (("checkpoint_1_2.pt", 40), ("checkpoint_9_900.pt", 20), ("checkpoint_last.pt", 40)):
        write(tmp_path / name, updates)
    found = checkpoints.find(tmp_path)
    assert [(f.path.name, f.updates) for f in found] == [("checkpoint_1_2.pt", 40), ("checkpoint_9_900.pt", 20)]


def test_states_between_the_intervals_are_left_out_except_the_final_one(tmp_path):
    for updates in (100, 200, 300):
        write(tmp_path / f"checkpoint_1_{updates}.pt", updates, interval=100)
    for epoch in (1, 2):
        write(tmp_path / f"checkpoint{epoch}.pt", 135 * epoch, interval=100)
    write(tmp_path / "checkpoint_last.pt", 350, interval=100)
    choice = checkpoints.choose_last(tmp_path, 4)
    assert [f.updates for f in choice.chosen] == [350, 300, 200, 100]
    assert choice.missing == []


def test_too_few_checkpoints_are_refused(tmp_path):
    write(tmp_path / "checkpoint_last.pt", 4)
    with pytest.raises(InputError, match="5 checkpoints are wanted, 1 are there"):
        checkpoints.choose_last(tmp_path, 5)
    with pytest.raises(InputError, match="--last 0"):
        checkpoints.choose_last(tmp_path, 0)
    with pytest.raises(InputError, match="no such folder"):
        checkpoints.find(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has the model been trained"):
        checkpoints.find(tmp_path / "empty")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype, tmp_path):
    """B18: the mean of bfloat16 values one unit apart is not the first of them."""
    values = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0625]).to(dtype) * 256
    paths = [write(tmp_path / f"{i}.pt", i + 1, float(v), dtype) for i, v in enumerate(values)]
    checkpoints.average(paths, tmp_path / "average.pt")
    got = safe_loading.load(tmp_path / "average.pt")["model"]["w"]
    assert got.dtype == dtype
    assert torch.equal(got, torch.full((3,), float(values.double().mean())).to(dtype))


def test_many_bfloat16_values_are_summed_exactly(tmp_path):
    paths = [write(tmp_path / f"{i}.pt", i + 1, 1 + i / 128, torch.bfloat16) for i in range(5)]
    checkpoints.average(paths, tmp_path / "average.pt")
    assert safe_loading.load(tmp_path / "average.pt")["model"]["w"][0] == 1 + 2 / 128


def test_one_file_is_its_own_average_bitwise_and_opposites_cancel(tmp_path):
    torch.manual_seed(0)
    w = {"w": torch.randn(1000), "n": torch.tensor(3)}
    one = write(tmp_path / "1.pt", 1, model=w)
    two = write(tmp_path / "2.pt", 2, model={"w": -w["w"], "n": torch.tensor(3)})
    checkpoints.average([one], tmp_path / "a.pt")
    assert torch.equal(safe_loading.load(tmp_path / "a.pt")["model"]["w"], w["w"])
    checkpoints.average([one, two], tmp_path / "b.pt")
    averaged = safe_loading.load(tmp_path / "b.pt")
    assert (averaged["model"]["w"] == 0).all() and averaged["model"]["n"] == 3
    assert "last_optimizer_state" not in averaged
    assert averaged["extra_state"]["averaged_from"] == [str(one), str(two)]
    assert checkpoints.updates_of(averaged) == 2


def test_checkpoints_that_cannot_be_averaged_are_refused_and_no_file_is_left(tmp_path):
    one, output = write(tmp_path / "1.pt", 1), tmp_path / "average.pt"
    other = write(tmp_path / "2.pt", 2, model={"w": torch.zeros(4), "n": torch.tensor(1)})
    same = write(tmp_path / "3.pt", 1)
    cfg = {"model": {"attention": "softmax"}, "checkpoint": {}}
    foreign = write(tmp_path / "4.pt", 4, cfg=cfg)
    average = write(tmp_path / "5.pt", 5, extra_state={"averaged_from": ["x"]})
    for paths, message in (
        ([], "no checkpoints"),
        ([one, one], "given 2 times"),
        ([one, tmp_path / "." / "1.pt"], "given 2 times"),
        ([one, other], "different models: they differ in w"),
        ([one, same], "hold the same update 1"),
        ([one, foreign], "different model configurations"),
        ([one, average], "is an average already"),
        ([one, tmp_path / "absent.pt"], "no such checkpoint"),
    ):
        with pytest.raises(InputError, match=message):
            checkpoints.average(paths, output)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{i}.pt" for i in range(1, 6)]


def test_a_truncated_last_checkpoint_is_replaced_by_the_newest_good_one(tmp_path):
    """B22: a checkpoint that was being written during a kill is truncated."""
    write(tmp_path / "checkpoint_1_2.pt", 2)
    write(tmp_path / "checkpoint_1_4.pt", 4)
    write(tmp_path / "checkpoint_last.pt", 6)
    assert checkpoints.newest_good(tmp_path).path.name == "checkpoint_last.pt"
    whole = (tmp_path / "checkpoint_last.pt").read_bytes()
    (tmp_path / "checkpoint_last.pt").write_bytes(whole[: len(whole) // 2])
    assert checkpoints.newest_good(tmp_path) == checkpoints.Found(tmp_path / "checkpoint_1_4.pt", 4)
    assert checkpoints.newest_good(tmp_path / "absent") is None


def test_an_average_does_not_replace_a_checkpoint(tmp_path):
    one = write(tmp_path / "one.pt", 1)
    for output in (one, tmp_path / "checkpoint7.pt", tmp_path / "checkpoint_last.pt"):
        with pytest.raises(InputError, match="must not take the place"):
            checkpoints.average([one], output)


def test_runs_with_other_data_or_seeds_are_not_mixed(tmp_path):
    def cfg(seed, data, **of_process):
        return {"model": {}, "task": {"data": data, **of_process}, "common": {"seed": seed}, "checkpoint": {}}

    one = write(tmp_path / "1.pt", 1, cfg=cfg(1, "a"))
    identity = {"task_state": {"translation_rela": {"source_dictionary": "1"}}}
    resumed = [  # with other options of the process, from another folder of the same data
        write(tmp_path / f"resumed{number}.pt", number, cfg=cfg(1, data, update_freq=[number]), **identity)
        for number, data in ((1, "a"), (2, "moved"))
    ]
    checkpoints.average(resumed, tmp_path / "average.pt")
    for other, message in ((cfg(2, "a"), "different seeds"), (cfg(1, "b"), "different task configurations")):
        with pytest.raises(InputError, match=message):
            checkpoints.average([one, write(tmp_path / "2.pt", 2, cfg=other)], tmp_path / "average.pt")


@pytest.mark.slow
def test_a_replaced_average_is_not_taken_for_the_old_one(tmp_path):
    """The commands are rela average RUN, then --inputs with the same output, then RUN again."""
    for updates in (2, 4, 6):
        write(tmp_path / f"checkpoint_1_{updates}.pt", updates, float(updates))
    output = tmp_path / "average.pt"
    command = ["average", tmp_path, "--last", 2, "--output", output]
    assert run_rela(*command).returncode == 0
    assert "already averaged" in run_rela(*command).stdout
    checkpoints.average([tmp_path / "checkpoint_1_2.pt"], output)
    assert "already" not in run_rela(*command).stdout
    assert safe_loading.load(output)["model"]["w"][0] == 5
