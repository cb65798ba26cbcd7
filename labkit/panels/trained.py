"""The panel of a trained model: pick an input, a head and an intervention, and see what the prediction does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import traitlets
from numpy.typing import ArrayLike

from labkit.attention import Array
from labkit.errors import ShapeError
from labkit.masks import causal
from labkit.panels.one_head import existing, locked_sentence, weight_grid
from labkit.panels.panel import Panel, to_json
from labkit.panels.still import Grid, Still
from labkit.transformer import (
    Intervention,
    Model,
    ModelTrace,
    load_model,
    mean_head,
    next_logit,
    predictable,
    repeated_sequences,
    resample_head,
    zero_head,
)

DIGITS = 4  # what travels to the page is rounded; the kernel compares equally rounded numbers
REFERENCES, TOP = 64, 3  # sequences behind a mean, letters listed for a prediction
TEXTS = ("QZBTMKQZBTMK", "QZBTMKHEADSW")


class TrainedModel(Panel):
    """One head of one layer on one input, and the model's predictions before and after an intervention on it.

    Every combination is computed beforehand, so that the page needs neither kernel nor network to show it.
    """

    moves = ("shown", "layer", "head", "intervention")
    shown = traitlets.Int(0).tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    intervention = traitlets.Enum(("none", "zero", "mean", "resample"), "none").tag(sync=True)
    row = traitlets.Int(0).tag(sync=True)
    column = traitlets.Int(0).tag(sync=True)
    texts = traitlets.List(traitlets.Dict()).tag(sync=True)
    weights = traitlets.Any().tag(sync=True, to_json=lambda value, _: to_json(value))
    logits = traitlets.Any().tag(sync=True, to_json=lambda value, _: to_json(value))

    def __init__(self, model: Model, **traits: Any) -> None:
        self.model = model
        super().__init__(**traits)

    @traitlets.validate("shown")
    def _existing_text(self, proposal: Any) -> int:
        return existing(proposal["value"], len(self.texts))

    @traitlets.validate("layer")
    def _existing_layer(self, proposal: Any) -> int:
        return existing(proposal["value"], len(self.model.layers))

    @traitlets.validate("head")
    def _existing_head(self, proposal: Any) -> int:
        return existing(proposal["value"], len(self.model.layers[0].heads))

    @property
    def text(self) -> str:
        """Return the input that is shown."""
        return str(self.texts[self.shown]["text"])

    def derive(self) -> Mapping[str, ArrayLike]:
        """Run the model as it is for the map, and with the intervention for the true next letter's logits."""
        whole = self.model.run(self.text)
        changes = interventions(self.intervention, self.layer, self.head, len(self.text))
        return {
            "weights": whole.weights[self.layer, self.head].round(DIGITS),
            "logits": _true_logits(self.model.run(self.text, *changes)).round(DIGITS),
        }

    def still(self) -> Still:
        """Show the map of the head and the logits of the true next letters."""
        letters = list(self.text)
        name = f"L{self.layer}H{self.head}"
        grid = weight_grid(f"A of {name}", self.weights, causal(len(letters)), letters, letters, self.locked)
        shown = ["?" if self.locked else f"{x:.2f}" for x in self.logits]
        row = Grid("logit of the true next letter", [""], letters[:-1], [shown], np.zeros((1, len(shown))))
        sentence = locked_sentence(self) or f"Input {self.text}, head {name}, intervention: {self.intervention}."
        return Still(self.title, sentence, [grid, row])


def trained_model(
    model: Model | None = None,
    texts: Sequence[str] = TEXTS,
    *,
    layer: int = 0,
    head: int = 0,
    locked_by: str | None = None,
    title: str = "A trained model: look at a head, then take it away",
) -> TrainedModel:
    """Pick an input of at most 12 letters, a layer, a head and an intervention, and compare the predictions.

    A mean is taken over 64 other sequences, a resampled output comes from one of them.

    >>> panel = trained_model(texts=["QZBTMKQZBTMK"])
    >>> panel.intervention = "zero"
    >>> panel.logits.shape
    (11,)
    """
    model = load_model() if model is None else model
    too_long = [text for text in texts if not 2 <= len(text) <= 12]
    if too_long:
        raise ShapeError(f"{too_long[0]!r} has {len(too_long[0])} letters; this panel shows 2 to 12.")
    return TrainedModel(
        model,
        kind="trained_model",
        title=title,
        texts=[_table(model, text) for text in texts],
        layer=layer,
        head=head,
        row=len(texts[0]) - 2,
        locked_by=locked_by,
    )


def interventions(name: str, layer: int, head: int, length: int) -> list[Intervention]:
    """Translate the name of a choice into what the model is asked to do."""
    others = repeated_sequences(REFERENCES, seed=0, length=length)
    made = {
        "zero": zero_head(layer, head),
        "mean": mean_head(layer, head, others),
        "resample": resample_head(layer, head, others[0]),
    }
    return [made[name]] if name in made else []


def _table(model: Model, text: str) -> dict[str, Any]:
    """Compute everything the page may show for one input."""
    whole = model.run(text)

    def with_each_head(name: str) -> list[list[dict[str, Any]]]:
        places = [[(i, h) for h in range(len(layer.heads))] for i, layer in enumerate(model.layers)]
        runs = [[model.run(text, *interventions(name, *place, len(text))) for place in row] for row in places]
        return [[_prediction(model, run) for run in row] for row in runs]

    return {
        "text": text,
        "maps": whole.weights.round(DIGITS).tolist(),
        "base": _prediction(model, whole),
        "changed": {name: with_each_head(name) for name in ("zero", "mean", "resample")},
    }


def _prediction(model: Model, run: ModelTrace) -> dict[str, Any]:
    """Give the likeliest letters at every position, the true next letter's logits and their mean where predictable."""
    shifted = np.exp(run.logits - run.logits.max(axis=-1, keepdims=True))
    chances = shifted / shifted.sum(axis=-1, keepdims=True)
    best = np.argsort(-chances, axis=-1)[:, :TOP]
    top = [
        [[model.decode(token), round(float(p[token]), 4)] for token in row]
        for row, p in zip(best, chances, strict=True)
    ]
    mean = float(next_logit(run)) if predictable(run.tokens).any() else None
    return {"top": top, "logits": _true_logits(run).round(DIGITS).tolist(), "mean": mean}


def _true_logits(run: ModelTrace) -> Array:
    """Pick the logit of the letter that really follows: (n - 1,)."""
    logits: Array = np.take_along_axis(run.logits[:-1], run.tokens[1:, None], axis=-1)[:, 0]
    return logits
