"""The task ``translation_rela``: fairseq's translation task with the GNMT length penalty and a few corrections."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

from fairseq import utils
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import data_utils
from fairseq.sequence_generator import SequenceGeneratorWithAlignment
from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II
from torch import Tensor

from ..criterions import has_variant_cross_attention
from ..errors import InputError, one_line_in_fairseq
from ..identity import TASK_STATE, dictionary_checksum, identity, refuse_other_data
from ..models.config import record_built
from ..models.shared_options import writable
from ..models.transformer_rela import TransformerRelaDecoder, TransformerRelaModel
from ..readers import AlignedScorer, hard_alignment, soft_alignment
from .batches import TrainingBatches
from .gnmt import GNMTSequenceGenerator, GNMTSequenceGeneratorWithAlignment

logger = logging.getLogger(__name__)


# losses that do not read attention weights
READ_NO_WEIGHTS = (CrossEntropyCriterion, LabelSmoothedCrossEntropyCriterion)


def _without_words(tokens: Tensor, pad: int, eos: int) -> Tensor:
    """Return ``(B,)``, True where a row of ``tokens``, ``(B, L)``, has only padding and ends of sentences."""
    return (tokens.eq(pad) | tokens.eq(eos)).all(dim=1)


def _emptied(hypothesis: Dict[str, Any], eos: int) -> Dict[str, Any]:
    """Return the empty hypothesis: an end of sentence with probability 1."""
    return {
        **hypothesis,
        "tokens": hypothesis["tokens"].new_tensor([eos]),
        "score": hypothesis["score"].new_zeros(()),
        "positional_scores": hypothesis["positional_scores"].new_zeros(1),
        "attention": hypothesis["attention"][..., :1],  # (S, T) to (S, 1), the first step
        "alignment": hypothesis["alignment"][:0],
    }


@dataclass
class TranslationRelaConfig(TranslationConfig):
    """The options of fairseq's task ``translation``, and the length penalty of the paper."""

    gnmt_lenpen: Optional[float] = field(
        default=None,
        metadata={
            "help": "score hypotheses by sum log p / ((5+L)/6)^GNMT_LENPEN, as the paper does with 0.6, "
            "instead of fairseq's sum log p / L^LENPEN"
        },
    )
    # interpolated from fairseq's optimization config, as in other tasks of fairseq
    update_freq: Any = II("optimization.update_freq")


def _require_data(cfg: TranslationRelaConfig) -> None:
    """Raise unless the data folder has the dictionaries of the two languages.

    Raises:
        InputError: the folder or a dictionary is missing, or the languages are unknown, equal or not those of the
            folder.
    """
    if not cfg.data or "://" in cfg.data:
        return  # a remote folder cannot be checked here
    folders = [Path(path) for path in utils.split_paths(cfg.data)]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder of binarised data; give one of `rela prepare`")
    langs = cfg.source_lang, cfg.target_lang
    if None in langs:
        langs = data_utils.infer_language_pair(str(folders[0]))
    if None in langs:
        raise InputError(
            f"{folders[0]}: its file names do not tell the languages; give --source-lang and --target-lang"
        )
    for option, given, found in zip(("--source-lang", "--target-lang"), (cfg.source_lang, cfg.target_lang), langs):
        if given not in (None, found):  # if one language is missing, fairseq infers both and ignores the other
            raise InputError(f"{option} {given}: {folders[0]} holds {'-'.join(langs)}; give both languages")
    if langs[0] == langs[1]:
        raise InputError(f"source and target language are both {langs[0]}; give two different ones")
    for lang in langs:
        if not (folders[0] / f"dict.{lang}.txt").is_file():
            there = ", ".join(sorted(path.name for path in folders[0].glob("dict.*.txt"))) or "no dictionary"
            raise InputError(f"{folders[0]}: no dict.{lang}.txt; it has {there}")


@register_task("translation_rela", dataclass=TranslationRelaConfig)
class TranslationRelaTask(TranslationTask):
    """fairseq's ``translation`` task with these additions:

    * ``--gnmt-lenpen ALPHA`` sets the length penalty of the paper.
    * ``--print-alignment hard`` gives no link to a target word that attends to nothing. ``--print-alignment soft``
      prints rows that sum to one, or a row of zeros for such a word.
    * ``--replace-unk`` leaves an unknown word in place if it attends to nothing.
    * The translation of a blank sentence is blank. A model alone would invent a sentence.
    * A warning appears if an epoch is resumed with different batches.
    * Outside training, no sentence is lost. Some versions of fairseq drop the last batch if its size is not a
      multiple of ``--required-batch-size-multiple``, 8 by default.
    * Checkpoints record the checksums of their dictionaries, and are refused for data with other dictionaries.
    """

    def __init__(self, cfg: TranslationRelaConfig, src_dict: Any, tgt_dict: Any) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        self.data_identity = self._identity()  # before --merge-src-tgt-embed changes the dictionaries

    @classmethod
    def setup_task(cls, cfg: TranslationRelaConfig, **kwargs: Any) -> "TranslationRelaTask":
        """Return the task for the data folder and languages of ``cfg``.

        Raises:
            InputError: the folder does not exist, or has no binarised data of the two languages.
        """
        with one_line_in_fairseq():
            _require_data(cfg)
        return super().setup_task(cfg, **kwargs)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model, and record in ``cfg`` the options that it was built with.

        Args:
            cfg: the config of the model, changed in place.
            from_checkpoint: parameters will be loaded, so files of pretrained embeddings are not read.

        Raises:
            InputError: ``--merge-src-tgt-embed`` is given, and the data were binarised with two dictionaries.
        """
        if getattr(cfg, "merge_src_tgt_embed", False) and getattr(self.cfg, "dataset_impl", None) != "raw":
            with one_line_in_fairseq():
                self._refuse_two_dictionaries()
        if from_checkpoint:
            with writable(cfg):
                cfg.encoder_embed_path = cfg.decoder_embed_path = None
        model = super().build_model(cfg, from_checkpoint)
        if isinstance(model, TransformerRelaModel):
            record_built(model, cfg)  # with --arch transformer_rela fairseq gives the model only a copy of the config
        return model

    def load_dataset(self, split: str, *args: Any, **kwargs: Any) -> None:
        """Load a subset of the data folder.

        Raises:
            InputError: the subset does not exist, or ``--load-alignments`` is given and it has no alignments.
        """
        try:
            super().load_dataset(split, *args, **kwargs)
        except FileNotFoundError as error:
            with one_line_in_fairseq():
                pair = f"{self.cfg.source_lang}-{self.cfg.target_lang}"
                raise InputError(f"{self.cfg.data}: no subset {split!r} of {pair} ({error})") from error
        self._require_alignments(split)

    def _require_alignments(self, split: str) -> None:
        """Check that the training data have alignments if they are requested; fairseq does not check this.

        Raises:
            InputError: ``--load-alignments`` is given, and the training data have no alignments.
        """
        dataset = self.datasets[split]
        if self.cfg.load_alignments and split == self.cfg.train_subset and getattr(dataset, "align_dataset", 0) is None:
            name = f"{split}.align.{self.cfg.source_lang}-{self.cfg.target_lang}"
            with one_line_in_fairseq():
                raise InputError(
                    f"--load-alignments: {self.cfg.data} has no {name}.*; make it by fairseq-preprocess "
                    "--align-suffix from a file of links i-j between BPE pieces, a line a sentence"
                )

    def state_dict(self) -> Dict[str, Any]:
        """Return the state of the task for a checkpoint, with the identity of the training data."""
        return {**super().state_dict(), TASK_STATE: self.data_identity}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Load the state of the task from a checkpoint.

        Raises:
            InputError: the checkpoint's model was trained with other dictionaries, or from target to source.
        """
        state = dict(state_dict)
        with one_line_in_fairseq():
            refuse_other_data(state.pop(TASK_STATE, None), self.data_identity, "the checkpoint", self.cfg.data)
        super().load_state_dict(state)

    def _refuse_two_dictionaries(self) -> None:
        if self.source_dictionary.symbols != self.target_dictionary.symbols:
            raise InputError(
                "--merge-src-tgt-embed gives target words other numbers than the binarised data have; binarise with "
                "one dictionary (fairseq-preprocess --joined-dictionary), and give --share-all-embeddings"
            )

    def _identity(self) -> Dict[str, str]:
        checksums = [
            dictionary_checksum(dictionary.symbols[dictionary.nspecial :])
            for dictionary in (self.source_dictionary, self.target_dictionary)
        ]
        return identity(self.cfg.source_lang, self.cfg.target_lang, *checksums)

    def get_batch_iterator(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Return fairseq's iterator: :class:`TrainingBatches` in training, else one that drops no sentence."""
        # only training sets ignore_invalid_inputs, which skips sentences that are too long
        training = dataset is self.datasets.get(self.cfg.train_subset) and kwargs.get("ignore_invalid_inputs")
        if not training:
            return super().get_batch_iterator(dataset, *args, **{**kwargs, "required_batch_size_multiple": 1})
        # fairseq makes the batches once, and they depend on the first epoch of the process: without epoch=1, a run
        # resumed in epoch 5 would train on other batches than a run that was never interrupted
        epoch, before = kwargs.pop("epoch", 1), self.dataset_to_epoch_iter.get(dataset)
        iterator = super().get_batch_iterator(dataset, *args, epoch=1, **kwargs)
        if iterator is not before:
            iterator = TrainingBatches.of(iterator, {**kwargs, "update_freq": getattr(self.cfg, "update_freq", None)})
            iterator.epoch = max(epoch, 1)
            dataset.set_epoch(iterator.epoch)
        return iterator

    def train_step(self, sample: Any, model: Any, criterion: Any, *args: Any, **kwargs: Any) -> Any:
        """Train on a batch as fairseq does; request no attention weights if the loss does not read them.

        A fused kernel cannot return weights, and fairseq's decoder requests those of its last layer in every pass.
        """
        decoder = getattr(model, "decoder", None)
        if not isinstance(decoder, TransformerRelaDecoder):
            return super().train_step(sample, model, criterion, *args, **kwargs)
        before, decoder.gives_weights = decoder.gives_weights, type(criterion) not in READ_NO_WEIGHTS
        try:
            return super().train_step(sample, model, criterion, *args, **kwargs)
        finally:
            decoder.gives_weights = before

    def inference_step(
        self,
        generator: Any,
        models: Any,
        sample: Dict[str, Any],
        prefix_tokens: Optional[Tensor] = None,
        constraints: Optional[Tensor] = None,
    ) -> List[List[Dict[str, Any]]]:
        """Decode a batch as fairseq does, but give a blank translation for a blank sentence.

        A sentence with a prefix or with constraints is not blank. Batches that are only scored are left unchanged.
        """
        hypotheses = super().inference_step(generator, models, sample, prefix_tokens, constraints)
        if isinstance(generator, SequenceScorer):  # scores references and generates nothing
            return hypotheses
        pad, eos = self.source_dictionary.pad(), self.source_dictionary.eos()
        blank = _without_words(sample["net_input"]["src_tokens"], pad, eos)
        if prefix_tokens is not None:
            blank &= _without_words(prefix_tokens, pad, eos).to(blank.device)
        if constraints is not None:
            blank &= constraints[:, 0].eq(0).to(blank.device)  # column 0 holds the number of constraints
        for row in blank.nonzero(as_tuple=True)[0].tolist():
            hypotheses[row] = [_emptied(hypothesis, eos) for hypothesis in hypotheses[row]]
        return hypotheses

    def build_generator(
        self, models: Any, args: Any, seq_gen_cls: Any = None, extra_gen_cls_kwargs: Any = None, **kwargs: Any
    ) -> Any:
        """Build the sequence generator with the length penalty and the alignments that the options request.

        Raises:
            InputError: options that exclude each other are given.
        """
        with one_line_in_fairseq():
            kind = _alignment_kind(args)
        # softmax rows already sum to one, so fairseq's own function is right
        soft = soft_alignment if any(map(has_variant_cross_attention, models)) else utils.extract_soft_alignment
        extract = {"hard": hard_alignment, "soft": soft}.get(kind or "")
        if extract and getattr(args, "score_reference", False):
            return AlignedScorer(self.target_dictionary, extract)
        alpha = getattr(self.cfg, "gnmt_lenpen", None)
        if alpha is not None and seq_gen_cls is None and not getattr(args, "score_reference", False):
            with one_line_in_fairseq():
                if getattr(args, "lenpen", 1) != 1 or getattr(args, "unnormalized", False):
                    raise InputError("--gnmt-lenpen replaces --lenpen and --unnormalized; give only one of them")
            extra_gen_cls_kwargs = dict(extra_gen_cls_kwargs or {}, gnmt_lenpen=alpha)
            seq_gen_cls = GNMTSequenceGeneratorWithAlignment if kind else GNMTSequenceGenerator
        elif kind and seq_gen_cls is None:
            seq_gen_cls = SequenceGeneratorWithAlignment
        if kind and issubclass(seq_gen_cls, SequenceGeneratorWithAlignment):
            extra_gen_cls_kwargs = dict(extra_gen_cls_kwargs or {}, print_alignment=kind)
        generator = super().build_generator(
            models, args, seq_gen_cls=seq_gen_cls, extra_gen_cls_kwargs=extra_gen_cls_kwargs, **kwargs
        )
        if extract and hasattr(generator, "extract_alignment"):
            generator.extract_alignment = extract
        return generator


def _alignment_kind(args: Any) -> Optional[str]:
    """Return the kind of alignments that the options need: ``hard``, ``soft`` or None.

    Raises:
        InputError: ``--replace-unk``, which needs hard alignments, is given with ``--print-alignment soft``.
    """
    kind = getattr(args, "print_alignment", None) or None
    if getattr(args, "replace_unk", None) is None:
        return "hard" if kind is True else kind
    if kind == "soft":
        raise InputError("--replace-unk follows hard alignments; leave out --print-alignment soft")
    return "hard"
