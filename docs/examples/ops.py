# %%
import numpy as np

import tedsl as te

rng = np.random.default_rng(0)
v = np.array([-1, -0.5, 0.5, 1], "float32")
table = np.array([[3, 1, 2], [4, 6, 5]], "float32")
labels = np.array([0, 1], "int32")
signal = np.arange(4, dtype="float32").reshape(1, 1, 4)
image = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
photo = rng.random((8, 8), dtype="float32")
q = np.ones((1, 3, 2), "float32")
steps, hidden = np.ones((5, 2, 3), "float32"), np.zeros((2, 2), "float32")

# %% te.ops.adaptive_avg_pool2d
te.ops.adaptive_avg_pool2d(image, 2)

# %% te.ops.adaptive_max_pool2d
te.ops.adaptive_max_pool2d(image, 2)

# %% te.ops.attention
te.ops.attention(q, q, q, causal=True)

# %% te.ops.avg_pool1d
te.ops.avg_pool1d(signal, 2)

# %% te.ops.avg_pool2d
te.ops.avg_pool2d(image, 2)

# %% te.ops.avg_pool3d
te.ops.avg_pool3d(np.ones((1, 1, 2, 2, 2), "float32"), 2)

# %% te.ops.batch_norm
te.ops.batch_norm(table, training=True)

# %% te.ops.bilateral_filter
te.ops.bilateral_filter(photo, 1.0, 0.2).shape

# %% te.ops.bilateral_slice
te.ops.bilateral_slice(np.ones((1, 3, 4, 2, 2), "float32"), photo[None]).shape

# %% te.ops.bilateral_splat
te.ops.bilateral_splat(photo[None, None], photo[None], 4, 4).shape

# %% te.ops.bilinear
te.ops.bilinear(table, table, np.ones((2, 3, 3), "float32"))

# %% te.ops.binary_cross_entropy
te.ops.binary_cross_entropy(np.array([0.2, 0.9], "float32"), np.array([0, 1], "float32"))

# %% te.ops.binary_cross_entropy_with_logits
te.ops.binary_cross_entropy_with_logits(v, np.array([0, 0, 1, 1], "float32"))

# %% te.ops.box_blur
te.ops.box_blur(photo, 1).shape

# %% te.ops.celu
te.ops.celu(v)

# %% te.ops.channel_shuffle
te.ops.channel_shuffle(np.arange(4, dtype="float32").reshape(1, 4, 1, 1), 2).ravel()

# %% te.ops.conv1d
te.ops.conv1d(signal, np.ones((1, 1, 3), "float32"), padding=1)

# %% te.ops.conv2d
te.ops.conv2d(image, np.ones((1, 1, 3, 3), "float32"), stride=2, padding=1)

# %% te.ops.conv3d
te.ops.conv3d(np.ones((1, 1, 3, 3, 3), "float32"), np.ones((1, 1, 3, 3, 3), "float32"))

# %% te.ops.conv_transpose1d
te.ops.conv_transpose1d(signal, np.ones((1, 1, 2), "float32"), stride=2)

# %% te.ops.conv_transpose2d
te.ops.conv_transpose2d(image, np.ones((1, 1, 2, 2), "float32"), stride=2).shape

# %% te.ops.conv_transpose3d
te.ops.conv_transpose3d(
    np.ones((1, 1, 2, 2, 2), "float32"), np.ones((1, 1, 2, 2, 2), "float32")
).shape

# %% te.ops.cosine_similarity
te.ops.cosine_similarity(table, table * 2)

# %% te.ops.covariance
te.ops.covariance(table)

# %% te.ops.cross_entropy
te.ops.cross_entropy(table, labels)

# %% te.ops.cummax
te.ops.cummax(table, 1)

# %% te.ops.cummin
te.ops.cummin(table, 1)

# %% te.ops.cumprod
te.ops.cumprod(table, 1)

# %% te.ops.cumsum
te.ops.cumsum(table, 1)

# %% te.ops.demosaic
te.ops.demosaic(photo).shape

# %% te.ops.dense
te.ops.dense(table, np.ones((2, 3), "float32"))

# %% te.ops.depthwise_conv2d
te.ops.depthwise_conv2d(image, np.ones((1, 1, 3, 3), "float32"), padding=1).shape

# %% te.ops.distance_field
te.ops.distance_field(np.array([[1, 0, 0, 0]], "float32"))

# %% te.ops.dropout
te.ops.dropout(v, p=0.5, seed=1)

# %% te.ops.einsum
te.ops.einsum("ij,kj->ik", table, table)

# %% te.ops.elu
te.ops.elu(v)

# %% te.ops.embedding
te.ops.embedding(labels, table)

# %% te.ops.fold
te.ops.fold(np.ones((1, 4, 4), "float32"), (3, 3), (2, 2))

# %% te.ops.gather
te.ops.gather(table, 1, np.array([[0, 0, 2], [1, 1, 1]], "int32"))

# %% te.ops.gaussian_blur
te.ops.gaussian_blur(photo, 1.0).shape

# %% te.ops.gelu
te.ops.gelu(v)

# %% te.ops.global_avg_pool2d
te.ops.global_avg_pool2d(image)

# %% te.ops.glu
te.ops.glu(v)

# %% te.ops.grid_sample
te.ops.grid_sample(image, np.zeros((1, 1, 1, 2), "float32"))

# %% te.ops.group_norm
te.ops.group_norm(np.ones((1, 4, 2), "float32"), 2).shape

# %% te.ops.gru
te.ops.gru(steps, hidden, np.ones((6, 3), "float32"), np.ones((6, 2), "float32")).shape

# %% te.ops.gru_cell
te.ops.gru_cell(table, hidden, np.ones((6, 3), "float32"), np.ones((6, 2), "float32"))

# %% te.ops.hardshrink
te.ops.hardshrink(v)

# %% te.ops.hardsigmoid
te.ops.hardsigmoid(v)

# %% te.ops.hardswish
te.ops.hardswish(v)

# %% te.ops.hardtanh
te.ops.hardtanh(v * 2)

# %% te.ops.harris
te.ops.harris(photo).shape

# %% te.ops.heat
te.ops.heat(photo, 3).shape

# %% te.ops.heat_step
te.ops.heat_step(photo).shape

# %% te.ops.histogram
te.ops.histogram(np.array([0.1, 0.2, 0.9], "float32"), 2)

# %% te.ops.huber_loss
te.ops.huber_loss(v, v * 0)

# %% te.ops.index_add
te.ops.index_add(table, 0, labels, table)

# %% te.ops.index_select
te.ops.index_select(table, 1, labels)

# %% te.ops.instance_norm
te.ops.instance_norm(image).mean()

# %% te.ops.interpolate
te.ops.interpolate(signal, scale_factor=2, mode="linear")

# %% te.ops.kl_div
te.ops.kl_div(
    np.log(np.full(2, 0.5, "float32")), np.array([0.25, 0.75], "float32"), reduction="sum"
)

# %% te.ops.l1_loss
te.ops.l1_loss(v, v * 0)

# %% te.ops.layer_norm
te.ops.layer_norm(table, 3)

# %% te.ops.leaky_relu
te.ops.leaky_relu(v)

# %% te.ops.local_laplacian
te.ops.local_laplacian(photo, levels=2).shape

# %% te.ops.local_response_norm
te.ops.local_response_norm(image, 1).shape

# %% te.ops.log_softmax
te.ops.log_softmax(table)

# %% te.ops.logcumsumexp
te.ops.logcumsumexp(table, 1)

# %% te.ops.logsigmoid
te.ops.logsigmoid(v)

# %% te.ops.logsumexp
te.ops.logsumexp(table)

# %% te.ops.lstm
hidden_at, cell_at = te.ops.lstm(
    steps, hidden, hidden, np.ones((8, 3), "float32"), np.ones((8, 2), "float32")
)
hidden_at.shape

# %% te.ops.lstm_cell
te.ops.lstm_cell(table, hidden, hidden, np.ones((8, 3), "float32"), np.ones((8, 2), "float32"))

# %% te.ops.masked_fill
te.ops.masked_fill(table, table > 4, -1.0)

# %% te.ops.matmul
te.ops.matmul(table, table.T)

# %% te.ops.max_pool1d
te.ops.max_pool1d(signal, 2)

# %% te.ops.max_pool2d
te.ops.max_pool2d(image, 2)

# %% te.ops.max_pool3d
te.ops.max_pool3d(np.ones((1, 1, 2, 2, 2), "float32"), 2)

# %% te.ops.mish
te.ops.mish(v)

# %% te.ops.mse_loss
te.ops.mse_loss(v, v * 0)

# %% te.ops.nbody_forces
te.ops.nbody_forces(np.array([[0, 0], [1, 0]], "float32"), np.ones(2, "float32"))

# %% te.ops.nbody_step
te.ops.nbody_step(
    np.array([[0, 0], [1, 0]], "float32"), np.zeros((2, 2), "float32"), np.ones(2, "float32")
)[0]

# %% te.ops.nll_loss
te.ops.nll_loss(np.log(np.full((2, 3), 0.25, "float32")), labels)

# %% te.ops.normalize
te.ops.normalize(table)

# %% te.ops.one_hot
te.ops.one_hot(labels, 3)

# %% te.ops.pad
te.ops.pad(v, (1, 1), mode="reflect")

# %% te.ops.pixel_shuffle
te.ops.pixel_shuffle(np.arange(4, dtype="float32").reshape(1, 4, 1, 1), 2)

# %% te.ops.pixel_unshuffle
te.ops.pixel_unshuffle(image, 2).shape

# %% te.ops.prelu
te.ops.prelu(table - 3, np.array([0.1], "float32"))

# %% te.ops.random_bits
te.ops.random_bits((3,), 7)

# %% te.ops.relu
te.ops.relu(v)

# %% te.ops.relu6
te.ops.relu6(v * 10)

# %% te.ops.rms_norm
te.ops.rms_norm(table, 3)

# %% te.ops.rnn
te.ops.rnn(steps, hidden, np.ones((2, 3), "float32"), np.ones((2, 2), "float32")).shape

# %% te.ops.rnn_cell
te.ops.rnn_cell(table, hidden, np.ones((2, 3), "float32"), np.ones((2, 2), "float32"))

# %% te.ops.running_stats
te.ops.running_stats(table, np.zeros(3, "float32"), np.ones(3, "float32"))

# %% te.ops.scatter_add
te.ops.scatter_add(table, 1, np.zeros((2, 3), "int32"), table)

# %% te.ops.scatter_reduce
te.ops.scatter_reduce(table, 1, np.zeros((2, 3), "int32"), table, "amax")

# %% te.ops.segment_max
te.ops.segment_max(v, np.array([0, 0, 1, 1], "int32"), 2)

# %% te.ops.segment_sum
te.ops.segment_sum(v, np.array([0, 0, 1, 1], "int32"), 2)

# %% te.ops.selu
te.ops.selu(v)

# %% te.ops.shallow_water_step
te.ops.shallow_water_step(
    np.ones((4, 4), "float32"), np.zeros((4, 4), "float32"), np.zeros((4, 4), "float32")
)[0].shape

# %% te.ops.sigmoid
te.ops.sigmoid(v)

# %% te.ops.silu
te.ops.silu(v)

# %% te.ops.smooth_l1_loss
te.ops.smooth_l1_loss(v, v * 0)

# %% te.ops.sobel
te.ops.sobel(photo).shape

# %% te.ops.soft_histogram
te.ops.soft_histogram(np.array([0.1, 0.2, 0.9], "float32"), 2)

# %% te.ops.softmax
te.ops.softmax(table)

# %% te.ops.softplus
te.ops.softplus(v)

# %% te.ops.softshrink
te.ops.softshrink(v)

# %% te.ops.softsign
te.ops.softsign(v)

# %% te.ops.streaming_attention
te.ops.streaming_attention(q, q, q)

# %% te.ops.streaming_logsumexp
te.ops.streaming_logsumexp(table)

# %% te.ops.tanh
te.ops.tanh(v)

# %% te.ops.tanhshrink
te.ops.tanhshrink(v)

# %% te.ops.threshold
te.ops.threshold(v, 0.0, -9.0)

# %% te.ops.top1
te.ops.top1(table)

# %% te.ops.unfold
te.ops.unfold(image, 2).shape

# %% te.ops.uniform
te.ops.uniform((3,), 7)

# %% te.ops.unsharp_mask
te.ops.unsharp_mask(photo, 1.0).shape

# %% te.ops.var_mean
te.ops.var_mean(table)

# %% te.ops.warp
te.ops.warp(image, np.full((1, 2, 4, 4), 0.5, "float32"))

# %% te.ops.wave_step
te.ops.wave_step(photo, photo).shape

# %% te.ops.welford
te.ops.welford(table)
