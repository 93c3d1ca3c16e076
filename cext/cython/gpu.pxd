# Declarations of the GPU back end (gpu.h); no code.
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

from core cimport CGraph, ValueId, translate_exception

cdef extern from "rlflow/gpu.h" namespace "rlflow::gpu" nogil:
    cdef cppclass CDevice "rlflow::gpu::Device":
        pass
    cdef cppclass DeviceReport:
        string name, architecture, cudnn, cublas, driver, nvrtc
        int processors
        size_t memory, cache
        vector[string] libraries
    cdef cppclass CExecutable "rlflow::gpu::Executable":
        size_t input_bytes(size_t) except +translate_exception
        size_t output_bytes(size_t) except +translate_exception
        void set_input(size_t, const void*) except +translate_exception
        void get_output(size_t, void*) except +translate_exception
        void prepare() except +translate_exception
        void run() except +translate_exception
        vector[double] time(int, double) except +translate_exception
        vector[pair[string, double]] profile(int) except +translate_exception
        vector[string] steps() except +translate_exception
        size_t memory()
    vector[string] gpu_problems "rlflow::gpu::problems"(const vector[string]&, cbool) except +translate_exception
    shared_ptr[CDevice] gpu_open "rlflow::gpu::open_device"(const vector[string]&, cbool, int) except +translate_exception
    DeviceReport gpu_report "rlflow::gpu::report"(const CDevice&) except +translate_exception

cdef extern from "gpu_bridge.h" namespace "rlflow::bridge" nogil:
    int gpu_storage(int, int) except +translate_exception
    unique_ptr[CExecutable] gpu_executable(shared_ptr[CDevice], shared_ptr[const CGraph], const vector[pair[ValueId, string]]&, int, size_t, size_t,
                                           cbool) except +translate_exception
