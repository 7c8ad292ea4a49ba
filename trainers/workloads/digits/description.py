"""The descriptions of the workloads on handwritten digits."""

from __future__ import annotations

from trainers.workload.description import WorkloadDescription, WorkloadOption
from trainers.workloads.options import SIZE, depth_option, width_option

DESCRIPTIONS = (
    WorkloadDescription(
        name="digits-mlp",
        title="Handwritten digits (8x8, 1,797 images from scikit-learn), multi-layer perceptron",
        implementation="trainers.workloads.digits.digits:DigitsMLP",
        extra="digits",
        metrics={"train_loss": "minimize", "validation_loss": "minimize", "validation_accuracy": "maximize"},
        default_objective="validation_loss",
        default_num_steps=100,  # nine epochs: with more the best value is decided by overfitting, not optimization
        default_evaluate_every=10,
        default_batch_size=128,
        options={
            "hidden_sizes": WorkloadOption([128, 64], "units of each hidden layer"),
            "width": width_option("units of the first hidden layer, the others in proportion", null="as hidden_sizes"),
            "depth": depth_option("hidden layers, those of hidden_sizes repeated evenly", null="as hidden_sizes"),
            "dropout": WorkloadOption(0.0, "share of each hidden layer's units dropped in training, in [0, 1)"),
            "label_smoothing": WorkloadOption(0.0, "label smoothing of the training loss, in [0, 1)"),
        },
    ),
    WorkloadDescription(
        name="digits-autoencoder",
        title="Handwritten digits (8x8, 1,797 images from scikit-learn), deep autoencoder",
        implementation="trainers.workloads.digits.autoencoder:DigitsAutoencoder",
        extra="digits",
        metrics={"train_loss": "minimize", "validation_loss": "minimize", "validation_squared_error": "minimize"},
        default_objective="validation_loss",
        default_num_steps=400,  # with more, a good optimizer's best value is decided by overfitting here, too
        default_evaluate_every=40,
        default_batch_size=128,
        options={
            "size": SIZE,
            "width": width_option("units of the first layer, the other hidden ones in proportion; the code stays"),
            "depth": depth_option("layers of the encoder, its code included, and as many of the decoder"),
        },
    ),
    WorkloadDescription(
        name="digits-convnet",
        title="Handwritten digits (8x8, 1,797 images from scikit-learn), convolutional network",
        implementation="trainers.workloads.digits.convnet:DigitsConvnet",
        extra="digits",
        metrics={"train_loss": "minimize", "validation_loss": "minimize", "validation_accuracy": "maximize"},
        default_objective="validation_loss",
        default_num_steps=100,  # four and a half epochs: later the loss is near its floor with any optimizer
        default_evaluate_every=10,
        default_batch_size=64,
        options={
            "size": SIZE,
            "width": width_option("channels of the first convolution, the others in proportion; a multiple of 8"),
            "depth": depth_option("convolutions, at least 3: more at each size of the image"),
            "label_smoothing": WorkloadOption(0.0, "label smoothing of the training loss, in [0, 1)"),
        },
    ),
)
