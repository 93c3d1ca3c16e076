# The GPU back end, included by _core.pyx. Conversions only.
from gpu cimport CDevice, CExecutable, DeviceReport, gpu_executable, gpu_open, gpu_problems, gpu_report, gpu_storage
from libcpp.memory cimport unique_ptr

_PRECISIONS = ("float32", "tf32", "float16", "bfloat16")


cdef vector[string] folder_list(folders):
    cdef vector[string] names
    for folder in folders:
        names.push_back((<str?>folder).encode())
    return names


def gpu_missing(folders=(), *, bint system=True):
    """What the GPU back end lacks here, a sentence each; empty where it can run. ``folders`` are searched for NVIDIA's libraries before the
    system's own places (``system``)."""
    cdef vector[string] names = folder_list(folders)
    cdef vector[string] found
    with nogil:
        found = gpu_problems(names, system)
    return [text.decode() for text in found]


cdef int precision_number(str precision) except -1:
    if precision not in _PRECISIONS:
        raise _errors.UsageError(f"The precision {precision!r} is unknown; choose one of {', '.join(_PRECISIONS)}.")
    return _PRECISIONS.index(precision)


def gpu_storage_dtype(int dtype, str precision):
    """The ONNX element type in which a tensor of ``dtype`` lies in the GPU's memory."""
    return gpu_storage(dtype, precision_number(precision))


cdef class GpuDevice:
    """An NVIDIA GPU with cuDNN and cuBLASLt opened on it. RuntimeError, with what is missing, where that cannot be."""
    cdef shared_ptr[CDevice] ptr        # shared with every executable on it

    def __init__(self, folders=(), *, bint system=True, int number=0):
        cdef vector[string] names = folder_list(folders)
        with nogil:
            self.ptr = gpu_open(names, system, number)

    def report(self):
        """Name, architecture and memory of the GPU (bytes), versions of the libraries, where they were found."""
        cdef DeviceReport r = gpu_report(deref(self.ptr))
        return {
            "name": r.name.decode(), "architecture": r.architecture.decode(), "cudnn": r.cudnn.decode(), "cublas": r.cublas.decode(),
            "driver": r.driver.decode(), "nvrtc": r.nvrtc.decode(), "processors": r.processors, "memory": r.memory, "cache": r.cache,
            "libraries": [text.decode() for text in r.libraries],
        }


cdef class GpuExecutable:
    """A graph in a GPU's memory. Every method may raise RuntimeError with a sentence.

    constants: (value, contiguous bytes in storage type) for each constant that work or outputs read. workspace, rotate: bytes, see gpu.h.
    """
    cdef unique_ptr[CExecutable] ptr    # owned; it holds the device

    def __init__(self, GpuDevice device, Graph graph, constants, *, str precision="float32", size_t workspace=268435456, size_t rotate=0, bint tune=True):
        cdef vector[pair[ValueId, string]] contents
        cdef int number = precision_number(precision)
        for value, data in constants:
            contents.push_back(pair[ValueId, string](<ValueId>value, <bytes?>data))
        with nogil:
            self.ptr = gpu_executable(device.ptr, graph.ptr, contents, number, workspace, rotate, tune)

    def input_bytes(self, size_t index):
        return deref(self.ptr).input_bytes(index)

    def output_bytes(self, size_t index):
        return deref(self.ptr).output_bytes(index)

    def set_input(self, size_t index, const unsigned char[::1] data):
        """Copies an input to the GPU; ``data``: its elements in storage type."""
        if <size_t>data.shape[0] != deref(self.ptr).input_bytes(index):
            raise _errors.UsageError(f"input {index} has {data.shape[0]} bytes, expected {deref(self.ptr).input_bytes(index)}")
        if data.shape[0]:
            deref(self.ptr).set_input(index, <const void*>&data[0])

    def get_output(self, size_t index):
        """The bytes of an output, in storage type."""
        cdef bytearray out = bytearray(deref(self.ptr).output_bytes(index))
        cdef unsigned char[::1] view = out
        if len(out):
            deref(self.ptr).get_output(index, <void*>&view[0])
        return out

    def prepare(self):
        """Chooses among alternatives with the inputs at hand, and captures the whole as one CUDA graph."""
        with nogil:
            deref(self.ptr).prepare()

    def run(self):
        """Runs once and waits."""
        with nogil:
            deref(self.ptr).run()

    def time(self, int samples, double least_ms):
        """Milliseconds per run, one a sample of at least ``least_ms``, between events on the GPU."""
        cdef vector[double] found
        with nogil:
            found = deref(self.ptr).time(samples, least_ms)
        return list(found)

    def profile(self, int samples=5):
        """(what it is, median milliseconds) of each step, started one by one."""
        cdef vector[pair[string, double]] found
        with nogil:
            found = deref(self.ptr).profile(samples)
        return [(entry.first.decode(), entry.second) for entry in found]

    def steps(self):
        """What the steps are."""
        return [text.decode() for text in deref(self.ptr).steps()]

    @property
    def memory(self):
        """Bytes taken on the GPU."""
        return deref(self.ptr).memory()
