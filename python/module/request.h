#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "python/module/options.h"

namespace rondo::python {

// A group of ranks: the base of rondo.Communicator, which sets the fields. Python's side may change handle and batch at
// any time that the interpreter lock is free, so a call takes a reference first.
struct Communicator {
  PyObject base;
  PyObject *handle, *batch;  // a capsule, or None after close(); a Batch that collects calls, or None
  int rank, size;
  unsigned long long purpose;  // of rondo_options_t
};

// One call of a method, on the stack of that call. Its arguments are the caller's and live as long. The interpreter
// lock is held except inside the library. Two buffers are the most that a method has: an input and an output.
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

  // The reference is good as long as this.
  Buffer& buffer(Parameter which, bool writes) {
    return checked(buffers_[used_++] = buffer_of(given[which], writes, which.name(), Takes::kEverything), which.name());
  }
  // An output of `count` elements of the input's type. Raises TypeError for another type, ValueError for another
  // length.
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
  // `out` if the caller gave one, else a new array. A borrowed reference: made_ has the new one.
  PyObject* out_or_new() {
    if (given.has("out")) return given["out"];
    made_ = call(row.new_out, "Oi", given["array"], self_.size);
    return made_.get();
  }
  // Elements of each of `size` parts of the first dimension. Raises ValueError where the parts would differ.
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
  // reference. Where it raises before the library is called, nothing has happened. A packed copy is refused where
  // nobody would copy the result back.
  template <typename Block, typename Start>
  PyObject* submit(PyObject* result, const Options& options, Block block, Start start, bool receives = false) {
    if (self_.handle == nullptr || self_.handle == Py_None)
      Ref::checked(PyObject_CallMethod(object_, "_open", nullptr));
    const Ref handle = Ref::borrowed(self_.handle);
    rondo_comm_t comm = Capsule<rondo_comm_t>::in(handle.get());
    const bool has_work = row.starts || given.says("async_op");
    const bool is_collected = collects();
    Ref kept;
    for (const Buffer& buffer : buffers_) {
      if (buffer.packed_of && (has_work || is_collected))
        refuse_strides(buffer.packed_of.get(), "with async_op=True or in a batch an array");
    }
    if (has_work || is_collected) {
      const auto owner = [](const Ref& of) { return of ? of.get() : Py_None; };
      kept = Ref::checked(PyTuple_Pack(7, given["array"], given["out"], result, options.kept(),
                                       owner(buffers_[0].owner), owner(buffers_[1].owner), owner(owners_)));
    }
    if (!has_work) {
      if (is_collected) Ref::checked(PyObject_CallMethod(self_.batch, "keep", "(O)", kept.get()));
      check(without_gil([&] { return block(comm); }));
      for (const Buffer& buffer : buffers_) buffer.copy_back();
      return Py_NewRef(result);
    }
    Ref work = new_work(object_, std::move(kept), result, receives);
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
  // The same of one that brings or finds a message: returns that, or the Work. A blocking call's Message is made here;
  // a Work makes its own at its end.
  template <typename Block, typename Start, typename... Arguments>
  PyObject* bring(Block block, Start start, Arguments... arguments) {
    const Options used = options(0);
    rondo_message_t message{};
    Ref result(submit(
        Py_None, used, [&](rondo_comm_t comm) { return block(comm, arguments..., used.get(), &message); },
        [&](rondo_comm_t comm, rondo_work_t* work) { return start(comm, arguments..., used.get(), work); }, true));
    return result && result.get() != Py_None ? result.release() : message_of(message).release();
  }

  // Submits a collective. call: all but type, buffers and options, which are filled in. A product of complex numbers
  // goes as RONDO_USER, and then counts complex numbers, not their parts.
  PyObject* run(rondo_call_t& call, const Buffer* source, const Buffer* target, PyObject* result) {
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

  // Whether this thread has a batch open. It asks Python's Batch, which knows the thread.
  bool collects() const {
    if (self_.batch == nullptr || self_.batch == Py_None) return false;
    return Ref::checked(PyObject_CallMethod(self_.batch, "collects", nullptr)).get() == Py_True;
  }

  PyObject* object_;
  Communicator& self_;
  Buffer buffers_[2];
  size_t used_ = 0;
  Ref made_, owners_;
};

// The body of a method by its name, but for the collectives of equal blocks. `starts`: it returns a Work, whatever its
// arguments.
struct NamedBody {
  std::string_view name;
  Body body;
  bool starts = false;
};
// Those in collectives.cc, and in messages.cc.
std::span<const NamedBody> collective_bodies();
std::span<const NamedBody> message_bodies();

// A collective of equal blocks, whatever its row says.
PyObject* even(Request& on);

}  // namespace rondo::python
