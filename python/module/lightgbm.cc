// LightGBM's collectives as calls of a group: what its LGBM_NetworkInitWithFunctions takes (rondo.lightgbm).
#include <cstring>

#include "python/module/module.h"

namespace rondo::python {
namespace {

using Sum = void (*)(const char* in, char* inout, int element_bytes, int32_t bytes);

// LightGBM's network belongs to a thread, which makes its calls. It refers to the communicator, which rondo.lightgbm
// keeps.
struct Network {
  rondo_comm_t group = nullptr;
  int rank = 0;
  void (*raise)(const char* text) = nullptr;  // throws a std::runtime_error that LightGBM catches
  rondo_result_t result = RONDO_OK;           // of the call that failed
};
thread_local Network network;

// LightGBM counts bytes, the call elements.
std::vector<uint64_t> elements(const int32_t* bytes, int blocks, int element_bytes) {
  std::vector<uint64_t> counts;
  for (int i = 0; i < blocks; ++i) counts.push_back(static_cast<uint64_t>(bytes[i] / element_bytes));
  return counts;
}

struct Addition {
  Sum sum;
  int element_bytes;
};
// LightGBM's sum of histograms as an operation of the program. Its elements are opaque, so it is given their size.
void add_elements(const void* in, void* inout, size_t count, void* context) {
  const Addition& by = *static_cast<const Addition*>(context);
  by.sum(static_cast<const char*>(in), static_cast<char*>(inout), by.element_bytes,
         static_cast<int32_t>(count * static_cast<size_t>(by.element_bytes)));
}

// The call blocks, so what it refers to may lie on this stack.
rondo_result_t run_reduce_scatter(const char* in, int element_bytes, const int32_t* starts, const int32_t* lengths,
                                  int blocks, char* out, Sum sum) {
  const std::vector<uint64_t> counts = elements(lengths, blocks, element_bytes),
                              places = elements(starts, blocks, element_bytes);
  Addition by{sum, element_bytes};
  rondo_options_t options RONDO_OPTIONS_INIT;
  options.user = {add_elements, &by, static_cast<uint32_t>(element_bytes), 1};
  rondo_call_t call RONDO_CALL_INIT;
  call.collective = RONDO_REDUCE_SCATTER;
  call.dtype = RONDO_UINT8;
  call.op = RONDO_USER;
  call.input = in;
  call.output = out;
  call.uneven = 1;
  call.input_counts = counts.data();
  call.input_displacements = places.data();
  call.options = &options;
  return rondo_run(network.group, &call);
}

// The block that is this rank's may lie anywhere, in the output too.
rondo_result_t run_all_gather(const char* in, const int32_t* starts, const int32_t* lengths, int blocks, char* out) {
  const std::vector<uint64_t> counts = elements(lengths, blocks, 1), places = elements(starts, blocks, 1);
  char* const own = out + places[static_cast<size_t>(network.rank)];
  if (const uint64_t bytes = counts[static_cast<size_t>(network.rank)]; bytes > 0) std::memmove(own, in, bytes);
  return rondo_all_gather_v(network.group, own, out, counts.data(), places.data(), RONDO_UINT8, nullptr);
}

// No object with a destructor may live here: the exception passes. LightGBM was called without the interpreter lock,
// and so is this: no object of Python is touched.
void conclude(rondo_result_t result) {
  if (result == RONDO_OK) return;
  network.result = result;
  network.raise(rondo_last_error());
}

void reduce_scatter(char* in, int32_t, int element_bytes, const int32_t* starts, const int32_t* lengths, int blocks,
                    char* out, int32_t, const Sum& sum) {
  conclude(run_reduce_scatter(in, element_bytes, starts, lengths, blocks, out, sum));
}
void all_gather(char* in, int32_t, const int32_t* starts, const int32_t* lengths, int blocks, char* out, int32_t) {
  conclude(run_all_gather(in, starts, lengths, blocks, out));
}

}  // namespace

// lightgbm_network(handle or None, address of std::__throw_runtime_error): (reduce_scatter, all_gather), addresses of
// functions for this thread's network. None: it has none any more; what failed in it, an exception, or None.
PyObject* lightgbm_network(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    PyObject *handle = nullptr, *raise_address = nullptr;
    if (PyArg_ParseTuple(arguments, "OO", &handle, &raise_address) == 0) throw Raised();
    const rondo_result_t result = std::exchange(network, {}).result;
    if (handle == Py_None) return result == RONDO_OK ? Py_NewRef(Py_None) : last_error(result).release();
    network.group = Capsule<rondo_comm_t>::in(handle);
    check(rondo_rank(network.group, &network.rank));
    network.raise = reinterpret_cast<void (*)(const char*)>(PyLong_AsVoidPtr(raise_address));
    return Py_BuildValue("(NN)", PyLong_FromVoidPtr(reinterpret_cast<void*>(reduce_scatter)),
                         PyLong_FromVoidPtr(reinterpret_cast<void*>(all_gather)));
  });
}

}  // namespace rondo::python
