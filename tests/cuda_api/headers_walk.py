"""Walks the toolkit's headers: every function that takes or returns memory has a row in symbols/cuda.def, those of some
families a hook, and every row is a function of theirs with the version that introduced it; functions of the driver
without a row are named in symbols/cuda_known.def. --self-test: an invented function is seen as missing."""
import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ARGUMENTS = argparse.Namespace(compiler="c++", include=None)
INTEROPERATION = ("cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cuda_gl_interop.h", "cuda_egl_interop.h",
                  "cuda_vdpau_interop.h")
OF_GRAPHICS = re.compile(r"GL|EGL|Egl|VDPAU")
# What those include of other packages; their own types don't matter for the walk.
FOREIGN = ("GL/gl.h", "GL/glu.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h", "cudaProfiler.h")

# A parameter of one of these types is memory, or describes where memory is; some types come in several versions.
MEMORY_TYPE = re.compile(
    r"\b(CUdeviceptr|CUarray|CUmipmappedArray|CUmemoryPool|CUmemGenericAllocationHandle|CUexternalMemory|CUipcMemHandle"
    r"|CUgraphicsResource|CUarrayMapInfo|CUstreamBatchMemOpParams|CUgraphNodeParams|CUeglFrame|CUmem[A-Z]\w+"
    r"|CUtensorMap|CUDA_(MEMCPY|MEMSET|MEM_|ARRAY|RESOURCE_DESC|EXTERNAL_MEMORY|BATCH_MEM)\w*"
    r"|cuda(Array|MipmappedArray)(_const)?_t|cudaMem[A-Z]\w+|cudaPitchedPtr|cudaPointerAttributes|cudaExternalMemory\w+"
    r"|cudaIpcMemHandle_t|cudaResourceDesc|cudaGraphicsResource(_t)?|cudaGraphNodeParams|cudaEglFrame|cudaArray\w+"
    r")(_v\d)?\b")
# And so does a function with one of these in its name, whatever it takes.
MEMORY_NAME = re.compile(r"Mem|Cpy|Alloc|Malloc|Free|Array|Pointer|HostRegister|HostUnregister|HostGet|Symbol"
                         r"|BufferObject")
NOT_MEMORY_NAME = re.compile(r"SharedMemConfig|SMemPerBlock|DumpToMemory|GetFuncBySymbol|LinkAdd|Coredump|UserObject"
                             r"|ParamSetv")
# A bare pointer is memory as well, unless its name says what else it is.
NOT_MEMORY = re.compile(r"userData|args|kernelParams|extra|\w*[oO]ptions?Values|image|fatCubin|cubinOut|code|func"
                        r"|funcPtr|fptr|pfn|entryFuncAddr|ppExportTable|nvSciSyncAttrList")
# Gone since CUDA 12: they name memory that textures and surfaces read, and neither take it nor give it back.
GONE = re.compile(r"cuda(?!\w*Object)(Bind|Unbind|Get)(Texture|Surface)\w*|cudaCreateTextureObject_v2")
# Look-ups lead to all the others.
LOOK_UPS = re.compile(r"cuGetProcAddress(_v2)?")

# What Cistern accounts for, and how a function of the driver is told to belong there: by its name, or by what it takes.
# Each has a hook. Left out are interfaces before 3.2, with 32-bit addresses and sizes.
BEFORE_3_2 = re.compile(r"_v1\b|unsigned int (ByteCount|bytesize)")
FAMILIES = {
    "copies": lambda name, parameters: re.match(r"cu(Memcpy|\w*Cpy)", name) and not name.startswith("cuGraph"),
    "allocations": lambda name, parameters: re.match(
        r"cu(Mem|Array|Mipmapped|Ipc(?!\w*Event)|ImportExternalMemory|DestroyExternalMemory|Multicast)(?!\w*Export)\w*"
        r"(Alloc(?!ation[GP])|Free|Create|Destroy|Import|Open|Close|Register|Unregister|Release|Retain)", name)
        or re.fullmatch(r"cu(ImportExternal|DestroyExternal)Memory", name),
    "captures": lambda name, parameters: re.match(r"cuStream(Begin|End)(Rec|C)apture", name),
    "graph memory": lambda name, parameters: re.match(r"cuGraphAddMem(Alloc|Free)|cuDevice(Set)?GraphMem", name)
        or name.startswith("cuGraphAdd") and "CUgraphNodeParams" in parameters,
    "lives of graphs": lambda name, parameters: re.match(r"cuGraph(Exec)?(Instantiate|Launch|Upload|Destroy)(?!Node)",
                                                         name),
    "host functions": lambda name, parameters: re.search(r"\bCU(hostFn|streamCallback|DA_HOST_NODE_PARAMS)\b",
                                                          parameters),
}
# Without one on purpose.
WITHOUT_HOOK = {
    # Between logical endpoints, which are neither the host's memory nor a device's.
    "cuFabricCpyBatchAsync", "cuFabricCpyBatchAsync_ptsz",
    # Addresses and pools: no memory of their own.
    "cuMemAddressFree", "cuMemPoolImportFromShareableHandle",
    # Runs when an object goes, with no stream that could wait for it.
    "cuUserObjectCreate",
}

ROWS = """
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) DRIVER base version stream name;
#define CUDA_RUNTIME(action, name, parameters, arguments) RUNTIME name;
#define CUDA_PASS(name) PASS name;
#define CUDA_KNOWN(name) KNOWN name;
#define CUDA_HARMLESS(name) HARMLESS name;
#include "shim/symbols/cuda.def"
#include "shim/symbols/cuda_known.def"
"""


def preprocessed(text, *flags):
    command = [ARGUMENTS.compiler, "-E", "-P", "-x", "c++", *flags, "-"]
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout


class Headers:
    """Every exported function of the headers: name -> text of its parameters; and the driver's versions."""

    def __init__(self, include):
        self.functions = {}
        self.versions = collections.defaultdict(set)  # (base, suffix of the per-thread twin) -> versions
        self.symbols = {}  # base -> what a program of today gets for it
        self.version = int(re.search(r"^#define CUDA_VERSION (\d+)", (include / "cuda.h").read_text(), re.M)[1])
        with tempfile.TemporaryDirectory() as folder:
            for name in FOREIGN:
                path = pathlib.Path(folder) / name
                path.parent.mkdir(exist_ok=True)
                path.write_text("")
            flags = ("-I" + str(include), "-I" + folder)
            files = [name for name in INTEROPERATION if (include / name).exists()]
            self.has_all_files = len(files) == len(INTEROPERATION)
            all_files = ["cudaTypedefs.h", "cudaProfilerTypedefs.h", "cuda_runtime_api.h", *files]
            for mode in ("-D__CUDA_API_VERSION_INTERNAL", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM", "-DNO_MODE"):
                text = preprocessed("".join(f"#include <{name}>\n" for name in all_files), mode, *flags)
                self.add(text)
            bases = sorted({base for base, _ in self.versions})
            text = preprocessed("#include <cuda.h>\n" + "".join(f'"{base}" {base}\n' for base in bases), *flags)
            self.symbols = dict(re.findall(r'^"(\w+)" (\w+)$', text, re.MULTILINE))

    def add(self, text):
        for base, version, suffix in re.findall(r"\bPFN_(cu\w+?)_v(\d+)(_pt[sd][sz])?\)", text):
            self.versions[base, suffix].add(int(version))
        # Inline bodies (cuGetProcAddress_v2_ptsz, templates of the runtime) export nothing.
        for name, parameters in re.findall(
                r"\b(?:CUresult|cudaError_t)\s+(cu[A-Z]\w*|cuda[A-Z]\w*)\s*\(([^(){};]*(?:\([^()]*\)[^(){};]*)*)\)"
                r"\s*(?:__attribute__\s*\(\(.*?\)\)\s*)?;", text):
            self.functions.setdefault(name, " ".join(parameters.split()))


# The newest toolkit that the rows were made for.
NEWEST = 13050


class Rows:
    """Those that a toolkit of that version can have."""

    def __init__(self, toolkit=NEWEST):
        text = preprocessed(ROWS, "-I" + str(ROOT))
        self.driver = [(base, int(version), stream, name) for base, version, stream, name in
                       re.findall(r"DRIVER (\w+) (\d+) (\w+) (\w+);", text) if int(version) <= toolkit]
        self.runtime = re.findall(r"RUNTIME (\w+);", text)
        self.passed = re.findall(r"PASS (\w+);", text)
        self.known_apart = [re.findall(rf"{mark} (\w+);", text) for mark in ("KNOWN", "HARMLESS")]
        self.known = sum(self.known_apart, [])

    def names(self):
        return [row[3] for row in self.driver] + self.runtime + self.passed


def moves_memory(name, parameters):
    if GONE.fullmatch(name):
        return False
    if LOOK_UPS.fullmatch(name) or MEMORY_TYPE.search(parameters):
        return True
    if NOT_MEMORY_NAME.search(name):
        return False
    return bool(MEMORY_NAME.search(name)) or any(
        not NOT_MEMORY.fullmatch(parameter) for parameter in re.findall(r"\bvoid\s*\*+\s*(\w+)", parameters))


def of_driver(name):
    return re.match(r"cu[A-Z]", name)


def without_hook(functions, hooked):
    """Family -> its functions that have none."""
    return {family: sorted(missing) for family, belongs in FAMILIES.items()
            if (missing := {name for name, parameters in functions.items()
                            if of_driver(name) and belongs(name, parameters) and not BEFORE_3_2.search(parameters)}
                - set(hooked) - WITHOUT_HOOK)}


def without_row(functions, names):
    return sorted(name for name, parameters in functions.items()
                  if name not in names and moves_memory(name, parameters))


class Walk(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.headers = Headers(ARGUMENTS.include)
        cls.rows = Rows(cls.headers.version)

    def test_every_function_of_a_family_is_hooked(self):
        self.assertEqual(without_hook(self.headers.functions, [row[3] for row in self.rows.driver]), {})

    def test_each_family_has_functions(self):
        self.assertEqual(set(without_hook(self.headers.functions, [])), set(FAMILIES))

    def test_every_function_of_the_driver_is_known(self):
        functions = set(filter(of_driver, self.headers.functions)) | {base for base, _ in self.headers.versions}
        bases = {row[0] for row in self.rows.driver}
        unknown = functions - set(self.rows.names()) - set(self.rows.known) - bases
        self.assertEqual(sorted(unknown), [], "neither in symbols/cuda.def nor in symbols/cuda_known.def")

    def test_what_is_known_without_a_row_is_a_function_without_one(self):
        self.assertEqual(set(self.rows.known) & set(self.rows.names()), set())
        self.assertEqual(len(self.rows.known), len(set(self.rows.known)), "once")
        for names in self.rows.known_apart:
            self.assertEqual(names, sorted(names), "in their order")
        functions = set(self.headers.functions) | {base for base, _ in self.headers.versions}
        gone = [name for name in self.rows.known if name not in functions]
        if self.headers.version >= NEWEST and self.headers.has_all_files:
            self.assertEqual(gone, [], "of no header")

    def test_the_headers_were_read(self):
        self.assertGreater(len(self.headers.functions), 800)
        for name in ("cuMemAlloc", "cuMemAlloc_v2", "cuMemcpyHtoD_v2_ptds", "cuMemFreeAsync_ptsz", "cudaMalloc",
                     "cudaMemcpy_ptds", "cudaFreeAsync_ptsz"):
            self.assertIn(name, self.headers.functions)

    def test_every_function_that_moves_memory_has_a_row(self):
        missing = without_row(self.headers.functions, set(self.rows.names()))
        self.assertEqual(missing, [], "take or return memory, but have no row in symbols/cuda.def")

    def test_every_row_is_a_function(self):
        if self.headers.version < NEWEST:
            self.skipTest("of what has no version, older headers lack some")
        unknown = sorted(set(self.rows.names()) - set(self.headers.functions))
        if not self.headers.has_all_files:
            unknown = [name for name in unknown if not OF_GRAPHICS.search(name)]
        self.assertEqual(unknown, [], "rows of functions that no header has")

    def test_no_function_has_two_rows(self):
        counts = collections.Counter(self.rows.names())
        self.assertEqual([name for name, count in counts.items() if count > 1], [])

    def test_versions_and_streams_are_those_of_the_headers(self):
        for base, version, stream, name in self.rows.driver:
            with self.subTest(name):
                suffix = re.search(r"(_pt[sd][sz])?$", name)[0]
                twins = {twin for twin in ("_ptds", "_ptsz") if self.headers.versions.get((base, twin))}
                self.assertIn(version, self.headers.versions[base, suffix])
                self.assertEqual(stream, "per_thread" if suffix else "legacy" if twins else "any")
                self.assertRegex(name, rf"^{base}(_v\d)?{suffix}$")

    def test_what_programs_of_today_link_to_has_the_newest_row(self):
        rows = collections.defaultdict(dict)
        for base, version, stream, name in self.rows.driver:
            if stream != "per_thread":
                rows[base][version] = name
        for base, names in rows.items():
            with self.subTest(base):
                linked = self.headers.symbols[base]
                if linked != base and linked in rows:
                    continue  # another function took its name (cuGraphInstantiateWithFlags), and has a row of its own
                # The headers keep the first name where they added a second one beside it (cuCtxSynchronize_v2).
                # And before 13.0 that of cuCtxCreate_v2, whose later versions have to be asked for.
                # 13.5 keeps the second cuGraphAddNode, whose third takes the same.
                if base != "cuGraphAddNode" and (self.headers.version >= 13000 or base != "cuCtxCreate"):
                    self.assertIn(linked, (names[max(names)], base))
                self.assertIn(linked, names.values())

    def test_a_hooked_function_is_hooked_in_all_its_later_versions(self):
        # Asked for a later version that has no row, the look-up would find the row of the older ABI.
        rows = collections.defaultdict(set)
        for base, version, stream, name in self.rows.driver:
            rows[base, re.search(r"(_pt[sd][sz])?$", name)[0]].add(version)
        for key, versions in rows.items():
            later = {version for version in self.headers.versions[key] if version > min(versions)}
            self.assertEqual(later - versions, set(), f"{key}: versions without a row")


class SelfTest(unittest.TestCase):
    """What the walk says of functions that don't exist."""

    INVENTED = {
        "cuMemInvent": "CUdeviceptr *dptr", "cuInvented": "CUdeviceptr dptr, size_t bytes",
        "cudaInvented": "void **devPtr, size_t size", "cudaInventArray": "int *number",
        "cuInventedHandle": "CUmemGenericAllocationHandle handle", "cuInventedHost": "const void *hostBlock",
    }
    HARMLESS = {"cuInventedCount": "int *count", "cuInventedCall": "CUstream hStream, void *userData"}

    def test_an_invented_function_is_missing(self):
        found = without_row({**self.INVENTED, **self.HARMLESS}, set())
        self.assertEqual(found, sorted(self.INVENTED))

    def test_an_invented_function_of_a_family_has_no_hook(self):
        invented = {
            "copies": {"cuMemcpyInventedAsync": "CUdeviceptr to, CUdeviceptr from, size_t bytes"},
            "allocations": {"cuMemInventedAlloc": "size_t bytes", "cuArrayCreateInvented": "int kind"},
            "captures": {"cuStreamBeginCaptureInvented": "CUstream stream"},
            "graph memory": {"cuGraphAddNode_v9": "CUgraph graph, CUgraphNodeParams *parameters"},
            "lives of graphs": {"cuGraphInstantiateInvented": "CUgraphExec *executable, CUgraph graph"},
            "host functions": {"cuInvented": "CUstream stream, CUhostFn function"},
        }
        functions = {name: parameters for family in invented.values() for name, parameters in family.items()}
        self.assertEqual(without_hook({**functions, **self.HARMLESS}, []),
                         {family: sorted(names) for family, names in invented.items()})

    def test_a_row_satisfies_it(self):
        self.assertEqual(without_row(self.INVENTED, set(self.INVENTED)), [])

    def test_a_removed_row_is_missed(self):
        headers, rows = Headers(ARGUMENTS.include), Rows()
        names = set(rows.names()) - {"cuMemAlloc_v2", "cudaMallocAsync_ptsz"}
        self.assertEqual(without_row(headers.functions, names), ["cuMemAlloc_v2", "cudaMallocAsync_ptsz"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--include", type=pathlib.Path, required=True, help="the toolkit's headers")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--self-test", action="store_true")
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest, "SelfTest" if ARGUMENTS.self_test else "Walk"], verbosity=2)
