"""Builds a benchmark's program against RMM: its headers and library as PyPI has them, and the substitute of the CUDA
runtime that the tests have, over their simulated driver.

    python3 -m pip install --target DIRECTORY librmm-cu13==25.10.0

Later releases bring a CUDA runtime inside of their library that the simulated driver does not serve."""
import os
import pathlib
import subprocess

BENCH = pathlib.Path(__file__).resolve().parent
CUDA = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
NEEDS = "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"  # its headers say so


def built(build, rmm, name):
    """bench/NAME.cpp as a program, and where it finds its libraries (LD_LIBRARY_PATH)."""
    program = build / "bench" / name
    includes = [rmm / "librmm/include", rmm / "librmm/include/rapids", rmm / "rapids_logger/include", CUDA]
    libraries = [rmm / "librmm/lib64", rmm / "rapids_logger/lib64", build / "tests/simcuda/13"]
    subprocess.run(["c++", "-std=c++20", "-O2", "-DNDEBUG", "-w", NEEDS, f"-I{BENCH.parent}",
                    *(f"-isystem{path}" for path in includes), BENCH / f"{name}.cpp", "-o", program,
                    *(f"-L{path}" for path in libraries), "-lrmm", "-lrapids_logger", "-l:libcudart.so.13", "-pthread"],
                   check=True)
    return program, ":".join(str(path) for path in [build / "tests/simcuda", *libraries])
