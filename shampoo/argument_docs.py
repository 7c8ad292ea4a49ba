"""The help of `Shampoo`'s constructor: the meaning of its arguments, as hyperparameters are declared.

Written by `python -m tests.support.shampoo.generate` from `shampoo/hyperparameters.py`: change them there.
"""

from __future__ import annotations

ARGUMENTS = """Allocates the state of the parameters.

Args:
    params: Parameters, pairs of a name and one, or groups: dicts of `params` and what differs there.
    lr: Learning rate, >= 0. With grafting it has the scale of the grafted method's learning rate, with soap and kl
        of Adam's.
    betas: (β1, β2): β1 in [0, 1) averages the gradient, 0 keeps no average; β2 in [0, 1] averages the factors
        (soap: the squared gradient in the eigenbasis, see `shampoo_beta`), 1 sums. Above 0 for kl, and where it
        counts if β1 is.
    beta3: Weight of the old average in the current direction, in [0, 1); None: β1. β1² gives Nadam, or Muon's
        Nesterov.
    shampoo_beta: soap's average of the factors, in [0, 1], 1 sums; None: β2. Used by soap.
    epsilon: Damping ε, added to the eigenvalues of a factor, > 0; with `pseudo_inverse` the largest eigenvalue that
        counts as null. kl wants 1e-2 where gradients have a low rank, as PowerSGD's: each factor counts a direction
        that is new to the other 1/ε times over, and its steps become that much too short. Used by shampoo, kl.
    epsilon_type: relative: `epsilon` is a share of the factor's largest eigenvalue; absolute: a number. Used by
        shampoo, kl.
    weight_decay: Weight decay λ, >= 0.
    weight_decay_type: decoupled: W ← (1 − lr·λ)W, as AdamW; independent: W ← (1 − λ·lr/peak_lr)W; l2: G ← G + λW.
    momentum: μ in [0, 1) of B ← μB + P, undamped as in `torch.optim.SGD`; 0: none.
    nesterov: Step along P + μB instead of B; needs momentum.
    preconditioner: The member of the family. shampoo: inverse roots of Kronecker factors; soap: Adam in their
        eigenbasis; kl: the factors that minimise the Kullback-Leibler divergence; spectral: orthogonalised momentum
        (Muon); none: the plain method that `grafting` names. Shapes the state.
    solver: The way to roots and eigenbases: eigh, eigh64 (in float64), coupled_newton (shampoo), and the warm-
        started qr and cholesky_qr. None: eigh on the CPU; elsewhere, where products are far faster, coupled_newton
        if it can find the root and cholesky_qr for soap and kl. Between those that keep a basis and those that do
        not it shapes shampoo's state. Used by shampoo, soap, kl.
    max_preconditioner_dim: Longest side of a block, >= 2; for longer sides see `large_dim_method`. A side over 32
        times as long as the product of the others has no full factor either. Shapes the state. Used by shampoo,
        soap, kl, spectral.
    large_dim_method: A side longer than `max_preconditioner_dim` is cut evenly (blocking), or has a diagonal factor
        (diagonal), or none (one_sided). For soap and spectral, which have no diagonal factors, these two are one.
        Shapes the state. Used by shampoo, soap, kl, spectral.
    one_sided: Precondition the shortest side of a block alone. Shapes the state. Used by shampoo, soap, kl.
    precondition_frequency: Steps from one refresh of a root or basis to the next, >= 1. None: 50 for shampoo, 10
        for soap and kl. Used by shampoo, soap, kl.
    start_preconditioning_step: Step of the first roots and bases; until then steps are those of `grafting`, Adam's
        for soap, and without grafting as long as the gradient. None: the first with statistics; for soap the one
        after, because in the basis of one gradient that gradient is diagonal, and Adam makes whole steps of the
        rounding beside it; kl's is the first. Used by shampoo, soap.
    statistics_frequency: Steps from one update of the factors to the next; at most the two above. None: 1; with a
        low-precision `state_dtype` an update is part of a refresh, and nothing else can be asked for. kl takes
        every gradient: its roots enlarge what its factors have not seen. Used by shampoo, soap.
    stagger_refresh: Spread the refreshes over the period instead of doing all at once: no step is much longer than
        others. Used by shampoo, soap, kl.
    refresh_tolerance: Leave out a due refresh while the off-diagonal part of the factor in its old basis has at
        most this share of its norm, in [0, 1); 0: never. Useful: 0.2 to 0.4. Keeps a basis, so for shampoo 0 or not
        shapes the state. Used by shampoo, soap, kl.
    grafting: Method whose step length each block takes, and which steps for blocks without a preconditioner; none:
        the preconditioned step's own length. None: adam for shampoo and none, none for the others. Shapes the
        state.
    grafting_beta2: Average of squared gradients of rmsprop and adam grafting, in [0, 1), above 0 if β1 is; None:
        β2. Used by shampoo, none.
    grafting_epsilon: Added to the root of the squared gradients in adagrad, rmsprop and adam steps, soap's
        included; > 0.
    exponent_override: Factors enter as A^(−exponent_override), > 0; None: 1/(2·number of factors of the block).
        Used by shampoo.
    pseudo_inverse: Leave out the null space of a factor instead of damping it: eigenvalues up to `epsilon` have the
        root 0. Used by shampoo.
    use_bias_correction: Divide averages (gradient, factors, squared gradients) by the sum of their weights. Squared
        gradients of adam grafting are divided always; those of rmsprop, which is the same without it, never.
    adjust_lr_fn: Scale of spectral's m×n step; match_rms_adamw: 0.2·√max(m, n), so that AdamW's lr fits; original:
        √max(1, m/n). Used by spectral.
    standardize_rows: Give the rows of what spectral orthogonalises mean 0 and variance 1 first. SWAN, if betas[0]
        is 0. Used by spectral.
    matrix_norm: Norm in which spectral's step is steepest; rows: every row of a block has one length, as tables
        want. Its root mean square is then 0.2, or 1 with adjust_lr_fn="original". Used by spectral.
    rank: Leading eigenvectors of a matrix's shorter side along which spectral steps as Adam, orthogonalising the
        rest: COSMOS, whose authors take 64 and betas=(0.9, 0.95). None: none. The whole step's root mean square is
        0.2, or 1 with adjust_lr_fn="original". Shapes the state. Used by spectral.
    rest_scale: With `rank`, root mean square of the orthogonalised rest beside Adam's steps of about 1 along the
        leading eigenvectors, before the whole is scaled; > 0. Used by spectral.
    state_dtype: Precision of Kronecker factors, roots and bases; below float32 a factor is kept as its eigenvectors
        in that precision and its eigenvalues in float32. Shapes the state. Used by shampoo, soap, kl.
    product_dtype: Precision of what is multiplied where roots, bases or spectral's polynomial meet a gradient;
        statistics and refreshes keep the state's. bfloat16 rounds the step a little, and is faster where the
        processor has units for it and products take most of the time. Used by shampoo, soap, kl, spectral.
    low_precision_weights: The step of parameters below float32: rounded to nearest; rounded stochastically; or from
        a float32 master copy in the state. Shapes the state.
    max_failed_refreshes: Times in a row that the refresh of one factor may fail, keeping the previous root, before
        step() raises; >= 0. Used by shampoo, soap, kl.
    distributed: The way ranks share the work (`shampoo.distributed`). lossless: every rank owns blocks, which it
        steps with the numbers of a single process, of DTensors and of plain parameters, which all ranks then hold
        alike, as under DDP; local: every rank steps its shard of a DTensor as if it were the parameter, without
        communication. auto: DTensors lossless, and plain parameters by every rank. In one process all are the same.
        Shapes the state.
    communication_dtype: Precision in which owners send weights back: below the weights' own their change is sent,
        in units of its largest element. Gradients travel in theirs.
    num_ranks_per_group: Number of consecutive ranks that share plain parameters, a divisor of the world size, each
        group on its own. None: as many as make any rank's share smaller. Shapes the state.
    reduce_gradients: The gradients of plain parameters are those of each rank alone: the owners average them, by a
        reduce-scatter in place of DDP's all-reduce. For a model without DDP or under its `no_sync`; all ranks are
        one group.
"""
