#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "python/module/module.h"

namespace rondo::python {
namespace {

// --- arguments

// The parameters of all methods that are written here.
const char* const kParameters[] = {"array",   "op",       "root",        "out",           "dest",       "source",
                                   "tag",     "timeout",  "scalar",      "algorithm",     "wire",       "stream",
                                   "needed",  "result",   "collective",  "output_counts", "async_op",   "input_counts",
                                   "matched", "truncate", "synchronous", "copy",          "recoverable"};
enum Parameter {
  kArray,
  kOp,
  kRoot,
  kOut,
  kDest,
  kSource,
  kTag,
  kTimeout,
  kScalar,
  kAlgorithm,
  kWire,
  kStream,
  kNeeded,
  kResult,
  kCollective,
  kOutputCounts,
  kAsync,
  kInputCounts,
  kMatched,
  kTruncate,
  kSynchronous,
  kCopy,
  kRecoverable,
  kCount
};

// A function of Python's (communicator.py) whose body is here. References are kept for ever.
struct Signature {
  PyObject* declared = nullptr;
  Py_ssize_t positional = 0, count = 0;      // without self
  std::array<Parameter, kCount> order{};     // as declared
  std::array<PyObject*, kCount> names{};     // interned, in that order
  std::array<PyObject*, kCount> defaults{};  // by Parameter; NULL: needed; None where there is no such parameter
};

// The arguments of one call, by Parameter; borrowed.
class Given {
 public:
  Given(const Signature& of, PyObject* self, PyObject* const* arguments, Py_ssize_t positional, PyObject* names)
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
  PyObject* operator[](Parameter which) const { return values_[which]; }
  bool has(Parameter which) const { return values_[which] != Py_None; }
  bool says(Parameter which) const {
    PyObject* const value = values_[which];
    return value != Py_None && value != Py_False && PyObject_IsTrue(value) != 0;
  }

 private:
  // The declared function says in Python's words what is wrong.
  [[noreturn]] static void refuse(const Signature& of, PyObject* self, PyObject* const* arguments,
                                  Py_ssize_t positional, PyObject* names) {
    const Ref all = Ref::checked(PyTuple_New(positional + 1)), by_name = Ref::checked(PyDict_New());
    PyTuple_SetItem(all.get(), 0, Py_NewRef(self));
    for (Py_ssize_t i = 0; i < positional; ++i) PyTuple_SetItem(all.get(), i + 1, Py_NewRef(arguments[i]));
    for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_Size(names); ++i) {
      PyDict_SetItem(by_name.get(), PyTuple_GetItem(names, i), arguments[positional + i]);
    }
    Ref::checked(PyObject_Call(of.declared, all.get(), by_name.get()));
    raise(PyExc_SystemError, "%S does not say what these arguments lack", of.declared);
  }

  std::array<PyObject*, kCount> values_;
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
    for (const Parameter each : {kTimeout, kAlgorithm, kScalar, kWire, kStream}) used_ = used_ || given.has(each);
    options_.purpose = purpose;
    if (given.says(kSynchronous)) options_.flags |= RONDO_SYNCHRONOUS;
    if (given.says(kTruncate)) options_.flags |= RONDO_TRUNCATE;
    if (given.says(kRecoverable)) options_.flags |= RONDO_RECOVERABLE;
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
    if (given.has(kWire)) {
      const Ref fields = call(imported(fields_of, "rondo.wire", "fields_of"), "OK", given[kWire], count);
      PyObject *residual = nullptr, *kept = nullptr;
      if (PyArg_ParseTuple(fields.get(), "iiKOO", &options_.wire, &options_.wire_flags, &options_.wire_seed, &residual,
                           &kept) == 0) {
        throw Raised();
      }
      options_.residual = static_cast<float*>(PyLong_AsVoidPtr(residual));
      kept_ = Ref::borrowed(kept);
    }
    if (given.has(kTimeout)) {
      const Ref number = call(imported(milliseconds, "rondo._arguments", "milliseconds"), "Oi", given[kTimeout], rank);
      options_.timeout_ms = PyLong_AsLongLong(number.get());
    }
    if (given.has(kScalar)) {
      options_.scalar =
          PyFloat_AsDouble(checked_there(real_number, "real_number", given[kScalar], "scalar", rank).get());
    }
    if (given.has(kAlgorithm)) {
      algorithm_ = PyBytes_AsString(checked_there(text_of, "text_of", given[kAlgorithm], "algorithm", rank).get());
      options_.algorithm = algorithm_.c_str();
    }
    if (given.has(kStream)) {
      options_.on_stream = 1;
      options_.stream = PyLong_AsVoidPtr(
          call(imported(stream_handle, "rondo._arguments", "stream_handle"), "O", given[kStream]).get());
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
  Request(PyObject* self, const Given& arguments)
      : given(arguments), object_(self), self_(*reinterpret_cast<Communicator*>(self)) {}

  const Given& given;
  bool is_async = false, is_uneven = false;

  int rank() const { return self_.rank; }
  uint64_t size() const { return static_cast<uint64_t>(self_.size); }
  int whole(Parameter which) const { return whole_number(given[which], kParameters[which], self_.rank); }
  Options options(uint64_t count) const { return {given, self_.rank, self_.purpose, count}; }
  void keep(Ref owners) { owners_ = std::move(owners); }

  Buffer& buffer(Parameter which, bool writes) {
    return checked(buffers_[used_++] = buffer_of(given[which], writes, kParameters[which], Takes::kEverything),
                   kParameters[which]);
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
    if (buffer.strided && given.has(kCopy) && !given.says(kCopy)) refuse_strides(buffer.strided.get(), what);
    if (buffer.on_device == given.has(kStream)) return buffer;
    raise(PyExc_TypeError, buffer.on_device
                               ? "an array is in GPU memory: pass the stream that it is used in, as stream="
                               : "an array is in host memory: with stream= all arrays, out too, are in GPU memory");
  }
  // `out` if the caller gave one, else a new array: what the function of rondo._arguments makes of `array`.
  PyObject* out_or(const char* function) {
    if (given.has(kOut)) return given[kOut];
    const Ref module = Ref::checked(PyImport_ImportModule("rondo._arguments"));
    made_ = Ref::checked(PyObject_CallMethod(module.get(), function, "Oi", given[kArray], self_.size));
    return made_.get();
  }
  // Elements of each of `size` parts of the first dimension.
  uint64_t part(const Buffer& source) const {
    const int64_t first = first_of(given[kArray]);
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
    const bool has_work = is_async || given.says(kAsync);
    const bool is_collected = self_.batch != nullptr && self_.batch != Py_None;
    Ref kept;
    for (const Buffer& buffer : buffers_) {
      if (buffer.packed_of && (has_work || is_collected))
        refuse_strides(buffer.packed_of.get(), "with async_op=True or in a batch an array");
    }
    if (has_work || is_collected) {
      const auto owner = [](const Ref& of) { return of ? of.get() : Py_None; };
      kept = Ref::checked(PyTuple_Pack(8, given[kArray], given[kOut], result, options.kept(), owner(buffers_[0].owner),
                                       owner(buffers_[1].owner), owner(owners_), object_));
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

  PyObject* run(rondo_collective_t collective, const Buffer* source, const Buffer* target, uint64_t count,
                PyObject* result, int op = RONDO_SUM, int root = -1, const uint64_t* input_counts = nullptr,
                const uint64_t* output_counts = nullptr) {
    Options used = options(source != nullptr ? source->count : 0);
    const Buffer* const typed = source != nullptr ? source : target;
    if (op == RONDO_USER) used.fold_by(given[kOp], typed->dtype, self_.handle);
    if (op == RONDO_PRODUCT && typed->is_complex()) {
      used.multiply_complex(typed->dtype);
      op = RONDO_USER;
      count /= typed->per_item;
    }
    const rondo_call_t call = {sizeof(rondo_call_t),
                               collective,
                               typed != nullptr ? typed->dtype : 0,
                               op,
                               root,
                               source != nullptr ? source->address : nullptr,
                               target != nullptr ? target->address : nullptr,
                               count,
                               is_uneven ? 1 : 0,
                               input_counts,
                               output_counts,
                               nullptr,
                               nullptr,
                               used.get()};
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

// --- collectives; communicator.py documents them

// What a collective of equal blocks has beside an input.
struct Shape {
  enum { kSame, kAll, kPart } out;  // the output: as long as the input, `size` times, a part of it
  const char* new_out;              // of rondo._arguments; NULL: in place
  bool is_rooted, at_root_alone;    // at_root_alone: others have no output
  bool reduces;
};
constexpr Shape kShapes[] = {{Shape::kSame, nullptr, false, false, true},  // by rondo_collective_t
                             {Shape::kPart, "new_part", false, false, true},
                             {Shape::kAll, "new_gathered", false, false, false},
                             {},
                             {Shape::kSame, nullptr, true, true, true},
                             {Shape::kAll, "new_gathered", true, true, false},
                             {Shape::kPart, "new_scattered", true, false, false},
                             {Shape::kSame, "new_same", false, false, false},
                             {},
                             {Shape::kSame, nullptr, false, false, true},
                             {Shape::kSame, nullptr, false, false, true}};

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

template <rondo_collective_t kCollective>
PyObject* equal(Request& on) {
  constexpr Shape kShape = kShapes[kCollective];
  const Given& given = on.given;
  const int root = kShape.is_rooted ? on.whole(kRoot) : -1;
  const bool has_output = !kShape.at_root_alone || root == on.rank();
  const bool in_place = kShape.new_out == nullptr && !given.has(kOut);
  const Buffer& source = on.buffer(kArray, in_place && has_output);
  const bool in_parts = kShape.out == Shape::kPart || kCollective == RONDO_ALL_TO_ALL;
  const uint64_t count = in_parts ? on.part(source) : source.count;
  PyObject* const result = !has_output ? Py_None : in_place ? given[kArray] : on.out_or(kShape.new_out);
  const Buffer* target = has_output ? &source : nullptr;
  if (has_output && !in_place) {
    const uint64_t all = kShape.out == Shape::kAll    ? source.count * on.size()
                         : kShape.out == Shape::kPart ? count
                                                      : source.count;
    target = &on.like(result, source, all);
  }
  const int op = kShape.reduces ? op_of(given[kOp]) : RONDO_SUM;
  if (kShape.reduces && source.foreign) check_reducible(source, op, given[kOp]);
  if (given.has(kNeeded)) return Py_NewRef(Py_None);  // _check_all_reduce(): it would be done
  return on.run(kCollective, &source, target, count, result, op, root);
}

PyObject* broadcast(Request& on) {
  const int root = on.whole(kRoot);
  const Buffer& buffer = on.buffer(kArray, root != on.rank());
  return on.run(RONDO_BROADCAST, &buffer, &buffer, buffer.count, on.given[kArray], RONDO_SUM, root);
}

PyObject* scatter(Request& on) {
  if (on.whole(kRoot) == on.rank()) {
    if (!on.given.has(kArray)) raise(PyExc_ValueError, "scatter on rank %d, which is root: array is None", on.rank());
    return equal<RONDO_SCATTER>(on);
  }
  if (!on.given.has(kOut)) {
    raise(PyExc_ValueError, "scatter on rank %d: pass out, an array of the shape and dtype of its part", on.rank());
  }
  const Buffer& target = on.buffer(kOut, true);
  return on.run(RONDO_SCATTER, nullptr, &target, target.count, on.given[kOut], RONDO_SUM, on.whole(kRoot));
}

PyObject* barrier(Request& on) { return on.run(RONDO_BARRIER, nullptr, nullptr, 0, Py_None); }

// The _v forms, whose arguments communicator.py has checked but for the arrays.
PyObject* uneven(Request& on) {
  const Given& given = on.given;
  const int collective = on.whole(kCollective);
  const Buffer* const source = given.has(kArray) ? &on.buffer(kArray, false) : nullptr;
  const Buffer* target = nullptr;
  if (given.has(kOut) && source != nullptr) {
    uint64_t needed = PyLong_AsUnsignedLongLong(given[kNeeded]);
    if (PyErr_Occurred() != nullptr || __builtin_mul_overflow(needed, source->per_item, &needed)) needed = UINT64_MAX;
    PyErr_Clear();  // no array is as long
    target = &on.like(given[kOut], *source, needed);
  } else if (given.has(kOut)) {
    target = &on.buffer(kOut, true);
  }
  const Buffer* const typed = source != nullptr ? source : target;
  const int op = op_of(given[kOp]);
  if (collective == RONDO_REDUCE_SCATTER && source->foreign) {
    check_reducible(*source, op, given[kOp]);
    if (op == RONDO_PRODUCT) raise(PyExc_ValueError, "reduce_scatter_v of complex numbers has no product");
  }
  const auto counts = [&](Parameter which) {
    auto numbers = given.has(which) ? numbers_of(given[which]) : std::vector<uint64_t>();
    for (uint64_t& number : numbers) number *= typed->per_item;
    return numbers;
  };
  const std::vector<uint64_t> input = counts(kInputCounts), output = counts(kOutputCounts);
  const uint64_t own = collective == RONDO_GATHER ? source->count : collective == RONDO_SCATTER ? target->count : 0;
  on.is_uneven = true;
  return on.run(collective, source, target, own, given[kResult], op, on.whole(kRoot),
                given.has(kInputCounts) ? input.data() : nullptr, given.has(kOutputCounts) ? output.data() : nullptr);
}

PyObject* all_reduce_many(Request& on) {
  std::vector<rondo_tensor_t> tensors;
  Ref owners = Ref::checked(PyList_New(0));
  for (Py_ssize_t i = 0; i < PyList_Size(on.given[kArray]); ++i) {
    PyObject* const array = PyList_GetItem(on.given[kArray], i);
    const Buffer each = buffer_of(array, true, ("arrays[" + std::to_string(i) + "]").c_str());
    on.checked(each, "array");
    tensors.push_back({each.address, each.address, each.count, each.dtype});
    if (each.owner) PyList_Append(owners.get(), each.owner.get());
  }
  on.keep(std::move(owners));
  const Options used = on.options(0);
  const int op = op_of(on.given[kOp]);
  return on.submit(
      on.given[kArray], used,
      [&](rondo_comm_t comm) { return rondo_all_reduce_many(comm, tensors.data(), tensors.size(), op, used.get()); },
      [&](rondo_comm_t comm, rondo_work_t* work) {
        return rondo_all_reduce_many_async(comm, tensors.data(), tensors.size(), op, used.get(), work);
      });
}

// --- messages

PyObject* send(Request& on) {
  const Buffer& from = on.buffer(kArray, false);
  const int dest = on.whole(kDest), tag = on.whole(kTag);
  const Options used = on.options(0);
  return on.submit(
      Py_None, used,
      [&](rondo_comm_t comm) { return rondo_send(comm, from.address, from.count, from.dtype, dest, tag, used.get()); },
      [&](rondo_comm_t comm, rondo_work_t* work) {
        return rondo_send_async(comm, from.address, from.count, from.dtype, dest, tag, used.get(), work);
      });
}

// A message that was received or found, or the Work that brings it.
template <typename Block, typename Start>
PyObject* bring(Request& on, const Options& used, Block block, Start start) {
  rondo_message_t message{};
  Ref result(on.submit(
      Py_None, used, [&](rondo_comm_t comm) { return block(comm, &message); }, start, true));
  return result && result.get() != Py_None ? result.release() : message_of(message).release();
}

PyObject* receive(Request& on) {
  const Buffer& to = on.buffer(kArray, true);
  const int source = on.whole(kSource), tag = on.whole(kTag);
  const Options used = on.options(0);
  return bring(
      on, used,
      [&](rondo_comm_t comm, rondo_message_t* message) {
        return rondo_recv(comm, to.address, to.count, to.dtype, source, tag, used.get(), message);
      },
      [&](rondo_comm_t comm, rondo_work_t* work) {
        return rondo_recv_async(comm, to.address, to.count, to.dtype, source, tag, used.get(), work);
      });
}

// Receives the message that a matched probe has found.
PyObject* receive_matched(Request& on) {
  const Buffer& to = on.buffer(kArray, true);
  const Ref number = Ref::checked(PyObject_GetAttrString(on.given[kMatched], "matched"));
  const uint64_t matched = PyLong_AsUnsignedLongLong(number.get());
  if (PyErr_Occurred() != nullptr) throw Raised();
  const Options used = on.options(0);
  return bring(
      on, used,
      [&](rondo_comm_t comm, rondo_message_t* message) {
        return rondo_mrecv(comm, to.address, to.count, to.dtype, matched, used.get(), message);
      },
      [&](rondo_comm_t comm, rondo_work_t* work) {
        return rondo_mrecv_async(comm, to.address, to.count, to.dtype, matched, used.get(), work);
      });
}

template <auto Probe, auto Start>
PyObject* probe(Request& on) {
  const int source = on.whole(kSource), tag = on.whole(kTag);
  const Options used = on.options(0);
  return bring(
      on, used,
      [&](rondo_comm_t comm, rondo_message_t* message) { return Probe(comm, source, tag, used.get(), message); },
      [&](rondo_comm_t comm, rondo_work_t* work) { return Start(comm, source, tag, used.get(), work); });
}

template <auto Probe>
PyObject* look(Request& on) {
  const int source = on.whole(kSource), tag = on.whole(kTag);
  rondo_message_t message{};
  int found = 0;
  const auto block = [&](rondo_comm_t comm) { return Probe(comm, source, tag, &found, &message); };
  Ref(on.submit(Py_None, on.options(0), block, [](rondo_comm_t, rondo_work_t*) { return RONDO_OK; }));
  return found != 0 ? message_of(message).release() : Py_NewRef(Py_None);
}

PyObject* sendrecv(Request& on) {
  const Buffer &from = on.buffer(kArray, false), &to = on.buffer(kOut, true);
  if (from.dtype != to.dtype || from.per_item != to.per_item) {
    raise(PyExc_TypeError, "array is %s, and out is %s", dtype_name(from.dtype), dtype_name(to.dtype));
  }
  const int dest = on.whole(kDest), source = on.whole(kSource), tag = on.whole(kTag);
  const Options used = on.options(0);
  rondo_message_t message{};
  const auto block = [&](rondo_comm_t comm) {
    return rondo_sendrecv(comm, from.address, from.count, dest, to.address, to.count, source, from.dtype, tag,
                          used.get(), &message);
  };
  Ref(on.submit(Py_None, used, block, [](rondo_comm_t, rondo_work_t*) { return RONDO_OK; }));
  return message_of(message).release();
}

// --- as methods of Python's

constexpr int kAsyncMessage = 2;

template <PyObject* (*Body)(Request&), int kNumber>
struct Method {
  static inline Signature signature;
  static PyObject* run(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
    return guarded([&] {
      const Given given(signature, self, arguments, count, names);
      Request request(self, given);
      request.is_async = kNumber == kAsyncMessage;
      return Body(request);
    });
  }
};

struct Entry {
  PyMethodDef definition;
  Signature* signature;
};
template <PyObject* (*Body)(Request&), int kNumber = 0>  // another number for another method of the same body
Entry entry(const char* name) {
  using Of = Method<Body, kNumber>;
  const auto function = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(Of::run));
  return {{name, function, METH_FASTCALL | METH_KEYWORDS, nullptr}, &Of::signature};
}

Entry entries[] = {entry<equal<RONDO_ALL_REDUCE>>("all_reduce"),
                   entry<equal<RONDO_ALL_REDUCE>, 1>("_check_all_reduce"),
                   entry<equal<RONDO_REDUCE>>("reduce"),
                   entry<equal<RONDO_SCAN>>("scan"),
                   entry<equal<RONDO_EXSCAN>>("exscan"),
                   entry<equal<RONDO_ALL_GATHER>>("all_gather"),
                   entry<equal<RONDO_GATHER>>("gather"),
                   entry<equal<RONDO_REDUCE_SCATTER>>("reduce_scatter"),
                   entry<equal<RONDO_ALL_TO_ALL>>("all_to_all"),
                   entry<broadcast>("broadcast"),
                   entry<scatter>("scatter"),
                   entry<barrier>("barrier"),
                   entry<uneven>("_uneven"),
                   entry<all_reduce_many>("_all_reduce_many"),
                   entry<send>("send"),
                   entry<send, kAsyncMessage>("isend"),
                   entry<receive>("recv"),
                   entry<receive, kAsyncMessage>("irecv"),
                   entry<receive_matched>("mrecv"),
                   entry<receive_matched, kAsyncMessage>("imrecv"),
                   entry<probe<rondo_probe, rondo_probe_async>>("probe"),
                   entry<probe<rondo_mprobe, rondo_mprobe_async>>("mprobe"),
                   entry<look<rondo_iprobe>>("iprobe"),
                   entry<look<rondo_improbe>>("improbe"),
                   entry<sendrecv>("sendrecv")};

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

// method(class, function, names of its parameters, how many are positional, {name: default}, documentation): the method
// of the same name that is written here, or None.
PyObject* method(PyObject*, PyObject* arguments) {
  return guarded([&] {
    PyObject *type = nullptr, *function = nullptr, *names = nullptr, *defaults = nullptr;
    const char *name = nullptr, *documentation = nullptr;
    Py_ssize_t positional = 0;
    if (PyArg_ParseTuple(arguments, "OsOO!nOy", &type, &name, &function, &PyTuple_Type, &names, &positional, &defaults,
                         &documentation) == 0) {
      throw Raised();
    }
    const auto* const found = std::find_if(std::begin(entries), std::end(entries), [&](const Entry& each) {
      return std::string(each.definition.ml_name) == name;
    });
    if (found == std::end(entries)) return Py_NewRef(Py_None);
    Signature& to = *found->signature;
    to.declared = Py_NewRef(function);
    to.positional = positional;
    to.count = PyTuple_Size(names);
    to.defaults.fill(Py_None);
    for (Py_ssize_t i = 0; i < to.count; ++i) {
      to.names[i] = Py_NewRef(PyTuple_GetItem(names, i));
      const auto* const known = std::find_if(std::begin(kParameters), std::end(kParameters), [&](const char* each) {
        return PyUnicode_CompareWithASCIIString(to.names[i], each) == 0;
      });
      if (known == std::end(kParameters))
        raise(PyExc_SystemError, "%s() has an unknown parameter %S", name, to.names[i]);
      to.order[i] = static_cast<Parameter>(known - kParameters);
      to.defaults[to.order[i]] = Py_XNewRef(PyDict_GetItem(defaults, to.names[i]));
    }
    auto* const definition = new PyMethodDef(found->definition);  // for ever
    definition->ml_doc = (new std::string(documentation))->c_str();
    return PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type), definition);
  });
}

void add_communicator(PyObject* module) {
  const Ref type = Ref::checked(PyType_FromSpec(&spec));
  if (PyModule_AddObjectRef(module, "Communicator", type.get()) != 0) throw Raised();
}

}  // namespace rondo::python
