# A Python program that reaches the runtime and the driver through ctypes: nothing is linked, everything is dlsym.
# harness: recycles=device
import ctypes

made = {"device": 0, "pinned": 0}


def check(name, code):
    print(f"{name}: {code}", flush=True)
    return code == 0


def use_runtime(cuda):
    for round_number in range(3):
        block = ctypes.c_void_p()
        made["device"] += check("cudaMalloc", cuda.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(8000)))
        source = (ctypes.c_uint * 2000)(*[round_number] * 2000)
        check("cudaMemcpy", cuda.cudaMemcpy(block, source, ctypes.c_size_t(8000), 1))
        target = (ctypes.c_uint * 2000)()
        check("cudaMemcpy", cuda.cudaMemcpy(target, block, ctypes.c_size_t(8000), 2))
        print("holds", set(target))
        check("cudaFree", cuda.cudaFree(block))
        pinned = ctypes.c_void_p()
        made["pinned"] += check("cudaHostAlloc", cuda.cudaHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(500), 0))
        ctypes.memset(pinned, 1, 500)
        check("cudaFreeHost", cuda.cudaFreeHost(pinned))


def use_driver(cuda):
    check("cuInit", cuda.cuInit(0))
    for _ in range(3):
        block = ctypes.c_uint64()
        made["device"] += check("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(8000)))
        check("cuMemFree", cuda.cuMemFree_v2(block))
        check("cuMemFree again", cuda.cuMemFree_v2(block))
    print("unknown:", hasattr(cuda, "cuThatNeverWas"))


def load_runtime():
    for name in ("libcudart.so.13", "libcudart.so.12"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return ctypes.CDLL("libcudart.so")


use_runtime(load_runtime())
use_driver(ctypes.CDLL("libcuda.so.1"))
print(f"made: device {made['device']}, pinned {made['pinned']}")
