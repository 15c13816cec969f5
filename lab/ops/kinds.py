"""What all compiled kernels agree on: the three ways of forgetting, as numbers, and the least penalty scale."""

SOFTMAX, FOX, FPA = 0, 1, 2

# An infinite penalty is a mask even at scale 0, and 0 * inf is nan: kernels multiply by at least the smallest normal
# float32, which no finite penalty notices.
LEAST_SCALE = 2.0**-126
