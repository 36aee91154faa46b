// The collectives. rondo/calls.py documents them.
#include <string>
#include <vector>

#include "python/module/request.h"

namespace rondo::python {
namespace {

// Raises for a type that the library lacks.
void check_reducible(const Buffer& array, int op, PyObject* op_name) {
  if (!array.is_complex()) {
    const Ref order = Ref::checked(PyObject_GetAttrString(array.foreign.get(), "byteorder"));
    const bool swapped = PyUnicode_CompareWithASCIIString(order.get(), ">") == 0;
    raise(PyExc_TypeError, "array has dtype %S, which can be moved and not reduced: %s", array.foreign.get(),
          swapped ? "its bytes are in the other order; pass array.astype(array.dtype.newbyteorder('='))"
                  : "pass array.astype of a type that Rondo reduces, such as float64");
  }
  if (op != RONDO_SUM && op != RONDO_AVG && op != RONDO_PREMULSUM && op != RONDO_PRODUCT) {
    raise(PyExc_ValueError, "op %R of %S is not defined: complex numbers have sum, avg, premulsum and product", op_name,
          array.foreign.get());
  }
}

// Raises where this rank, the root or another one, lacks the array that scatter() needs of it. Other ranks need not be
// asked: each checks what it gives.
void refuse_half(const Request& on, bool is_root) {
  if (is_root && !on.given.has("array")) {
    raise(PyExc_ValueError, "%s on rank %d, which is root: array is None", on.row.name.c_str(), on.rank());
  }
  if (!is_root && !on.given.has("out")) {
    raise(PyExc_ValueError, "%s on rank %d: pass out, an array of the shape and dtype of its part", on.row.name.c_str(),
          on.rank());
  }
}

// The _v forms, whose arguments rondo/calls.py has checked but for the arrays. Counts are elements of the array's type
// there, and of the library's here.
PyObject* uneven(Request& on) {
  const Given& given = on.given;
  rondo_call_t call RONDO_CALL_INIT;
  call.collective = on.whole("collective");
  const Buffer* const source = given.has("array") ? &on.buffer("array", false) : nullptr;
  const Buffer* target = nullptr;
  if (given.has("out") && source != nullptr) {
    uint64_t needed = PyLong_AsUnsignedLongLong(given["needed"]);
    if (PyErr_Occurred() != nullptr || __builtin_mul_overflow(needed, source->per_item, &needed)) needed = UINT64_MAX;
    PyErr_Clear();  // no array is as long
    target = &on.like(given["out"], *source, needed);
  } else if (given.has("out")) {
    target = &on.buffer("out", true);
  }
  const Buffer* const typed = source != nullptr ? source : target;
  call.op = op_of(given["op"]);
  if (call.collective == RONDO_REDUCE_SCATTER && source->foreign) {
    check_reducible(*source, call.op, given["op"]);
    if (call.op == RONDO_PRODUCT) raise(PyExc_ValueError, "reduce_scatter_v of complex numbers has no product");
  }
  const auto counts = [&](Parameter which) {
    auto numbers = given.has(which) ? numbers_of(given[which]) : std::vector<uint64_t>();
    for (uint64_t& number : numbers) number *= typed->per_item;
    return numbers;
  };
  const std::vector<uint64_t> input = counts("input_counts"), output = counts("output_counts");
  if (given.has("input_counts")) call.input_counts = input.data();
  if (given.has("output_counts")) call.output_counts = output.data();
  if (call.collective == RONDO_GATHER) call.count = source->count;
  if (call.collective == RONDO_SCATTER) call.count = target->count;
  call.uneven = 1;
  call.root = on.whole("root");
  return on.run(call, source, target, given["result"]);
}

// The library reads the list of tensors during the call alone, so it may lie on the stack of an asynchronous one.
PyObject* all_reduce_many(Request& on) {
  std::vector<rondo_tensor_t> tensors;
  Ref owners = Ref::checked(PyList_New(0));
  for (Py_ssize_t i = 0; i < PyList_Size(on.given["array"]); ++i) {
    PyObject* const array = PyList_GetItem(on.given["array"], i);
    const Buffer each = buffer_of(array, true, ("arrays[" + std::to_string(i) + "]").c_str());
    on.checked(each, "array");
    tensors.push_back({each.address, each.address, each.count, each.dtype});
    if (each.owner) PyList_Append(owners.get(), each.owner.get());
  }
  on.keep(std::move(owners));
  const int op = op_of(on.given["op"]);
  return on.submit_call(on.given["array"], rondo_all_reduce_many, rondo_all_reduce_many_async, tensors.data(),
                        tensors.size(), op);
}

constexpr NamedBody kCollectiveBodies[] = {{"_uneven", uneven}, {"_all_reduce_many", all_reduce_many}};

}  // namespace

std::span<const NamedBody> collective_bodies() { return kCollectiveBodies; }

// The order of the checks is that of the errors that a caller sees: root, arrays, operation. only_check: nothing is
// submitted.
PyObject* even(Request& on) {
  const Row& row = on.row;
  const Given& given = on.given;
  rondo_call_t call RONDO_CALL_INIT;
  call.collective = row.collective;
  if (row.takes("root")) call.root = on.whole("root");
  const bool is_root = call.root == on.rank(), has_buffers = row.takes("array");
  const bool in_place = row.new_out == Py_None && !given.has("out");
  if (row.root_sends && !in_place) refuse_half(on, is_root);
  const bool has_input = has_buffers && (!row.root_sends || is_root || in_place);
  const bool has_output = has_buffers && (!row.root_gets || is_root);

  const Buffer *source = nullptr, *target = nullptr;
  PyObject* result = Py_None;
  if (has_input) {
    source = &on.buffer("array", in_place && has_output && !(row.root_sends && is_root));
    call.count = row.blocks_in ? on.part(*source) : source->count;
  }
  if (has_output && in_place) {
    target = source;
    result = given["array"];
  } else if (has_output && has_input) {
    result = on.out_or_new();
    target = &on.like(result, *source, row.blocks_out ? call.count * on.size() : call.count);
  } else if (has_output) {
    target = &on.buffer("out", true);
    result = given["out"];
    call.count = target->count;
  }
  if (row.takes("op")) {
    call.op = op_of(given["op"]);
    if (source->foreign) check_reducible(*source, call.op, given["op"]);
  }
  if (given.has("only_check")) return Py_NewRef(Py_None);
  return on.run(call, source, target, result);
}

}  // namespace rondo::python
