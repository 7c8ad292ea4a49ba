"""Weight averaging around any `torch.optim.Optimizer`: `WeightAveraging(Shampoo(...), "ema", decay=0.999)`.

Never here: the steps of an optimizer, which the wrapped one takes by itself, whatever it is.

Legend: w_t the trained weights after step t; U_t what the wrapped optimizer adds to the weights in step t (learning
rate, preconditioning and weight decay included); x̄ the averaged weights, which `averaged_weights()` shows. Every
parameter counts its own updates, so one that joins late starts its own average.

Methods that do not change training. With s = update_frequency, they look at the weights after steps s, 2s, ...

    ema            x̄ ← (1 − c_n) x̄ + c_n w  at the n-th look; c_1 = 1, so the start of the buffer never counts, and
                   warm_up="bias_correction": c_n = (1 − d)/(1 − dⁿ), the average is Σ dⁿ⁻ⁱ w_i / Σ dⁿ⁻ⁱ;
                   warm_up="ramp": c_n = 1 − min(d, (1 + n)/(10 + n)), which forgets the beginning sooner;
                   warm_up="none": c_n = 1 − d.
    lawa           x̄ = mean of the last k = num_snapshots weights looked at.
    Source of both: arXiv 2502.06761. (d = decay counts looks, not steps.)

Methods that move the point at which the gradient is taken. While training, the parameters hold y; x̄ = x.

    y = μ_y x + (1 − μ_y) z;   z ← z + U,  U from the gradient at y;   x ← (1 − c) x + c z

    schedule_free  c_t = lr_t^p / Σ_{i<=t} lr_i^p, p = lr_power, so that x is the weighted mean of z_1 ... z_t.
                   Source: arXiv 2405.15682, with β = μ_y, and c from the learning rate of the schedule alone. Averaging
                   takes the place of momentum: give the wrapped optimizer betas[0] = 0 or momentum = 0.
    primal         c = 1 − μ_x, Generalized Primal Averaging. Source: arXiv 2512.17131. With SGD at the constant
                   learning rate lr/(1 − μ) and μ_x = μ it is heavy-ball SGD of lr and momentum μ if μ_y = 1, and
                   Nesterov's if μ_y = μ (L2 decay included if weight_decay_at="y").

    weight_decay_at says which weights the wrapped optimizer sees while it steps, hence what its weight decay pulls to
    zero: y (schedule_free's default, as in its source) or z (primal's).

Memory: one buffer of at least float32 for ema, schedule_free and primal (x is recovered from y and z, which costs a
rounding error of about eps/μ_y in each step), and num_snapshots copies of the weights for lawa. Parameters below
float32 keep x as well, because y rounds. weight_decay_at="y" takes one more copy of the weights *during* a step: y, z
and U are three unknowns, and a step at z can be undone from two tensors, one at y cannot.
"""

from shampoo.averaging.arguments import AveragingArguments
from shampoo.averaging.weight_averaging import WeightAveraging

__all__ = ["AveragingArguments", "WeightAveraging"]
