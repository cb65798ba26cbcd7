"""Measure the shipped models and write docs/model_card.md: every number in it comes from this program.

python tools/model_card.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from train_model import MODELS, SETTINGS, Setting, checksum

from labkit.attention import Array
from labkit.transformer import (
    Intervention,
    Metric,
    Model,
    ModelTrace,
    brightness,
    distinct_sequences,
    induction_score,
    interval,
    load_model,
    mean_head,
    next_accuracy,
    next_logit,
    next_loss,
    previous_token_score,
    repeated_sequences,
    resample_head,
    zero_head,
)

CARD = Path(__file__).parent.parent / "docs" / "model_card.md"
SEQUENCES, SEED = 200, 1_000_000  # training drew from seeds above a thousand million
CHANGES: dict[str, Callable[[int, int], Intervention]] = {
    "zero": zero_head,
    "mean": mean_head,
    "resample": resample_head,
}
everywhere: Metric = partial(next_loss, where=True)


@dataclass(frozen=True)
class Spread:
    """A mean over sequences with its 95 % interval."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(numbers: Array) -> Spread:
        """Summarise one number for each sequence."""
        return Spread(float(numbers.mean()), *interval(numbers))

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"

    def apart_from(self, other: Spread) -> bool:
        """Say whether the means have opposite signs and the intervals do not touch."""
        return self.mean * other.mean < 0 and (self.low > other.high or other.low > self.high)


@dataclass(frozen=True)
class HeadRow:
    """Everything the card says about one head; effects by intervention."""

    name: str
    previous: float
    induction: float
    bright: float
    logit: dict[str, Spread]
    accuracy: dict[str, Spread]
    control_loss: dict[str, Spread]


def main() -> None:
    """Write the card."""
    CARD.write_text(card(), encoding="utf-8", newline="\n")
    print(f"wrote {CARD.name}")


def card() -> str:
    """Put the card together: what holds for all models, then one chapter for each."""
    return "\n\n".join([introduction(), *(chapter(setting) for setting in SETTINGS), limits(), checksums()]) + "\n"


def introduction() -> str:
    return f"""# Model card

Written by `tools/model_card.py` from measurements of the files in `labkit/models`. Do not edit by hand.

**What they are.** Small transformers made of attention only: embedding and learned positions, two layers of heads with
residual additions, unembedding. No biases, no normalisation, no MLP. They are for lessons on reading maps and on
interventions, and for nothing else.

**Data.** Made up, drawn afresh at every training step: a segment of 6 to 12 distinct letters out of 26, repeated up to
25 letters. From its second turn on, each next letter is decided; before that, it can only be guessed.

**Training.** `tools/train_model.py`: AdamW (0.9, 0.98), a warm-up of 100 steps and a cosine decay, cross-entropy at
every position, in float32, with a backward pass written by hand and compared with finite differences in
`tests/test_train_model.py`. `W_Q` and `W_K` start larger than the rest and do not decay; everything else decays. The
files hold half precision, and the numbers below are measured on them. Training again on another machine gives the same
kind of model, not the same bytes.

**Evaluation.** {SEQUENCES} sequences of 24 letters drawn from other seeds than training. "Predictable" positions are
those whose next letter follows from a repetition. The control input repeats no letter at all. Intervals are 95 %
intervals of the mean over sequences (normal approximation). Heads are named by layer and head index, from 0: `L0H2`."""


def chapter(setting: Setting) -> str:
    """Describe one model: setting, evaluation, the table of its heads, and what the numbers show."""
    model = load_model(setting.name)
    tokens = repeated_sequences(SEQUENCES, SEED)
    trace, control = model.run(tokens), model.run(distinct_sequences(SEQUENCES, SEED))
    rows = measure_heads(model, trace, control)
    return "\n\n".join(
        [
            f"## `{setting.name}`",
            settings_line(setting, model),
            evaluation(trace, control),
            head_table(rows),
            "**Several at once.** " + together(model, trace),
            "**What to notice.** " + " ".join([bright_but_idle(rows), disagreement(rows)]),
        ]
    )


def settings_line(setting: Setting, model: Model) -> str:
    counts = [model.embedding.size, model.positions.size, model.unembedding.size]
    for layer in model.layers:
        counts += [layer.W_O.size, *(head.W_Q.size + head.W_K.size + head.W_V.size for head in layer.heads)]
    return (
        f"Seed {setting.seed}, {setting.steps} steps of {setting.batch} sequences, "
        f"learning rate {setting.learning_rate}, weight decay {setting.weight_decay}, "
        f"`W_Q` and `W_K` start {setting.spread:g} times as large as `W_V`. "
        f"{setting.layers} layers of {setting.heads} heads, d_model {setting.d_model}, d_k {setting.d_k}, "
        f"d_v {setting.d_v}: {sum(counts)} parameters, {(MODELS / f'{setting.name}.npz').stat().st_size} bytes."
    )


def evaluation(trace: ModelTrace, control: ModelTrace) -> str:
    return (
        f"Predictable positions: accuracy {next_accuracy(trace).mean():.4f}, mean loss {next_loss(trace).mean():.3f}, "
        f"mean logit of the true letter {next_logit(trace).mean():.2f}. Control input: mean loss "
        f"{everywhere(control).mean():.2f}, where guessing evenly among 26 letters would give {np.log(26):.2f}."
    )


def measure_heads(model: Model, trace: ModelTrace, control: ModelTrace) -> list[HeadRow]:
    """Take each head out in three ways, on repeating input and on the control."""
    previous, induction, bright = (
        scores.mean(axis=-1)
        for scores in (
            previous_token_score(trace.weights),
            induction_score(trace.weights, trace.tokens),
            brightness(trace.weights),
        )
    )
    rows = []
    for place in np.ndindex(len(model.layers), len(model.layers[0].heads)):
        layer, head = place
        logit, accuracy, loss = {}, {}, {}
        for name, change in CHANGES.items():
            changed = model.run(trace.tokens, change(layer, head))
            logit[name] = Spread.of(next_logit(changed) - next_logit(trace))
            accuracy[name] = Spread.of(next_accuracy(changed) - next_accuracy(trace))
            changed = model.run(control.tokens, change(layer, head))
            loss[name] = Spread.of(everywhere(changed) - everywhere(control))
        read, copied, most = (float(score[place]) for score in (previous, induction, bright))
        rows.append(HeadRow(f"L{layer}H{head}", read, copied, most, logit, accuracy, loss))
    return rows


def head_table(rows: Iterable[HeadRow]) -> str:
    """Lay the heads out as a table."""
    heads = ["head", "previous", "induction", "bright", *(f"logit, {name}" for name in CHANGES)]
    heads += [*(f"accuracy, {name}" for name in CHANGES), "control loss, zero", "control loss, mean"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for row in rows:
        cells = [row.name, f"{row.previous:.2f}", f"{row.induction:.2f}", f"{row.bright:.2f}"]
        cells += [str(row.logit[name]) for name in CHANGES]
        cells += [f"{row.accuracy[name].mean:+.3f}" for name in CHANGES]
        cells += [str(row.control_loss["zero"]), str(row.control_loss["mean"])]
        lines.append("| " + " | ".join(cells) + " |")
    legend = (
        "Scores: mean weight on the previous position; mean weight on the position after the last earlier copy of the "
        "letter; mean of each row's largest weight. Effects: change of the mean logit of the true letter, of the "
        "accuracy at predictable positions, and of the loss on the control input."
    )
    return "\n".join(lines) + f"\n\n{legend}"


def together(model: Model, trace: ModelTrace) -> str:
    """Zero whole layers."""
    sentences = []
    for layer in range(len(model.layers)):
        changes = [zero_head(layer, head) for head in range(len(model.layers[layer].heads))]
        accuracy = next_accuracy(model.run(trace.tokens, *changes)).mean()
        sentences.append(f"Zeroing every head of layer {layer} leaves an accuracy of {accuracy:.3f}.")
    return " ".join(sentences)


def idle(row: HeadRow) -> bool:
    """Say whether taking the head out changes next to nothing, in all three ways."""
    return all(abs(row.accuracy[name].mean) <= 0.002 and abs(row.logit[name].mean) <= 0.1 for name in CHANGES)


def bright_but_idle(rows: Iterable[HeadRow]) -> str:
    """Find the brightest head without an effect."""
    candidates = sorted((row for row in rows if idle(row)), key=lambda row: -row.bright)
    if not candidates:
        return "Every head has an effect on the logit of at least 0.1 by some intervention."
    row = candidates[0]
    return (
        f"`{row.name}` has a bright map ({row.bright:.2f} of a row's weight on its largest source) and next to no "
        f"effect on repeating input: zeroed, {row.logit['zero']} on the logit, "
        f"{row.accuracy['zero'].mean:+.3f} on the accuracy."
    )


def disagreement(rows: Iterable[HeadRow]) -> str:
    """Find the head whose zero- and mean-ablation disagree most on the control input."""
    apart = [row for row in rows if row.control_loss["zero"].apart_from(row.control_loss["mean"])]
    if not apart:
        return "Zero- and mean-ablation nowhere disagree in sign."
    row = max(apart, key=lambda r: abs(r.control_loss["zero"].mean - r.control_loss["mean"].mean))
    return (
        f"Zero- and mean-ablation of `{row.name}` disagree on the control input: the loss changes by "
        f"{row.control_loss['zero']} when its output is zeroed, by {row.control_loss['mean']} when it is replaced "
        f"by its mean. {len(apart)} heads of this model disagree in sign like this."
    )


def limits() -> str:
    return """## Limits

They saw made-up sequences of letters only, of one length. Nothing about language, about large models or about heads in
general follows from them. A score or an effect here holds for this input, this intervention and this measure.

They are chosen, not typical. Thirteen trainings with other seeds, widths and decays came before, all but two of which
learned to copy (the two with a decay of 2 and more did not). `copy` was kept because one head reads the previous letter
and the others of its layer do not; `surplus` because some of its heads turned out to be of no use."""


def checksums() -> str:
    lines = [f"{checksum(path)}  {path.name}" for path in sorted(MODELS.glob("*.npz"))]
    return "## Checksums (SHA-256)\n\n```\n" + "\n".join(lines) + "\n```"


if __name__ == "__main__":
    main()
