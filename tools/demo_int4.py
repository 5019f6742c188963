"""Reads `auto_round:auto_gptq` int4 tensors with numpy (library of the demo tools).

X.qweight I32 [K/8, N], X.qzeros I32 [K/G, N/8] (stored zero - 1), X.scales [K/G, N];
weights come back as float32 [N, K]. Needs numpy and torch only.
"""

import numpy as np

GROUP = 128
HALF_RANGE = 8  # symmetric codes are -8 ... 7


def packed_modules(tensors):
  return sorted(n.removesuffix(".qweight") for n in tensors if n.endswith(".qweight"))


def nibbles(words):
  """I32 [R, C] -> codes [R, C, 8], least significant nibble first."""
  shifts = np.arange(0, 32, 4, dtype=np.uint32)
  return ((words.numpy().view(np.uint32)[:, :, None] >> shifts) & 15).astype(np.int32)


def spread(rows):
  """One value per group [K/G, N] -> one per weight [N, K]."""
  return np.repeat(rows.T, GROUP, axis=1)


def dequantise(tensors, module):
  """float32 [N, K] = scale * (code - zero)."""
  codes = nibbles(tensors[f"{module}.qweight"])        # [K/8, N, 8]
  codes = codes.transpose(1, 0, 2).reshape(codes.shape[1], -1)
  zeros = nibbles(tensors[f"{module}.qzeros"])
  zeros = zeros.reshape(zeros.shape[0], -1) + 1        # [K/G, N]
  scales = tensors[f"{module}.scales"].float().numpy()
  return (spread(scales) * (codes - spread(zeros))).astype(np.float32)


def round_to_nearest(weight):
  """float32 [N, K] rounded to symmetric int4 groups, with no calibration.

  The scale is fp16 and signed so that the weight of largest magnitude gets code -8;
  this is AutoRound's rule before tuning, and the one it uses for the MTP layer.
  """
  groups = weight.reshape(weight.shape[0], -1, GROUP)
  low = -np.minimum(groups.min(axis=2, keepdims=True), 0)
  high = np.maximum(groups.max(axis=2, keepdims=True), 0)
  scale = np.where(high < low, low, -high) / np.float32(HALF_RANGE)
  scale = scale.astype(np.float16).astype(np.float32)
  scale = np.where(scale < 0, np.minimum(scale, -1e-5), np.maximum(scale, 1e-5))
  codes = np.clip(np.rint(groups / scale), -HALF_RANGE, HALF_RANGE - 1)
  return (codes * scale).astype(np.float32).reshape(weight.shape)
