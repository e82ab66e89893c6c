"""The messages during training, for lines in the form of fairseq's log."""

import shutil

from fairseq_rela.experiment.progress import TrainingProgress

CONFIG = (
    "{'_name': None, 'distributed_training': {'distributed_world_size': 2}, 'dataset': {'max_tokens': 6250}, "
    "'optimization': {'_name': None, 'max_update': 300000, 'update_freq': [2]}, "
    "'checkpoint': {'keep_interval_updates': 5, 'keep_last_epochs': 5}}"
)
PARAMETERS = "num. shared model params: 72,330,000 (num. trained: 72,330,000)"
UPDATE = (
    "epoch 001:    100 / 7135 loss=10.04, nll_loss=9.7, ppl=832.9, wps=36832, ups=4, wpb=23528, bsz=816, "
    "num_updates=100, lr=0.0001, gnorm=1.2, train_wall=25, wall=28"
)
EPOCH = (
    "epoch 001 | loss 5.1 | nll_loss 3.6 | ppl 12.3 | wps 36000 | ups 4.1 | wpb 23500 | bsz 800 | num_updates 7135 | "
    "lr 0.0005 | gnorm 0.4 | train_wall 1700 | wall 1750"
)


def test_the_cost_is_reported_before_training(tmp_path):
    """B42, B45: tokens of an update, and the space of all checkpoints (3 numbers of 4 bytes per parameter)."""
    progress = TrainingProgress(tmp_path)
    assert progress(CONFIG) is None
    said = progress(PARAMETERS)
    assert "at most 25,000 target tokens (6,250 x 2 batches x 2 devices)" in said
    assert "up to 12 of 0.87 GB, 11.3 GB in all" in said  # and one that is currently written
    assert ("TOO LITTLE" in said) == (shutil.disk_usage(tmp_path).free < 11.3e9)


def test_the_remaining_time_is_reported_once(tmp_path):
    progress = TrainingProgress(tmp_path)
    progress(CONFIG)
    assert "update 100 of 300,000; at 4 updates/s 20.8 hours remain" in progress(UPDATE)
    assert progress(UPDATE.replace("num_updates=100", "num_updates=200")) is None
    assert progress(EPOCH) == "epoch   1 | update   7,135 | loss 5.1 | perplexity 12.3 | 36000 words/s"
    progress.close()


def test_without_a_number_of_updates_no_time_is_reported(tmp_path):
    progress = TrainingProgress(tmp_path)
    progress(CONFIG.replace("300000", "0"))
    assert progress(UPDATE) is None
    assert progress("attention: encoder rela_g x 6") == "attention: encoder rela_g x 6"
    assert progress("loading train data for epoch 1") is None
