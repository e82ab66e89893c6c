"""Train, average, decode and score a task with an attention, stage by stage."""
