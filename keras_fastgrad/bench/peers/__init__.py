"""Other libraries on the same workloads."""

TORCH_WORKLOADS = (
    "mlp",
    "cnn",
    "resnet50",
    "vit",
    "lm",
    "lm_wide",
    "lstm",
    "gru",
    "lstm_wide",
    "gru_wide",
    "lstm_narrow",
    "gru_narrow",
    "recsys200m",
    "recsys_pool",
    "multitask",
)
