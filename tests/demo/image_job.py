"""An image job through OpenCV's UMat, which opens the OpenCL library itself (dlopen and dlsym)."""
import sys

import cv2
import numpy

if not cv2.ocl.haveOpenCL():
    sys.exit("OpenCV finds no OpenCL")
cv2.ocl.setUseOpenCL(True)
if not cv2.ocl.useOpenCL():
    sys.exit("OpenCV finds no OpenCL device")

random = numpy.random.default_rng(7)
picture = random.integers(0, 256, (480, 640, 3), dtype=numpy.uint8)
for turn in range(20):
    image = cv2.UMat(picture)
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    smooth = cv2.GaussianBlur(grey, (5, 5), 1.5)
    half = cv2.resize(smooth, (320, 240), interpolation=cv2.INTER_AREA)
    # Not Canny: OpenCV's kernels for it give another picture now and then, on PoCL's threads and without Cistern.
    edges = cv2.Laplacian(half, cv2.CV_8U)
    picture = numpy.roll(picture, turn, axis=0)
    print("turn", turn, "grey", int(grey.get().sum()), "smooth", int(smooth.get().sum()),
          "edges", int(edges.get().sum()))
