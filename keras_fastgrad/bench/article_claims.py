"""What the article claims, and what answers each claim here."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Side:
    """One thing to time: a workload, who trains it, and how."""

    workload: str
    engine: str
    setting: str = "default"


@dataclasses.dataclass(frozen=True)
class Claim:
    """A figure of the article, and the two sides that answer it here.

    Args:
        name: What is compared.
        before: The slower side, as the article has it.
        after: The faster side.
        theirs: The article's figures before and after, and the share it
            says was saved; `None` for what it does not give.
        unit: Of the figures before and after.
        computing: Where given, what computes without waiting. Our figures
            are then its share of each side's time, in percent.
        note: What a reader has to know.
    """

    name: str
    before: Side
    after: Side
    theirs: tuple[float | None, float | None, float | None]
    unit: str = "ms/step"
    computing: Side | None = None
    note: str = ""

    @property
    def sides(self) -> list[Side]:
        """All that has to be timed."""
        return [s for s in (self.before, self.after, self.computing) if s]


_EAGER = Side("cnn", "keras-eager")
_BFLOAT16 = "precision=mixed_bfloat16"
_RECOMMENDER = (
    Side("recsys200m", "keras"),
    Side("recsys200m", "fastgrad"),
    Side("recsys200m", "fastgrad", _BFLOAT16),
    Side("recsys200m", "fastgrad", f"steps_per_execution=32, {_BFLOAT16}"),
)

CLAIMS = (
    Claim(
        "graph against eager (cnn)",
        _EAGER,
        Side("cnn", "keras"),
        (28.0, 14.0, 0.50),
    ),
    Claim(
        "keras_fastgrad against eager (cnn)",
        _EAGER,
        Side("cnn", "fastgrad"),
        (None, None, None),
        note="not in the article: the first row carried on",
    ),
    Claim(
        "custom gradients (lm, its attention among them)",
        Side("lm", "fastgrad", "gradients=keras"),
        Side("lm", "fastgrad"),
        (None, None, 0.20),
        note="the article gives the share of differentiation, ours is of a "
        "step",
    ),
    Claim(
        "mixed precision (cnn)",
        Side("cnn", "fastgrad", "precision=float32"),
        Side("cnn", "fastgrad", _BFLOAT16),
        (None, None, 0.35),
        note="bfloat16",
    ),
    Claim(
        "input pipeline (input_bound)",
        Side("input_bound", "fastgrad"),
        Side("input_bound.tuned", "fastgrad"),
        (65.0, 88.0, None),
        unit="% of the step spent computing",
        computing=Side("input_bound.none", "fastgrad"),
        note="automatic tuning is not built yet: the pipeline is ordered by "
        "hand",
    ),
    Claim(
        "recommender, 200M parameters, in all",
        _RECOMMENDER[0],
        _RECOMMENDER[-1],
        (4.2, 1.47, 0.65),
        unit="theirs hours an epoch, ours ms/step",
    ),
    Claim(
        "recommender 1: gradient and update of the table",
        _RECOMMENDER[0],
        _RECOMMENDER[1],
        (None, None, 0.48),
    ),
    Claim(
        "recommender 2: bfloat16 added",
        _RECOMMENDER[1],
        _RECOMMENDER[2],
        (None, None, 0.22),
    ),
    Claim(
        "recommender 3: 32 steps an execution added",
        _RECOMMENDER[2],
        _RECOMMENDER[3],
        (None, None, 0.33),
        note="the article names its third share for the input pipeline; "
        "this input is already in memory",
    ),
)


def sides() -> list[Side]:
    """Everything that has to be timed, each once."""
    return list(dict.fromkeys(s for claim in CLAIMS for s in claim.sides))
