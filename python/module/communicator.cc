#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "python/module/module.h"

namespace rondo::python {
namespace {

// --- arguments

// The parameters of all methods that are written here.
constexpr const char* kParameters[] = {"array",      "arrays",       "op",       "root",          "out",
                                       "dest",       "source",       "tag",      "timeout",       "scalar",
                                       "algorithm",  "wire",         "stream",   "needed",        "result",
                                       "collective", "input_counts", "async_op", "output_counts", "matched",
                                       "truncate",   "synchronous",  "copy",     "recoverable",   "only_check"};
constexpr size_t kParameterCount = std::size(kParameters);

// One of them, by its name.
class Parameter {
 public:
  consteval Parameter(const char* name) : index_(0) {
    while (kParameters[index_] != std::string_view(name)) ++index_;  // behind the last: an error of compilation
  }
  const char* name() const { return kParameters[index_]; }
  size_t index() const { return index_; }

 private:
  size_t index_;
};

class Request;
using Body = PyObject* (*)(Request&);

// A function of Python's (rondo/calls.py) whose body is here. References are kept for ever.
struct Row {
  std::string name;
  PyObject* declared = nullptr;
  Body body = nullptr;
  bool starts = false;                                // returns a Work, whatever its arguments
  Py_ssize_t positional = 0, count = 0;               // without self
  std::array<size_t, kParameterCount> order{};        // as declared: indices of kParameters
  std::array<PyObject*, kParameterCount> names{};     // interned, in that order
  std::array<PyObject*, kParameterCount> defaults{};  // by index; NULL: needed; None where there is no such parameter
  std::array<bool, kParameterCount> declares{};       // by index

  // Of a collective of equal blocks.
  rondo_collective_t collective = 0;
  int blocks_in = 0, blocks_out = 0;  // 1: its input, its output has a block for each rank
  int root_sends = 0, root_gets = 0;  // 1: the root alone has an input, an output
  PyObject* new_out = nullptr;        // makes an output of `array` and the size; None: it is in place

  bool takes(Parameter which) const { return declares[which.index()]; }
};

// The arguments of one call, by Parameter; borrowed.
class Given {
 public:
  Given(const Row& of, PyObject* self, PyObject* const* arguments, Py_ssize_t positional, PyObject* names)
      : values_(of.defaults) {
    const Py_ssize_t named = names != nullptr ? PyTuple_Size(names) : 0;
    bool fits = positional <= of.positional;
    for (Py_ssize_t i = 0; fits && i < positional; ++i) values_[of.order[i]] = arguments[i];
    for (Py_ssize_t i = 0; fits && i < named; ++i) {
      const auto end = of.names.begin() + of.count;
      PyObject* const name = PyTuple_GetItem(names, i);
      auto found = std::find(of.names.begin() + positional, end, name);  // almost always: names are interned
      if (found == end) {
        found = std::find_if(of.names.begin() + positional, end,
                             [&](PyObject* each) { return PyUnicode_Compare(each, name) == 0; });
      }
      fits = found != end;
      if (fits) values_[of.order[found - of.names.begin()]] = arguments[positional + i];
    }
    if (!fits || std::find(values_.begin(), values_.end(), nullptr) != values_.end()) {
      refuse(of, self, arguments, positional, names);
    }
  }
  PyObject* operator[](Parameter which) const { return values_[which.index()]; }
  bool has(Parameter which) const { return (*this)[which] != Py_None; }
  bool says(Parameter which) const {
    PyObject* const value = (*this)[which];
    return value != Py_None && value != Py_False && PyObject_IsTrue(value) != 0;
  }

 private:
  // The declared function says in Python's words what is wrong.
  [[noreturn]] static void refuse(const Row& of, PyObject* self, PyObject* const* arguments, Py_ssize_t positional,
                                  PyObject* names) {
    const Ref all = Ref::checked(PyTuple_New(positional + 1)), by_name = Ref::checked(PyDict_New());
    PyTuple_SetItem(all.get(), 0, Py_NewRef(self));
    for (Py_ssize_t i = 0; i < positional; ++i) PyTuple_SetItem(all.get(), i + 1, Py_NewRef(arguments[i]));
    for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_Size(names); ++i) {
      PyDict_SetItem(by_name.get(), PyTuple_GetItem(names, i), arguments[positional + i]);
    }
    Ref::checked(PyObject_Call(of.declared, all.get(), by_name.get()));
    raise(PyExc_SystemError, "%S does not say what these arguments lack", of.declared);
  }

  std::array<PyObject*, kParameterCount> values_;
};

// A function of rondo._arguments. `cache`: static, of the caller.
Ref checked_there(PyObject*& cache, const char* function, PyObject* value, const char* what, int rank) {
  return call(imported(cache, "rondo._arguments", function), "Osi", value, what, rank);
}

int whole_number(PyObject* value, const char* what, int rank) {
  int overflow = 0;
  const long number = PyLong_CheckExact(value) ? PyLong_AsLongAndOverflow(value, &overflow) : -1;
  if (PyLong_CheckExact(value) && overflow == 0 && number == static_cast<int>(number)) return static_cast<int>(number);
  static PyObject* function = nullptr;
  return static_cast<int>(PyLong_AsLong(checked_there(function, "whole_number", value, what, rank).get()));
}

// rondo_user_op_t: the context is a rondo.user_op.Fold, which lets nothing out.
void fold(const void* in, void* inout, size_t count, void* context) {
  const PyGILState_STATE state = until_the_end(PyGILState_Ensure);
  {
    auto* const by = static_cast<PyObject*>(context);
    const Ref bytes(PyObject_GetAttrString(by, "element_bytes"));
    const auto length = static_cast<Py_ssize_t>(count) * PyLong_AsSsize_t(bytes.get());
    const Ref a(PyMemoryView_FromMemory(const_cast<char*>(static_cast<const char*>(in)), length, PyBUF_READ));
    const Ref b(PyMemoryView_FromMemory(static_cast<char*>(inout), length, PyBUF_WRITE));
    const Ref returned(a && b ? PyObject_CallFunctionObjArgs(by, a.get(), b.get(), nullptr) : nullptr);
    if (!returned) PyErr_WriteUnraisable(by);
  }
  PyGILState_Release(state);
}

// rondo_user_op_t: of complex numbers.
template <typename Part>
void multiply(const void* in, void* inout, size_t count, void*) {
  const auto* a = static_cast<const Part*>(in);
  auto* b = static_cast<Part*>(inout);
  for (size_t i = 0; i < 2 * count; i += 2) {
    const Part real = a[i] * b[i] - a[i + 1] * b[i + 1];
    b[i + 1] = a[i] * b[i + 1] + a[i + 1] * b[i];
    b[i] = real;
  }
}

// A call's rondo_options_t.
class Options {
 public:
  // count: elements of the call's input, for `wire`. Raises.
  Options(const Given& given, int rank, uint64_t purpose, uint64_t count) : used_(purpose != 0) {
    for (const Parameter each : std::initializer_list<Parameter>{"timeout", "algorithm", "scalar", "wire", "stream"})
      used_ = used_ || given.has(each);
    options_.purpose = purpose;
    if (given.says("synchronous")) options_.flags |= RONDO_SYNCHRONOUS;
    if (given.says("truncate")) options_.flags |= RONDO_TRUNCATE;
    if (given.says("recoverable")) options_.flags |= RONDO_RECOVERABLE;
    used_ = used_ || options_.flags != 0;
    if (used_) read(given, rank, count);
  }
  const rondo_options_t* get() const { return used_ ? &options_ : nullptr; }
  PyObject* kept() const { return kept_ ? kept_.get() : Py_None; }  // until the call is over
  // The op is a UserOp, here by its function.
  void fold_by(PyObject* op, int dtype, PyObject* handle) {
    static PyObject* type = nullptr;
    kept_ = call(imported(type, "rondo.user_op", "Fold"), "OsO", op, dtype_name(dtype), handle);
    const Ref bytes = Ref::checked(PyObject_GetAttrString(kept_.get(), "element_bytes"));
    const Ref commutative = Ref::checked(PyObject_GetAttrString(kept_.get(), "commutative"));
    options_.user = {fold, kept_.get(), static_cast<uint32_t>(PyLong_AsUnsignedLong(bytes.get())),
                     PyObject_IsTrue(commutative.get())};
    used_ = true;
  }
  // dtype: of the parts.
  void multiply_complex(int dtype) {
    const bool single = dtype == RONDO_FLOAT32;
    options_.user = {single ? multiply<float> : multiply<double>, nullptr, single ? 8u : 16u, 1};
    used_ = true;
  }

 private:
  void read(const Given& given, int rank, uint64_t count) {
    static PyObject *milliseconds, *real_number, *text_of, *fields_of, *stream_handle;
    if (given.has("wire")) {
      const Ref fields = call(imported(fields_of, "rondo.wire", "fields_of"), "OK", given["wire"], count);
      PyObject *residual = nullptr, *kept = nullptr;
      if (PyArg_ParseTuple(fields.get(), "iiKOO", &options_.wire, &options_.wire_flags, &options_.wire_seed, &residual,
                           &kept) == 0) {
        throw Raised();
      }
      options_.residual = static_cast<float*>(PyLong_AsVoidPtr(residual));
      kept_ = Ref::borrowed(kept);
    }
    if (given.has("timeout")) {
      const Ref number = call(imported(milliseconds, "rondo._arguments", "milliseconds"), "Oi", given["timeout"], rank);
      options_.timeout_ms = PyLong_AsLongLong(number.get());
    }
    if (given.has("scalar")) {
      options_.scalar =
          PyFloat_AsDouble(checked_there(real_number, "real_number", given["scalar"], "scalar", rank).get());
    }
    if (given.has("algorithm")) {
      algorithm_ = PyBytes_AsString(checked_there(text_of, "text_of", given["algorithm"], "algorithm", rank).get());
      options_.algorithm = algorithm_.c_str();
    }
    if (given.has("stream")) {
      options_.on_stream = 1;
      options_.stream = PyLong_AsVoidPtr(
          call(imported(stream_handle, "rondo._arguments", "stream_handle"), "O", given["stream"]).get());
    }
  }

  rondo_options_t options_ RONDO_OPTIONS_INIT;
  bool used_;
  std::string algorithm_;
  Ref kept_;
};

// --- calls

// A group of ranks: the base of rondo.Communicator, which sets the fields.
struct Communicator {
  PyObject base;
  PyObject *handle, *batch;  // a capsule, or None after close(); a Batch that collects calls, or None
  int rank, size;
  unsigned long long purpose;  // of rondo_options_t
};

// One call of a method. Its arguments live as long: they are the caller's.
class Request {
 public:
  Request(const Row& method, PyObject* self, const Given& arguments)
      : row(method), given(arguments), object_(self), self_(*reinterpret_cast<Communicator*>(self)) {}

  const Row& row;
  const Given& given;

  int rank() const { return self_.rank; }
  uint64_t size() const { return static_cast<uint64_t>(self_.size); }
  int whole(Parameter which) const { return whole_number(given[which], which.name(), self_.rank); }
  Options options(uint64_t count) const { return {given, self_.rank, self_.purpose, count}; }
  void keep(Ref owners) { owners_ = std::move(owners); }

  Buffer& buffer(Parameter which, bool writes) {
    return checked(buffers_[used_++] = buffer_of(given[which], writes, which.name(), Takes::kEverything), which.name());
  }
  // An output of `count` elements of the input's type.
  Buffer& like(PyObject* out, const Buffer& source, uint64_t count) {
    Buffer& target = buffers_[used_++] = buffer_of(out, true, "out", Takes::kEverything);
    if (target.dtype != source.dtype || !same_foreign(target, source)) {
      raise(PyExc_TypeError, "out has dtype %S, and array has %S", name_of(target).get(), name_of(source).get());
    }
    if (target.count != count) {
      raise(PyExc_ValueError, "out has %llu elements; %llu are needed (array has %llu)", target.count + 0ULL,
            count + 0ULL, source.count + 0ULL);
    }
    return checked(target, "out");
  }
  // Arrays of a GPU come with a stream, and others without; copy=False: none is packed.
  template <typename Any>
  Any& checked(Any& buffer, const char* what) const {
    if (buffer.strided && given.has("copy") && !given.says("copy")) refuse_strides(buffer.strided.get(), what);
    if (buffer.on_device == given.has("stream")) return buffer;
    raise(PyExc_TypeError, buffer.on_device
                               ? "an array is in GPU memory: pass the stream that it is used in, as stream="
                               : "an array is in host memory: with stream= all arrays, out too, are in GPU memory");
  }
  // `out` if the caller gave one, else a new array.
  PyObject* out_or_new() {
    if (given.has("out")) return given["out"];
    made_ = call(row.new_out, "Oi", given["array"], self_.size);
    return made_.get();
  }
  // Elements of each of `size` parts of the first dimension.
  uint64_t part(const Buffer& source) const {
    const int64_t first = first_of(given["array"]);
    if (PyErr_Occurred() != nullptr) throw Raised();
    if (first % self_.size != 0) {
      raise(PyExc_ValueError, "the first dimension of array, %lld, is not divisible by %d ranks: use the _v form",
            first + 0LL, self_.size);
    }
    return source.count / size();
  }

  // block(comm): the call that blocks; start(comm, work): the one that returns a Work. result: of the call. A new
  // reference.
  template <typename Block, typename Start>
  PyObject* submit(PyObject* result, const Options& options, Block block, Start start, bool receives = false) {
    if (self_.handle == nullptr || self_.handle == Py_None)
      Ref::checked(PyObject_CallMethod(object_, "_open", nullptr));
    const Ref handle = Ref::borrowed(self_.handle);
    rondo_comm_t comm = Capsule<rondo_comm_t>::in(handle.get());
    const bool has_work = row.starts || given.says("async_op");
    const bool is_collected = self_.batch != nullptr && self_.batch != Py_None;
    Ref kept;
    for (const Buffer& buffer : buffers_) {
      if (buffer.packed_of && (has_work || is_collected))
        refuse_strides(buffer.packed_of.get(), "with async_op=True or in a batch an array");
    }
    if (has_work || is_collected) {
      const auto owner = [](const Ref& of) { return of ? of.get() : Py_None; };
      kept = Ref::checked(PyTuple_Pack(8, given["array"], given["out"], result, options.kept(),
                                       owner(buffers_[0].owner), owner(buffers_[1].owner), owner(owners_), object_));
    }
    if (!has_work) {
      if (is_collected) Ref::checked(PyObject_CallMethod(self_.batch, "keep", "(O)", kept.get()));
      check(without_gil([&] { return block(comm); }));
      for (const Buffer& buffer : buffers_) buffer.copy_back();
      return Py_NewRef(result);
    }
    Ref work = new_work(std::move(kept), result, receives);
    check(without_gil([&] { return start(comm, handle_in(work)); }));
    return work.release();
  }

  // Submits a function of rondo.h that takes these arguments and then options, or its form that returns a Work.
  template <typename Block, typename Start, typename... Arguments>
  PyObject* submit_call(PyObject* result, Block block, Start start, Arguments... arguments) {
    const Options used = options(0);
    return submit(
        result, used, [&](rondo_comm_t comm) { return block(comm, arguments..., used.get()); },
        [&](rondo_comm_t comm, rondo_work_t* work) { return start(comm, arguments..., used.get(), work); });
  }
  // The same of one that brings or finds a message: returns that, or the Work.
  template <typename Block, typename Start, typename... Arguments>
  PyObject* bring(Block block, Start start, Arguments... arguments) {
    const Options used = options(0);
    rondo_message_t message{};
    Ref result(submit(
        Py_None, used, [&](rondo_comm_t comm) { return block(comm, arguments..., used.get(), &message); },
        [&](rondo_comm_t comm, rondo_work_t* work) { return start(comm, arguments..., used.get(), work); }, true));
    return result && result.get() != Py_None ? result.release() : message_of(message).release();
  }

  // Submits a collective. call: all but type, buffers and options.
  PyObject* run(rondo_call_t call, const Buffer* source, const Buffer* target, PyObject* result) {
    Options used = options(source != nullptr ? source->count : 0);
    const Buffer* const typed = source != nullptr ? source : target;
    if (typed != nullptr) call.dtype = typed->dtype;
    if (source != nullptr) call.input = source->address;
    if (target != nullptr) call.output = target->address;
    if (call.op == RONDO_USER) used.fold_by(given["op"], typed->dtype, self_.handle);
    if (call.op == RONDO_PRODUCT && typed->is_complex()) {
      used.multiply_complex(typed->dtype);
      call.op = RONDO_USER;
      call.count /= typed->per_item;
    }
    call.options = used.get();
    return submit(
        result, used, [&](rondo_comm_t comm) { return rondo_run(comm, &call); },
        [&](rondo_comm_t comm, rondo_work_t* work) { return rondo_start(comm, &call, work); });
  }

 private:
  static Ref name_of(const Buffer& of) {
    return of.foreign ? Ref::borrowed(of.foreign.get()) : Ref::checked(PyUnicode_FromString(dtype_name(of.dtype)));
  }
  static bool same_foreign(const Buffer& left, const Buffer& right) {
    if (!left.foreign || !right.foreign) return left.foreign.get() == right.foreign.get();
    return PyObject_RichCompareBool(left.foreign.get(), right.foreign.get(), Py_EQ) == 1;
  }

  PyObject* object_;
  Communicator& self_;
  Buffer buffers_[2];
  size_t used_ = 0;
  Ref made_, owners_;
};

// --- collectives; rondo/calls.py documents them

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

// Raises where this rank, the root or another one, lacks the array that scatter() needs of it.
void refuse_half(const Request& on, bool is_root) {
  if (is_root && !on.given.has("array")) {
    raise(PyExc_ValueError, "%s on rank %d, which is root: array is None", on.row.name.c_str(), on.rank());
  }
  if (!is_root && !on.given.has("out")) {
    raise(PyExc_ValueError, "%s on rank %d: pass out, an array of the shape and dtype of its part", on.row.name.c_str(),
          on.rank());
  }
}

// A collective of equal blocks, whatever its row says.
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
  if (row.takes("op")) call.op = op_of(given["op"]);
  if (row.takes("op") && source->foreign) check_reducible(*source, call.op, given["op"]);
  if (given.has("only_check")) return Py_NewRef(Py_None);
  return on.run(call, source, target, result);
}

// The _v forms, whose arguments rondo/uneven.py has checked but for the arrays.
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

// --- messages

PyObject* send(Request& on) {
  const Buffer& from = on.buffer("array", false);
  const int dest = on.whole("dest"), tag = on.whole("tag");
  return on.submit_call(Py_None, rondo_send, rondo_send_async, from.address, from.count, from.dtype, dest, tag);
}

PyObject* receive(Request& on) {
  const Buffer& to = on.buffer("array", true);
  const int source = on.whole("source"), tag = on.whole("tag");
  return on.bring(rondo_recv, rondo_recv_async, to.address, to.count, to.dtype, source, tag);
}

// Receives the message that a matched probe has found.
PyObject* receive_matched(Request& on) {
  const Buffer& to = on.buffer("array", true);
  const Ref number = Ref::checked(PyObject_GetAttrString(on.given["matched"], "matched"));
  const uint64_t matched = PyLong_AsUnsignedLongLong(number.get());
  if (PyErr_Occurred() != nullptr) throw Raised();
  return on.bring(rondo_mrecv, rondo_mrecv_async, to.address, to.count, to.dtype, matched);
}

template <auto Probe, auto Start>
PyObject* probe(Request& on) {
  const int source = on.whole("source"), tag = on.whole("tag");
  return on.bring(Probe, Start, source, tag);
}

// Submits a call that has no form which returns a Work.
template <typename Block>
void submit_blocking(Request& on, const Options& used, Block block) {
  Ref(on.submit(Py_None, used, block, [](rondo_comm_t, rondo_work_t*) { return RONDO_OK; }));
}

template <auto Probe>
PyObject* look(Request& on) {
  const int source = on.whole("source"), tag = on.whole("tag");
  rondo_message_t message{};
  int found = 0;
  submit_blocking(on, on.options(0), [&](rondo_comm_t comm) { return Probe(comm, source, tag, &found, &message); });
  return found != 0 ? message_of(message).release() : Py_NewRef(Py_None);
}

PyObject* sendrecv(Request& on) {
  const Buffer &from = on.buffer("array", false), &to = on.buffer("out", true);
  if (from.dtype != to.dtype || from.per_item != to.per_item) {
    raise(PyExc_TypeError, "array is %s, and out is %s", dtype_name(from.dtype), dtype_name(to.dtype));
  }
  const int dest = on.whole("dest"), source = on.whole("source"), tag = on.whole("tag");
  const Options used = on.options(0);
  rondo_message_t message{};
  submit_blocking(on, used, [&](rondo_comm_t comm) {
    return rondo_sendrecv(comm, from.address, from.count, dest, to.address, to.count, source, from.dtype, tag,
                          used.get(), &message);
  });
  return message_of(message).release();
}

// --- as methods of Python's

// The bodies of methods that are no collectives of equal blocks.
struct Named {
  std::string_view name;
  Body body;
  bool starts = false;
};
constexpr Named kNamed[] = {{"_uneven", uneven},
                            {"_all_reduce_many", all_reduce_many},
                            {"send", send},
                            {"isend", send, true},
                            {"recv", receive},
                            {"irecv", receive, true},
                            {"mrecv", receive_matched},
                            {"imrecv", receive_matched, true},
                            {"probe", probe<rondo_probe, rondo_probe_async>},
                            {"mprobe", probe<rondo_mprobe, rondo_mprobe_async>},
                            {"iprobe", look<rondo_iprobe>},
                            {"improbe", look<rondo_improbe>},
                            {"sendrecv", sendrecv}};

// Python's C API passes a method no more than its arguments, so each row has an entry of its own.
constexpr size_t kMostRows = 40;
Row rows[kMostRows];

PyObject* run_row(const Row& row, PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  return guarded([&] {
    const Given given(row, self, arguments, count, names);
    Request request(row, self, given);
    return row.body(request);
  });
}
template <size_t kRow>
PyObject* enter(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  return run_row(rows[kRow], self, arguments, count, names);
}
using Entry = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
template <size_t... kRows>
constexpr std::array<Entry, sizeof...(kRows)> entries_of(std::index_sequence<kRows...>) {
  return {enter<kRows>...};
}
constexpr auto kEntries = entries_of(std::make_index_sequence<kMostRows>());

// The method's row, or the first that is free.
Row& row_named(const char* name) {
  Row* const found = std::find_if(std::begin(rows), std::end(rows),
                                  [&](const Row& each) { return each.name.empty() || each.name == name; });
  if (found == std::end(rows)) raise(PyExc_SystemError, "%s() is beyond the %d methods that fit", name, int{kMostRows});
  found->name = name;
  return *found;
}

// Fills in the parameters of a row.
void declare(Row& row, PyObject* names, PyObject* defaults) {
  row.count = PyTuple_Size(names);
  row.defaults.fill(Py_None);
  row.declares.fill(false);
  for (Py_ssize_t i = 0; i < row.count; ++i) {
    row.names[i] = Py_NewRef(PyTuple_GetItem(names, i));
    const auto* const known = std::find_if(std::begin(kParameters), std::end(kParameters), [&](const char* each) {
      return PyUnicode_CompareWithASCIIString(row.names[i], each) == 0;
    });
    if (known == std::end(kParameters)) {
      raise(PyExc_SystemError, "%s() has an unknown parameter %S", row.name.c_str(), row.names[i]);
    }
    const size_t index = row.order[i] = static_cast<size_t>(known - kParameters);
    row.declares[index] = true;
    row.defaults[index] = Py_XNewRef(PyDict_GetItem(defaults, row.names[i]));
  }
}

void free_communicator(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  for (PyObject* each :
       {reinterpret_cast<Communicator*>(object)->handle, reinterpret_cast<Communicator*>(object)->batch}) {
    Py_XDECREF(each);
  }
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

PyMemberDef members[] = {{"_handle", T_OBJECT, offsetof(Communicator, handle), 0, nullptr},
                         {"_batch", T_OBJECT, offsetof(Communicator, batch), 0, nullptr},
                         {"rank", T_INT, offsetof(Communicator, rank), 0, nullptr},
                         {"size", T_INT, offsetof(Communicator, size), 0, nullptr},
                         {"_purpose", T_ULONGLONG, offsetof(Communicator, purpose), 0, nullptr},
                         {}};
PyType_Slot slots[] = {
    {Py_tp_members, members}, {Py_tp_dealloc, reinterpret_cast<void*>(free_communicator)}, {0, nullptr}};
PyType_Spec spec = {"_rondo.Communicator", sizeof(Communicator), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

// method(class, function, names of its parameters, how many are positional, {name: default}, documentation, facts): the
// method of the same name that is written here, or None. facts: of a collective of equal blocks, as rondo/calls.py has
// them; else None.
PyObject* method(PyObject*, PyObject* arguments) {
  return guarded([&] {
    PyObject *type = nullptr, *function = nullptr, *names = nullptr, *defaults = nullptr, *facts = nullptr;
    const char *name = nullptr, *documentation = nullptr;
    Py_ssize_t positional = 0;
    if (PyArg_ParseTuple(arguments, "OsOO!nOyO", &type, &name, &function, &PyTuple_Type, &names, &positional, &defaults,
                         &documentation, &facts) == 0) {
      throw Raised();
    }
    const auto* const named =
        std::find_if(std::begin(kNamed), std::end(kNamed), [&](const Named& each) { return each.name == name; });
    const bool is_named = named != std::end(kNamed);
    if (!is_named && facts == Py_None) return Py_NewRef(Py_None);
    Row& row = row_named(name);
    row.declared = Py_NewRef(function);
    row.positional = positional;
    row.body = is_named ? named->body : even;
    row.starts = is_named && named->starts;
    if (facts != Py_None && PyArg_ParseTuple(facts, "iiiiiO", &row.collective, &row.blocks_in, &row.blocks_out,
                                             &row.root_sends, &row.root_gets, &row.new_out) == 0) {
      throw Raised();
    }
    Py_XINCREF(row.new_out);
    declare(row, names, defaults);
    const auto entry = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kEntries[&row - rows]));
    const char* const text = (new std::string(documentation))->c_str();  // for ever, as the definition
    return PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type),
                             new PyMethodDef{row.name.c_str(), entry, METH_FASTCALL | METH_KEYWORDS, text});
  });
}

void add_communicator(PyObject* module) {
  const Ref type = Ref::checked(PyType_FromSpec(&spec));
  if (PyModule_AddObjectRef(module, "Communicator", type.get()) != 0) throw Raised();
}

}  // namespace rondo::python
