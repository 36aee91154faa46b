#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "rondo/rondo.h"

namespace rondo::python {

// A Python exception is set: entry points return NULL. It has no data: the exception is in Python's thread state.
struct Raised {};

// Sets an exception, by PyErr_Format's rules.
[[noreturn]] void raise(PyObject* type, const char* format, ...);
[[noreturn]] void raise(PyObject* error);

// One reference, owned. It is used with the interpreter lock held, its destructor too: that may run any code of Python.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  static Ref borrowed(PyObject* object) { return Ref(Py_NewRef(object)); }
  // Takes the result of a function that gives a new reference, or raises.
  static Ref checked(PyObject* owned) { return owned != nullptr ? Ref(owned) : throw Raised(); }
  Ref(Ref&& other) noexcept : object_(other.release()) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  // The caller owns the reference.
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// What `name` is in a module of Python's, for ever. `cache`: static, of the caller. Borrowed. Raises. The interpreter
// lock guards the cache.
PyObject* imported(PyObject*& cache, const char* module, const char* name);

template <typename... Arguments>
Ref call(PyObject* function, const char* format, Arguments... arguments) {
  return Ref::checked(PyObject_CallFunction(function, format, arguments...));
}

// What `body` returns. At the end of the process Python ends threads, but for the main one, where they take the GIL, up
// to version 3.13 by unwinding their stacks: such a thread stays here instead.
template <typename Body>
auto until_the_end(Body body) {
  try {
    return body();
  } catch (const Raised&) {
    throw;
  } catch (const std::exception&) {
    throw;
  } catch (...) {
    for (;;) pause();
  }
}

// Runs `body` of a method or function that Python calls; it gives a new reference. No C++ exception enters Python.
template <typename Body>
PyObject* guarded(Body body) noexcept {
  try {
    return until_the_end(body);
  } catch (const Raised&) {
    return nullptr;
  } catch (const std::exception&) {
    return PyErr_NoMemory();
  }
}

// Runs `body`, a call of the library's, while other threads of Python may run. The body touches no object of Python;
// arguments and handles are kept by the caller.
template <typename Body>
rondo_result_t without_gil(Body body) {
  PyThreadState* const state = PyEval_SaveThread();
  const rondo_result_t result = body();
  until_the_end([state] { PyEval_RestoreThread(state); });
  return result;
}

// This thread's last failure, an exception of rondo.errors. Raises instead what a signal's handler raised in that call.
// Called on the thread of the call that failed, before another call of the library.
Ref last_error(rondo_result_t result);
inline void check(rondo_result_t result) {
  if (result != RONDO_OK) raise(last_error(result).get());
}

// A handle of rondo.h as a capsule, which frees it with the last reference; a call under way has one. It may wait there
// until the other ranks have left (Config::destroy_timeout_ms), without the interpreter lock.
template <typename Handle>
struct Capsule {
  static const char* const kName;
  static void free(PyObject* capsule);
  static Ref made(Handle handle) { return Ref::checked(PyCapsule_New(handle, kName, free)); }
  // Raises TypeError.
  static Handle in(PyObject* capsule) {
    if (PyCapsule_IsValid(capsule, kName) == 0) raise(PyExc_TypeError, "%R is no %s", capsule, kName);
    return static_cast<Handle>(PyCapsule_GetPointer(capsule, kName));
  }
};
template <>
const char* const Capsule<rondo_comm_t>::kName;
template <>
const char* const Capsule<rondo_dist_opt_t>::kName;
template <>
const char* const Capsule<rondo_id_server_t>::kName;

// Contiguous memory of what a caller passed as an array, which must live as long. It does not own the array, which the
// call's arguments hold.
struct Buffer {
  void* address = nullptr;
  uint64_t count = 0;  // elements, as the library counts them
  int dtype = 0;       // rondo_dtype_t
  bool on_device = false;
  // What the library has no type for goes as several elements each: a complex number as its parts, others as bytes.
  uint64_t per_item = 1;
  Ref foreign;    // NumPy's dtype of such an array
  Ref owner;      // beside the array, where it is no array of NumPy's, or is packed
  Ref strided;    // the array, where it is not contiguous
  Ref packed_of;  // the same, where copy_back() brings the results to it

  bool is_complex() const { return foreign && dtype != RONDO_UINT8; }
  void copy_back() const;
};

// kPlain: contiguous arrays of the library's types.
enum class Takes { kPlain, kEverything };

// NumPy arrays, objects with __dlpack__, objects with the buffer protocol. Raises TypeError: no array, a masked one,
// one of Python objects, or on a device that is no GPU; ValueError: not contiguous, or read-only where the call writes
// it. what: "array", "out", ...
Buffer buffer_of(PyObject* array, bool writes, const char* what, Takes takes = Takes::kPlain);
// Raises ValueError, with shape and strides, for an array that is not contiguous.
[[noreturn]] void refuse_strides(PyObject* array, const char* what);
// Entries of the first dimension; 1 where there is none. Requires buffer_of() to have taken the array.
int64_t first_of(PyObject* array);

// rondo_dtype_t of a name, or of what NumPy takes for a type. Raises TypeError.
int dtype_of(PyObject* dtype);
// Requires a rondo_dtype_t.
const char* dtype_name(int dtype);
// rondo_op_t of a name. Raises ValueError. RONDO_USER for a rondo.UserOp.
int op_of(PyObject* name);
// A list of numbers that Python has checked.
std::vector<uint64_t> numbers_of(PyObject* list);

// What recv() returns. A Message, or a Matched where the probe has taken it.
Ref message_of(const rondo_message_t& message);
// A Work; `kept` and `result` are in place before the operation begins. `group` is the communicator: it does not leave
// before the Work is over or gone.
Ref new_work(PyObject* group, Ref kept, PyObject* result, bool receives);
// Where the library puts the operation. NULL until it has begun.
rondo_work_t* handle_in(const Ref& work);

// What the files of this folder add to the module. They raise.
void find_numpy();
void add_work(PyObject* module);
void add_communicator(PyObject* module);
void add_functions(PyObject* module);
PyObject* lightgbm_network(PyObject*, PyObject* arguments);
PyObject* method(PyObject*, PyObject* arguments);
PyObject* failure_of(PyObject*, PyObject* code);
PyObject* stop_asking(PyObject*, PyObject*);

}  // namespace rondo::python
