"""Names of the stages from raw text to an analysed model, in their order."""

STAGES = ("download", "extract", "prepare", "train", "average", "translate", "score", "attention", "analyze")
AVERAGED = 5  # number of checkpoints that the stage average takes
