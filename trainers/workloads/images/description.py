"""The description of the workload on a user's images."""

from __future__ import annotations

from trainers.workload.description import ParameterGroup, ParameterRule, WorkloadDescription, WorkloadOption
from trainers.workloads.options import MAX_READERS, depth_option, width_option

PARAMETER_GROUPS = (
    ParameterGroup(
        "all but weights of convolutions and linear layers: biases, norms, a ViT's positions and class token",
        {"weight_decay": 0.0},
        any_of=(ParameterRule(max_dims=1), ParameterRule(name_parts=("cls_token", "pos_embed"))),
    ),
)
"""Weight decay for the weights of convolutions and linear layers, none for all else: a ViT's class token and positions
are offsets, as a bias is."""

DESCRIPTIONS = (
    WorkloadDescription(
        name="image-folder",
        title=(
            "Your images (class directories, Parquet or Arrow), ResNet or ViT; the ImageNet recipe is 90 epochs with "
            "cosine and a warm-up of 5"
        ),
        implementation="trainers.workloads.images.image_folder:ImageFolder",
        extra="vision",
        metrics={
            "train_loss": "minimize",
            "validation_loss": "minimize",
            "validation_accuracy": "maximize",
            "num_unreadable_images": "minimize",
            "num_restarted_loaders": "minimize",
        },
        default_objective="validation_accuracy",
        # Ten epochs of 50,000 images, or 0.4 of one of ImageNet: a job trains tens of trials of it, which together are
        # then about as long as one whole training. The recipe's 90 epochs are 90 * images / batch size steps: 450,410
        # on ImageNet at this batch size, with a warmup_fraction of 5 / 90.
        default_num_steps=2_000,
        default_evaluate_every=200,
        default_batch_size=256,
        options={
            "path": WorkloadOption(
                None,
                "a directory with train/<class>/*.jpg and validation/<class>/*.jpg (also .png, .webp), or with "
                "<class>/*.jpg alone; or a Parquet or Arrow file, or a directory of them, with train and validation in "
                "their names; what lies beside, such as test, is not read",
                required=True,
                role="path",
            ),
            "architecture": WorkloadOption(
                "resnet50",
                "resnet18, resnet50, vit-tiny, vit-small or vit-base; for small images resnet20 or vit-nano",
                choices=("resnet18", "resnet50", "vit-tiny", "vit-small", "vit-base", "resnet20", "vit-nano"),
            ),
            "width": width_option(
                "channels of a resnet's first stage, or a vit's width, a multiple of its heads'", null="as published"
            ),
            "depth": depth_option("residual blocks, of a resnet in proportion to its stages'", null="as published"),
            "image_size": WorkloadOption(224, "height and width to which images are cropped and scaled, in pixels"),
            "patch_size": WorkloadOption(
                None, "of vit: height and width of a patch, a divisor of image_size; null: 16"
            ),
            "validation_share": WorkloadOption(
                None,
                "where there is no validation split: share of each class held out, in (0, 1); null: 0.1",
                role="data",
            ),
            "label_smoothing": WorkloadOption(0.1, "label smoothing of the training loss, in [0, 1)"),
            "min_crop_area": WorkloadOption(
                0.08, "smallest share of an image's area that a random crop takes, in (0, 1]", role="data"
            ),
            "horizontal_flip": WorkloadOption(True, "whether every other training image is mirrored", role="data"),
            "num_workers": WorkloadOption(
                2,
                f"processes per rank that decode images, at most {MAX_READERS}; 0: none, the rank decodes between its "
                "steps",
                role="reading",
                maximum=MAX_READERS,
            ),
            "max_unreadable_share": WorkloadOption(
                0.01,
                "share of unreadable images above which the trial fails, in [0, 1); ten are always passed over",
                role="reading",
            ),
            "image_column": WorkloadOption(
                "image",
                "of Parquet and Arrow: column with the bytes of the files, or structures with a field bytes",
                role="data",
            ),
            "label_column": WorkloadOption(
                "label", "of Parquet and Arrow: column with the class, integers or strings", role="data"
            ),
        },
        parameter_groups=PARAMETER_GROUPS,
    ),
)
