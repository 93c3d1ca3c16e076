# Buffers in a block of memory, included by _core.pyx. Conversions only.
from offsets cimport CPacking, CTimedBuffer, pack_buffers as c_pack_buffers


def pack_buffers(begin, end, size, int64_t capacity, int64_t most):
    """(offsets (n,) i64 or None, whether there certainly are none, partial packings looked at) of buffers alive in [begin, end)."""
    cdef const int64_t[::1] first = np.ascontiguousarray(begin, dtype=np.int64).reshape(-1)
    cdef const int64_t[::1] last = np.ascontiguousarray(end, dtype=np.int64).reshape(-1)
    cdef const int64_t[::1] sizes = np.ascontiguousarray(size, dtype=np.int64).reshape(-1)
    if not first.shape[0] == last.shape[0] == sizes.shape[0]:
        raise ValueError(f"{first.shape[0]} begins, {last.shape[0]} ends and {sizes.shape[0]} sizes")
    cdef vector[CTimedBuffer] buffers
    cdef CTimedBuffer one
    cdef Py_ssize_t i
    for i in range(first.shape[0]):
        one.begin, one.end, one.size = first[i], last[i], sizes[i]
        buffers.push_back(one)
    cdef CPacking found
    with nogil:
        found = c_pack_buffers(buffers, capacity, most)
    cdef vector[int64_t] offsets
    if not found.offsets.has_value():
        return None, found.exhausted, found.opened
    offsets = found.offsets.value()
    return array(offsets.data(), offsets.size(), "i8"), found.exhausted, found.opened
